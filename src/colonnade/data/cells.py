"""What a single cell means: missing, a number, a category.

The same rules serve type inference, fitting and prediction, so a value never changes its meaning
between them. Missing are null, NaN and, in any case and with white space around, the texts of
`MISSING_MARKERS`.
"""

from __future__ import annotations

import unicodedata
from typing import NoReturn

import numpy as np
import polars as pl
from numpy.typing import NDArray

from colonnade.data.table import Table
from colonnade.errors import DataError

__all__ = ["MISSING_MARKERS", "category_key", "category_keys", "parse_numbers", "reads_as_numbers"]

MISSING_MARKERS = frozenset({"", "na", "nan", "null", "?"})

# Sums and squares of anything smaller stay finite after scaling by a power of two.
_HUGE = 1e300


def reads_as_numbers(column: pl.Series) -> bool:
    """Say whether every value that is not missing parses as a number."""
    if column.dtype != pl.String:
        return True
    _, text = _parse_text(column)
    return not text.any()


def parse_numbers(table: Table, name: str) -> NDArray[np.float64]:
    """Return a column as float64 (rows,), NaN where the value is missing.

    Raises
        DataError: text, infinity or a magnitude above 1e300; names file, row and column.
    """
    column = table.column(name)
    if column.dtype == pl.String:
        values, text = _parse_text(column)
        if text.any():
            _refuse(table, name, int(np.flatnonzero(text)[0]), "want a number")
    else:
        values = column.cast(pl.Float64).fill_null(float("nan")).to_numpy()
    huge = np.abs(values) > _HUGE
    if huge.any():
        _refuse(table, name, int(np.flatnonzero(huge)[0]), f"want a finite number below {_HUGE}")
    return np.array(values, dtype=np.float64)


def category_keys(column: pl.Series) -> list[str | None]:
    """Return the category of each cell of a column, None where missing (see `category_key`)."""
    cells = column.to_list()
    keys = {cell: category_key(cell) for cell in set(cells)}
    return [keys[cell] for cell in cells]


def category_key(cell: object) -> str | None:
    """Return the category of one cell, None if it is missing.

    Text is compared in Unicode NFC without outer white space, case matters; numbers by value, so
    that 3 and 3.0 are one category; booleans are "true" and "false".
    """
    if cell is None:
        return None
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, float):
        if cell != cell:
            return None
        return str(int(cell)) if cell.is_integer() else repr(cell)
    text = unicodedata.normalize("NFC", str(cell)).strip()
    return None if text.casefold() in MISSING_MARKERS else text


def _parse_text(column: pl.Series) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Parse text cells; return (values with NaN for missing, where text is not a number)."""
    stripped = column.str.strip_chars()
    missing = stripped.is_null() | stripped.str.to_lowercase().is_in(sorted(MISSING_MARKERS))
    numbers = stripped.cast(pl.Float64, strict=False)
    text = (numbers.is_null() & ~missing).to_numpy()
    return numbers.fill_null(float("nan")).to_numpy(), text


def _refuse(table: Table, name: str, position: int, want: str) -> NoReturn:
    cell = str(table.column(name)[position])
    raise DataError(f"{table.where(position, name)}: got {cell[:40]!r}; {want}")
