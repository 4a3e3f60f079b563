"""Typed, frozen objects from TOML tables: every key known, every value of the declared type.

A configuration is a tree of frozen dataclasses whose annotations are the whole grammar: types,
bounds (`msgspec.Meta`), defaults. `build` checks a parsed table against them; whatever spans
several keys is left to the caller's own check. Messages name the file, the table and the key
("label.toml: [approval] max_epoch is not a key; did you mean max_epochs?").
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import tomllib
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from colonnade.errors import UsageError

__all__ = [
    "PARTY_NAME",
    "RUN_NAME",
    "PartyName",
    "Place",
    "RunName",
    "build",
    "nearest",
    "parse_toml",
    "read_toml",
    "toml_text",
]

_T = TypeVar("_T")

# A party's name becomes the common name and DNS name of its certificate, and a file name.
PARTY_NAME = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z"
PartyName = Annotated[
    str,
    msgspec.Meta(
        pattern=PARTY_NAME,
        description="a name of 1 to 63 lower-case letters, digits and inner hyphens",
    ),
]
# No dot: run folders use suffixes to tell finished runs from others.
RUN_NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}\Z"
RunName = Annotated[
    str,
    msgspec.Meta(
        pattern=RUN_NAME,
        description="a name of 1 to 100 letters, digits, hyphens and underscores",
    ),
]

_SHOWN_CHARACTERS = 60


@dataclass(frozen=True)
class Place:
    """Where in which document a value stands, for messages."""

    source: str
    table: tuple[str, ...] = ()

    def inside(self, key: str) -> Place:
        """The place of the values in the table `key` of this table."""
        return Place(self.source, (*self.table, key))

    def of(self, key: str) -> str:
        """Name one key of this table: `label.toml: [limits] connect_s`."""
        table = f"[{'.'.join(self.table)}] " if self.table else ""
        return f"{self.source}: {table}{key}"


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises
        UsageError: the file cannot be read or is not TOML; names file and line.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UsageError(
            f"got {path}, which does not exist; want a TOML file; 'colonnade init' writes one"
        ) from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}; check its permissions") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path.name}: got bytes that are not UTF-8; want a TOML file") from None
    return parse_toml(text, path.name)


def parse_toml(text: str, source: str) -> dict[str, Any]:
    """Parse TOML text.

    Raises
        UsageError: it is not TOML; names `source` and the line.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{source}: not valid TOML: {error}; correct that line") from None


def toml_text(text: str) -> str:
    """Write `text` as a TOML basic string, quotes included."""
    # JSON's escapes are TOML's, except that TOML also wants DEL escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for an unknown name: the closest known one, or all of them."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]}?"
    return f"want one of {', '.join(names)}" if names else "want none here"


def build(kind: type[_T], table: Mapping[str, Any], place: Place) -> _T:
    """Make the frozen dataclass `kind` from a parsed table, checking every key and value.

    Nested dataclasses are sub-tables, `dict[str, X]` is a table with free keys, `Path` is text.
    Relative paths stay relative; the caller resolves them.

    Raises
        UsageError: an unknown or missing key, a value of another type or out of bounds, a number
            that is not finite; names the place, what it got and what it wants.
    """
    hints = get_type_hints(kind, include_extras=True)
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for key in table:
        if key not in fields:
            raise UsageError(f"{place.of(key)} is not a key; {nearest(key, fields)}")
    for name, field in fields.items():
        if name not in table and field.default is MISSING and field.default_factory is MISSING:
            raise UsageError(
                f"{place.of(name)} is missing; want {_describe(hints[name])}; add {name} = ..."
            )
    values = {key: _value(hints[key], value, key, place) for key, value in table.items()}
    try:
        return kind(**values)
    except UsageError as error:  # the class's own check: "key: got ..."
        raise UsageError(place.of(str(error))) from None


def _value(hint: Any, value: Any, key: str, place: Place) -> Any:
    kind = _without_none(hint)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return build(kind, _table(value, key, place), place.inside(key))
    if get_origin(kind) is dict:
        items = _table(value, key, place).items()
        name_hint, item_hint = get_args(kind)
        inner = place.inside(key)
        return {
            _leaf(name_hint, name, name, inner): _value(item_hint, item, name, inner)
            for name, item in items
        }
    return _leaf(hint, value, key, place)


def _table(value: Any, key: str, place: Place) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise UsageError(f"{place.of(key)}: got {_show(value)}; want a table")
    return value


def _leaf(hint: Any, value: Any, key: str, place: Place) -> Any:
    try:
        if not all(math.isfinite(item) for item in _floats(value)):
            raise ValueError
        return msgspec.convert(value, hint, strict=True, dec_hook=_path)
    except (msgspec.ValidationError, ValueError):
        # A path may be a secret pasted in the wrong place: it is not repeated.
        shown = "something else" if _without_none(hint) is Path else _show(value)
        raise UsageError(f"{place.of(key)}: got {shown}; want {_describe(hint)}") from None


def _path(kind: type[Any], value: Any) -> Any:
    if kind is not Path or not isinstance(value, str) or not value or not value.isprintable():
        raise ValueError
    return Path(value).expanduser()


def _floats(value: Any) -> Iterator[float]:
    if isinstance(value, float):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _floats(item)


def _without_none(hint: Any) -> Any:
    """`X` for `X | None` and for `Annotated[X, ...]`; other hints unchanged."""
    if get_origin(hint) is Annotated:
        return _without_none(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        kinds = [kind for kind in get_args(hint) if kind is not type(None)]
        if len(kinds) == 1:
            return _without_none(kinds[0])
    return hint


def _show(value: Any) -> str:
    if isinstance(value, Mapping):
        return "a table"
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."


_PLAIN: dict[Any, str] = {
    int: "a whole number",
    float: "a finite number",
    str: "text",
    bool: "true or false",
    Path: "the path of a file or folder",
}
_BOUNDS: tuple[tuple[str, str], ...] = (
    ("gt", "above {}"),
    ("ge", "at least {}"),
    ("lt", "below {}"),
    ("le", "at most {}"),
    ("min_length", "with at least {} of them"),
)


def _describe(hint: Any) -> str:
    """Say in words what a type hint accepts."""
    origin = get_origin(hint)
    if origin is Annotated:
        kind, *metas = get_args(hint)
        return _describe_bounds(_describe(kind), metas)
    if origin is Literal:
        return " or ".join(repr(choice) for choice in get_args(hint))
    if origin in (Union, types.UnionType):
        return " or ".join(_describe(kind) for kind in get_args(hint) if kind is not type(None))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return " or ".join(repr(member.value) for member in hint)
    if origin is tuple:
        return f"a list (each item {_describe(get_args(hint)[0])})"
    return _PLAIN.get(hint, "a table")


def _describe_bounds(text: str, metas: list[Any]) -> str:
    for meta in metas:
        if meta.description is not None:
            return str(meta.description)
    bounds = [
        words.format(getattr(meta, name))
        for meta in metas
        for name, words in _BOUNDS
        if getattr(meta, name) is not None
    ]
    return " ".join([text, " and ".join(bounds)]).rstrip()
