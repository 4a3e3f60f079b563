"""Typed, exact record ids: one documented normal form, several key columns, duplicates by policy.

Normal form `colonnade-ids/1`. An id is a tuple with one value per key column, each column being
declared `text` or `integer`. The declared types are part of the name of the normal form
(`normaliser_id`), which both sides must agree on.

* `text` takes `str`: Unicode NFC, then outer white space (what `str.strip` takes for it) is
  removed. Nothing else changes: case, inner spaces, punctuation and leading zeros count, so `007`
  differs from `7`, and ` 7` equals `7`. Whole numbers become their decimal digits. Surrogates and
  code points unknown to this interpreter's Unicode version are refused, because only for assigned
  ones is NFC the same in every version.
* `integer` takes whole numbers of any size, and the same written in ASCII digits with an optional
  sign and an optional fraction of zeros (text files hold nothing else, and some programs write
  whole numbers so): there `007` and `7.0` are 7. A float counts if it is whole and at most 2^53 in
  size, where floats still hold every integer: 7.0 equals 7. Other floats, numbers with an
  exponent, booleans and dates are refused: convert them where the table is read.
* Missing values (None, NaN, empty or blank text) are refused in every column: as ids they would
  match each other.

Encoding, per column: type tag (1 byte), length (8 bytes, little-endian), value (UTF-8, or two's
complement little-endian in ⌊bits/8⌋ + 1 bytes). It decodes in one way only, so ("a,b", "c") and
("a", "b,c") never meet, nor do the text `7` and the integer 7.
"""

from __future__ import annotations

import contextlib
import operator
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError, UsageError

__all__ = [
    "NORMALISER",
    "DuplicatePolicy",
    "IdType",
    "KeptRows",
    "apply_duplicate_policy",
    "encode_ids",
    "normal_form",
    "normaliser_id",
]

NORMALISER = "colonnade-ids/1"

DuplicatePolicy = Literal["error", "first", "refuse_all"]

_LARGEST_EXACT_FLOAT = 2.0**53
# Lengths that int() takes; no id is longer.
_NUMERAL = re.compile(r"([+-]?[0-9]{1,1000})(?:\.0{0,1000})?")
_ROWS_NAMED = 5  # as many rows as a message lists


class IdType(StrEnum):
    """What one key column holds; the values are the words used in configuration files."""

    TEXT = "text"
    INTEGER = "integer"


_TYPE_TAGS = {IdType.TEXT: b"\x01", IdType.INTEGER: b"\x02"}


@dataclass(frozen=True, eq=False)
class KeptRows:
    """What a duplicate policy left.

    Attributes
        rows: positions of the kept rows, ascending, int64.
        repeated_ids: how many ids occurred more than once.
        dropped_rows: how many rows were left out for it.
    """

    rows: NDArray[np.int64] = field(repr=False)
    repeated_ids: int
    dropped_rows: int


def normaliser_id(types: Sequence[IdType]) -> str:
    """The negotiated name of the normal form, such as `colonnade-ids/1(text,integer)`."""
    return f"{NORMALISER}({','.join(_checked_types(types))})"


def normal_form(value: object, kind: IdType) -> str | int:
    """The normal form of one value of a key column: `str` for text, `int` for integer.

    Raises
        DataError: it has none; the message never shows the value.
    """
    return _text(value) if kind is IdType.TEXT else _integer(value)


def encode_ids(
    columns: Sequence[Sequence[object]],
    types: Sequence[IdType],
    where: str = "",
    *,
    names: Sequence[str] = (),
) -> list[bytes]:
    """Encode ids given as key columns of equal length to one `bytes` per row.

    `where` (a file) and `names` (of the columns) only serve the messages, which never show a value.

    Raises
        DataError: a value has no normal form; names file, column and row (counted from 0).
        UsageError: no columns, or columns, types and names do not fit together.
    """
    kinds = _checked_types(types)
    if len(columns) != len(kinds) or (names and len(names) != len(kinds)):
        raise UsageError(
            f"got {len(columns)} key columns, {len(kinds)} types and {len(names)} names;"
            " want one type (and one name, or no names) for each column"
        )
    if len({len(column) for column in columns}) != 1:
        raise UsageError(
            f"got key columns of {[len(column) for column in columns]} rows; want equal lengths"
        )
    encoded: list[list[bytes]] = []
    for position, (column, kind) in enumerate(zip(columns, kinds, strict=True)):
        name = f"column {names[position]!r}" if names else f"key column {position}"
        place = f"{where}, {name}" if where else name
        encoded.append(_encode_column(column, kind, place))
    return [b"".join(parts) for parts in zip(*encoded, strict=True)]


