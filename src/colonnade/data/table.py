"""A table as it was read: columns nobody has interpreted yet, and where each row came from.

Cells of a CSV file stay text here, so that ids such as `007` and ` 7` survive; what a column means
is decided by the schema (`colonnade.data.schema`). A LIBSVM file stays sparse. Messages name file,
row and column through `Table.where`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from colonnade.errors import DataError, UsageError

__all__ = ["Table", "describe_place", "nearest_name"]


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of one file.

    source: file name for messages.
    row_numbers: int64 (rows,), 1-based; the line on which a record of a text file starts, the
        record's position in a Parquet file.
    frame: polars columns of text, whole numbers, floats or booleans; no columns if sparse.
    sparse: float64 CSR (rows, columns) in canonical form, or None.
    sparse_names: names of the sparse columns: their index as written in the file.
    labels: float64 (rows,), the first field of each LIBSVM line, or None.
    """

    source: str
    row_numbers: NDArray[np.int64] = field(repr=False)
    frame: pl.DataFrame = field(repr=False)
    sparse: Any = field(default=None, repr=False)
    sparse_names: tuple[str, ...] = ()
    labels: NDArray[np.float64] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.row_numbers)

    @property
    def names(self) -> tuple[str, ...]:
        """Column names in file order."""
        return self.sparse_names if self.sparse is not None else tuple(self.frame.columns)

    def column(self, name: str) -> pl.Series:
        """Return one column of a table that is not sparse.

        Raises
            DataError: there is no such column; names the nearest one.
        """
        if name not in self.frame.columns:
            hint = nearest_name(name, self.frame.columns)
            raise DataError(f"{self.source}: got no column {name!r}{hint}")
        return self.frame.get_column(name)

    def take(self, rows: NDArray[np.int64]) -> Table:
        """Return the rows at these 0-based positions, in this order."""
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < len(self):
            raise UsageError(f"got row positions outside the {len(self)} rows of {self.source}")
        return Table(
            source=self.source,
            row_numbers=self.row_numbers[rows],
            frame=self.frame[rows] if self.frame.width else self.frame,
            sparse=None if self.sparse is None else self.sparse[rows],
            sparse_names=self.sparse_names,
            labels=None if self.labels is None else self.labels[rows],
        )

    def where(self, position: int, column: str | None = None) -> str:
        """Name the place of one cell (or row) for a message; `position` is 0-based."""
        return describe_place(self.source, int(self.row_numbers[position]), column)


def describe_place(source: str, row_number: int, column: str | None = None) -> str:
    """Return "file, row N, column 'name'", the way every message of this package names a cell."""
    place = f"{source}, row {row_number}"
    return place if column is None else f"{place}, column {column!r}"


def nearest_name(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" for the known name closest to `name`, or an empty string."""
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {matches[0]!r}?" if matches else ""
