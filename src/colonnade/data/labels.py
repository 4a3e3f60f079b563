"""Class labels as people write them, into 0 .. k-1.

Two classes are what a binary model takes: 0/1, -1/1, 1/2 and any other two numbers (the larger is
positive), true/false and yes/no in any case, or any two texts (the later one in sorted order is
positive, unless stated). Values compare as categories do (`colonnade.data.cells`), numbers by
value: "1", 1 and 1.0 are one class.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from colonnade.data.cells import category_key
from colonnade.data.table import describe_place, nearest_name
from colonnade.errors import DataError, IntegrityError, UsageError

__all__ = ["LabelMapping"]

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_ANY_CASE = frozenset({"true", "false", "yes", "no"})
# A message lists as many classes as a person reads.
_CLASSES_SHOWN = 5


class LabelMapping(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The classes in the order of their codes; with two, the second is the positive one."""

    version: Literal["colonnade-labels/1"] = "colonnade-labels/1"
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.classes) < 2 or len(set(self.classes)) != len(self.classes):
            raise ValueError("fewer than two different classes")

    def __str__(self) -> str:
        codes = range(len(self.classes))
        order = reversed(codes) if len(self.classes) == 2 else codes
        return ", ".join(f"{self.classes[code]!r} -> {code}" for code in order)

    @classmethod
    def fit(
        cls,
        values: Sequence[object] | NDArray[Any],
        *,
        positive: str | None = None,
        multiclass: bool = False,
        source: str = "labels",
        row_numbers: NDArray[np.int64] | None = None,
    ) -> LabelMapping:
        """Find the classes of `values` (text, numbers or booleans).

        positive: which of two classes is 1. multiclass: more than two classes are allowed.
        source, row_numbers: only serve messages.

        Raises
            DataError: a label is missing; one class only; more than two without `multiclass`.
            UsageError: `positive` is not one of two classes.
        """
        keys = _keys(values, source, row_numbers)
        classes = sorted(set(keys), key=_order)
        if len(classes) < 2:
            got = f"one class only, {classes[0]!r}" if classes else "no labels"
            raise DataError(f"{source}: got {got}; want at least two classes")
        if len(classes) > 2 and not multiclass:
            shown = ", ".join(map(repr, classes[:_CLASSES_SHOWN]))
            more = ", ..." if len(classes) > _CLASSES_SHOWN else ""
            raise DataError(
                f"{source}: got {len(classes)} classes ({shown}{more}); want two; "
                "choose another label column, or a model for several classes"
            )
        if positive is not None:
            key = _label_key(positive)
            if len(classes) != 2 or key not in classes:
                hint = nearest_name(positive, classes)
                got = f"{source}: got the positive class {positive!r}"
                raise UsageError(f"{got}; want one of the two classes of a binary label{hint}")
            classes.sort(key=lambda name: name == key)
        return cls(classes=tuple(classes))

    def transform(
        self,
        values: Sequence[object] | NDArray[Any],
        source: str = "labels",
        row_numbers: NDArray[np.int64] | None = None,
    ) -> NDArray[np.int64]:
        """Return the code of each label, int64 (rows,).

        Raises
            DataError: a label is missing or not one of the classes; names file and row.
        """
        codes = {name: code for code, name in enumerate(self.classes)}
        keys = _keys(values, source, row_numbers)
        for position, key in enumerate(keys):
            if key not in codes:
                known = ", ".join(map(repr, self.classes[:_CLASSES_SHOWN]))
                place = _place(position, source, row_numbers)
                raise DataError(f"{place}: got the label {key[:40]!r}; want one of {known}")
        return np.array([codes[key] for key in keys], dtype=np.int64)

    def to_json(self) -> bytes:
        """Encode for a run folder."""
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, data: bytes) -> LabelMapping:
        """Decode what `to_json` wrote.

        Raises
            IntegrityError: not exactly such a document.
        """
        try:
            return msgspec.json.decode(data, type=cls, strict=True)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise IntegrityError(f"got a malformed label mapping: {error}") from None


def _keys(
    values: Sequence[object] | NDArray[Any], source: str, row_numbers: NDArray[np.int64] | None
) -> list[str]:
    cells = values.tolist() if isinstance(values, np.ndarray) else list(values)
    known = {cell: _label_key(cell) for cell in set(cells)}
    keys = []
    for position, cell in enumerate(cells):
        key = known[cell]
        if key is None:
            place = _place(position, source, row_numbers)
            raise DataError(f"{place}: the label is missing; fill it in or drop the row")
        keys.append(key)
    return keys


def _label_key(cell: object) -> str | None:
    key = category_key(cell)
    if key is None:
        return None
    if _NUMBER.fullmatch(key):
        return category_key(float(key))
    return key.casefold() if key.casefold() in _ANY_CASE else key


def _order(key: str) -> tuple[int, float, str]:
    """Sort numbers by value, before text."""
    return (0, float(key), key) if _NUMBER.fullmatch(key) else (1, 0.0, key)


def _place(position: int, source: str, row_numbers: NDArray[np.int64] | None) -> str:
    number = position + 1 if row_numbers is None else int(row_numbers[position])
    return describe_place(source, number)