def apply_duplicate_policy(encoded: Sequence[bytes], policy: DuplicatePolicy) -> KeptRows:
    """Choose the rows that take part when ids repeat.

    `error` stops at any repeated id; `first` keeps its first row; `refuse_all` keeps none of its
    rows. Rows with an id of their own are always kept.

    Raises
        DataError: `error`, and an id repeats; names the first rows (counted from 0), not the ids.
        UsageError: unknown policy.
    """
    if policy not in ("error", "first", "refuse_all"):
        raise UsageError(f"got duplicate policy {policy!r}; want error, first or refuse_all")
    counts = Counter(encoded)
    repeated_ids = sum(count > 1 for count in counts.values())
    if repeated_ids and policy == "error":
        rows = [row for row, code in enumerate(encoded) if counts[code] > 1]
        listed = ", ".join(map(str, rows[:_ROWS_NAMED])) + (
            ", …" if len(rows) > _ROWS_NAMED else ""
        )
        raise DataError(
            f"got {repeated_ids} repeated ids in {len(rows)} rows ({listed}); want every id once;"
            " correct the table, or choose the duplicate policy `first` or `refuse_all`"
        )
    if policy == "refuse_all":
        kept = [row for row, code in enumerate(encoded) if counts[code] == 1]
    else:
        first_row: dict[bytes, int] = {}
        for row, code in enumerate(encoded):
            first_row.setdefault(code, row)
        kept = list(first_row.values())
    return KeptRows(np.array(kept, dtype=np.int64), repeated_ids, len(encoded) - len(kept))


def _checked_types(types: Sequence[IdType]) -> list[IdType]:
    known = ", ".join(IdType)
    if isinstance(types, str) or not types:
        raise UsageError(f"got id types {types!r}; want a sequence with one of {known} per column")
    try:
        return [IdType(kind) for kind in types]
    except ValueError:
        raise UsageError(
            f"got id types {list(map(str, types))}; want each one of {known}"
        ) from None


def _encode_column(column: Sequence[object], kind: IdType, place: str) -> list[bytes]:
    codes = []
    for row, value in enumerate(column):
        try:
            data = _to_bytes(normal_form(value, kind))
        except DataError as error:
            raise DataError(f"{place}, row {row}: {error}") from None
        codes.append(_TYPE_TAGS[kind] + len(data).to_bytes(8, "little") + data)
    return codes


def _to_bytes(value: str | int) -> bytes:
    if isinstance(value, str):
        return value.encode()
    return value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)


def _text(value: object) -> str:
    if not isinstance(value, str):
        return str(_index(value, "text"))
    if not value.isascii():
        if any(unicodedata.category(char) in ("Cn", "Cs") for char in value):
            raise DataError("got an unassigned or surrogate code point; want Unicode text")
        value = unicodedata.normalize("NFC", value)
    value = value.strip()
    if not value:
        raise _missing("text")
    return value


def _integer(value: object) -> int:
    if isinstance(value, str):
        if numeral := _NUMERAL.fullmatch(value.strip()):
            return int(numeral.group(1))
    elif isinstance(value, float) and value == value:  # numpy's float64 is one
        if not value.is_integer() or abs(value) > _LARGEST_EXACT_FLOAT:
            raise DataError(
                "got a float that is not whole or beyond 2^53; want a whole number;"
                " read the column as integers"
            )
        return int(value)
    return _index(value, "a whole number")


def _index(value: object, wanted: str) -> int:
    """What Python takes for a whole number, except truth values."""
    if value is None or (isinstance(value, float) and value != value):
        raise _missing(wanted)
    if isinstance(value, str) and not value.strip():
        raise _missing(wanted)
    if not isinstance(value, bool | np.bool_ | str | bytes):
        with contextlib.suppress(TypeError):
            return operator.index(value)  # type: ignore[arg-type]
    raise DataError(
        f"got an id of type {type(value).__name__} that is not {wanted}; want {wanted};"
        " convert the column, or declare its other type on both sides"
    )


def _missing(wanted: str) -> DataError:
    return DataError(f"the id is missing; want {wanted}; drop the row or fill it in")
