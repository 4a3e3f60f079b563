"""Fit once, save, apply identically at prediction: from a `Table` to `Features`.

The result is CSR where the layout says that less than half of the cells can be non-zero (one-hot
columns dominate) or the file was sparse, else dense. That depends on the fitted columns
alone, never on the rows at hand, so training and prediction agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, hstack, issparse

from colonnade.data.features import Features, Matrix
from colonnade.data.fitted import (
    Block,
    CategoricalColumn,
    FeatureColumn,
    NumberColumn,
)
from colonnade.data.fitted_sparse import SparseColumns
from colonnade.data.schema import SourceSpec
from colonnade.data.table import Table
from colonnade.errors import DataError, IntegrityError

__all__ = ["PreprocessReport", "Preprocessor"]

# CSR takes 12 bytes for a value and dense 8: at half full CSR is the smaller, and products skip
# the zeros.
_SPARSE_DENSITY = 0.5


@dataclass(frozen=True)
class PreprocessReport:
    """What happened to the cells of one table; counts by column, zero counts left out.

    imputed: missing numbers that were filled. clipped: numbers brought into range.
    unseen: cells in the "other" bucket: categories not seen at fit, rare, or too many.
    notes: what was noticed at fit (constant columns, pooled categories) and now.
    """

    rows: int
    columns: int
    imputed: Mapping[str, int] = field(default_factory=dict)
    clipped: Mapping[str, int] = field(default_factory=dict)
    unseen: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """The report for a person, a line each."""
        done = [
            f"column {name!r}: {count} {what}"
            for what, counts in (
                ("missing values filled", self.imputed),
                ("values clipped to the declared range", self.clipped),
                ("values pooled as other", self.unseen),
            )
            for name, count in counts.items()
        ]
        return [f"{self.rows} rows, {self.columns} feature columns", *self.notes, *done]


class Preprocessor(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The fitted columns, in order; immutable, saved as JSON."""

    version: Literal["colonnade-preprocessor/1"] = "colonnade-preprocessor/1"
    columns: tuple[NumberColumn | CategoricalColumn | SparseColumns, ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = [name for column in self.columns for name in column.source_names]
        if len(set(names)) != len(names):
            raise ValueError("a column occurs twice")
        sparse = sum(isinstance(column, SparseColumns) for column in self.columns)
        if sparse and len(self.columns) > 1:
            raise ValueError("sparse columns beside others")

    @classmethod
    def fit(cls, table: Table, spec: SourceSpec) -> Preprocessor:
        """Learn scaling, fill values and categories from the offered columns of `table`.

        Raises
            UsageError: `spec` does not fit the table (`SourceSpec.check`).
            DataError: no rows, or a cell that its column type or policy refuses; names the cell.
        """
        schema = spec.check(table)
        if not len(table):
            raise DataError(f"{table.source}: got no rows; want at least one to fit")
        if table.sparse is not None:
            return cls(columns=(SparseColumns.fit(table, schema.features, spec),))
        columns: list[NumberColumn | CategoricalColumn] = []
        notes = []
        for name in schema.features:
            if schema.kinds[name] == "categorical":
                category, pooled = CategoricalColumn.fit(table, name, spec)
                columns.append(category)
                if pooled:
                    notes.append(f"column {name!r}: {pooled} categories pooled as other")
            else:
                whole = schema.kinds[name] == "whole"
                columns.append(number := NumberColumn.fit(table, name, whole, spec))
                if number.scale == 0.0:
                    notes.append(f"column {name!r}: constant, so it is 0 everywhere; exclude it")
        return cls(columns=tuple(columns), notes=tuple(notes))

    def declare(self) -> list[FeatureColumn]:
        """The feature columns that `transform` returns: name, whole, range."""
        return [declared for column in self.columns for declared in column.declare()]

    def transform(self, table: Table) -> tuple[Features, PreprocessReport]:
        """Turn the rows of `table` into features; other columns of the table are ignored.

        Raises
            DataError: a column is absent, or a cell is refused; names file, row and column.
        """
        blocks = [column.apply(table) for column in self.columns]
        declared = self.declare()
        features = Features(
            values=self._join(blocks, len(table), len(declared)),
            names=tuple(column.name for column in declared),
            whole=tuple(column.whole for column in declared),
            max_abs=tuple(column.max_abs for column in declared),
            source=table.source,
            row_numbers=table.row_numbers,
        )
        return features, self._report(blocks, table, len(declared))

    def to_json(self) -> bytes:
        """Encode; `from_json` gives an equal preprocessor, to the last bit."""
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, data: bytes) -> Preprocessor:
        """Decode what `to_json` wrote.

        Raises
            IntegrityError: not exactly such a document.
        """
        try:
            return msgspec.json.decode(data, type=cls, strict=True)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise IntegrityError(f"got a malformed preprocessor: {error}") from None

    def _join(self, blocks: list[Block], rows: int, width: int) -> Matrix:
        # A number column fills every row of its one feature, a categorical one of its many.
        full = len(blocks) if not any(isinstance(c, SparseColumns) for c in self.columns) else 0
        if width and full < _SPARSE_DENSITY * width:
            joined: Any = hstack([csr_matrix(block.values) for block in blocks], format="csr")
            joined.sum_duplicates()  # sorts, too
            return joined
        dense = [_dense(block.values) for block in blocks]
        return np.hstack(dense) if dense else np.zeros((rows, 0))

    def _report(self, blocks: list[Block], table: Table, width: int) -> PreprocessReport:
        def count(what: str) -> dict[str, int]:
            counts = zip(self.columns, (getattr(block, what) for block in blocks), strict=True)
            return {
                table.source if isinstance(column, SparseColumns) else column.name: number
                for column, number in counts
                if number
            }

        notes = list(self.notes)
        known = {name for column in self.columns for name in column.source_names}
        unknown = len(set(table.sparse_names) - known)
        if unknown:
            notes.append(f"{table.source}: {unknown} columns are not used")
        return PreprocessReport(
            rows=len(table),
            columns=width,
            imputed=count("imputed"),
            clipped=count("clipped"),
            unseen=count("unseen"),
            notes=tuple(notes),
        )


def _dense(values: Any) -> NDArray[np.float64]:
    dense: NDArray[np.float64] = values.toarray() if issparse(values) else values
    return dense
