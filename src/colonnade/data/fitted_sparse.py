"""What was learned from the columns of a sparse file at fit; they are never made dense."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from scipy.sparse import csr_matrix

from colonnade.data.features import MAX_RANGE, next_power_of_two
from colonnade.data.fitted import (
    DEFAULT_RANGE,
    Block,
    FeatureColumn,
    Range,
    Scale,
    clip_and_count,
)
from colonnade.data.schema import EVERY_COLUMN, SourceSpec
from colonnade.data.table import Table
from colonnade.errors import DataError

__all__ = ["SparseColumns"]


class SparseColumns(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="sparse"):
    """The offered columns of a sparse file, divided by `scale` and never made dense.

    whole: all values were whole at fit and stay unscaled; a column's range is then 1 unless it is
        declared. Ranges are public, so none is ever read off the values.
    """

    names: tuple[str, ...]
    whole: bool
    scale: tuple[Scale, ...]
    max_abs: tuple[Range, ...]
    clip: bool

    def __post_init__(self) -> None:
        if not len(self.names) == len(self.scale) == len(self.max_abs):
            raise ValueError("sparse columns with unequal numbers of names, scales and ranges")

    @classmethod
    def fit(cls, table: Table, names: tuple[str, ...], spec: SourceSpec) -> SparseColumns:
        """Learn the kind, scale and range of the columns.

        Raises
            DataError: a whole value beyond 1 in a column without a declared range; names the cell.
        """
        matrix = _select(table, names)
        whole = spec.scaling == "none" and bool((matrix.data == np.rint(matrix.data)).all())
        scale, max_abs = np.ones(len(names)), 1.0
        if spec.scaling == "maxabs":
            scale = np.zeros(len(names))
            np.maximum.at(scale, matrix.indices, np.abs(matrix.data))
        elif not whole:
            max_abs = DEFAULT_RANGE
        elif EVERY_COLUMN not in spec.ranges:
            _check_binary(matrix, table, names, spec)
        fallback = spec.ranges.get(EVERY_COLUMN, max_abs)
        ranges = (next_power_of_two(spec.ranges.get(name, fallback)) for name in names)
        return cls(
            names=names,
            whole=whole,
            scale=tuple(scale.tolist()),
            max_abs=tuple(ranges),
            clip=spec.clip or spec.scaling == "maxabs",
        )

    @property
    def source_names(self) -> tuple[str, ...]:
        """The columns of the file that this reads."""
        return self.names

    def declare(self) -> list[FeatureColumn]:
        """The feature columns that `apply` returns."""
        ranges = zip(self.names, self.max_abs, strict=True)
        return [FeatureColumn(name, self.whole, max_abs) for name, max_abs in ranges]

    def apply(self, table: Table) -> Block:
        """Turn the columns of `table` into features, CSR; columns that it lacks are zero."""
        matrix = _select(table, self.names)
        scale = np.array(self.scale)[matrix.indices]
        bound = np.array(self.max_abs)[matrix.indices]
        values = np.zeros_like(matrix.data)
        with np.errstate(over="ignore"):  # infinity is clipped here or refused by Features
            np.divide(matrix.data, scale, out=values, where=scale > 0.0)
        clipped = 0
        if self.clip:
            values, clipped = clip_and_count(values, -bound, bound)
        matrix.data = values
        matrix.eliminate_zeros()
        return Block(matrix, clipped=clipped)


def _select(table: Table, names: tuple[str, ...]) -> Any:
    """Return the named columns of a sparse table as CSR, not sorted, zero where it lacks them."""
    if table.sparse is None:
        raise DataError(f"{table.source}: got a table with columns; want a LIBSVM file as at fit")
    matrix, target = table.sparse, {name: index for index, name in enumerate(names)}
    moved = np.array([target.get(name, -1) for name in table.sparse_names], dtype=np.int64)
    indices = moved[matrix.indices]
    kept = indices >= 0
    ends = np.concatenate(([0], np.cumsum(kept)))[matrix.indptr]
    return csr_matrix((matrix.data[kept], indices[kept], ends), shape=(len(table), len(names)))


def _check_binary(matrix: Any, table: Table, names: tuple[str, ...], spec: SourceSpec) -> None:
    """Refuse whole numbers beyond 1 where no range is declared, and say which would do."""
    undeclared = np.array([name not in spec.ranges for name in names], dtype=np.bool_)
    large = undeclared[matrix.indices] & (np.abs(matrix.data) > 1.0)
    if not large.any():
        return
    first = int(np.flatnonzero(large)[0])
    row = int(np.searchsorted(matrix.indptr, first, side="right")) - 1
    bound = next_power_of_two(float(np.abs(matrix.data[large]).max()))
    advice = f'set ranges."{EVERY_COLUMN}", {bound:g} would hold all (it is public)'
    if bound > MAX_RANGE:
        advice = f'{MAX_RANGE:g} is the largest; set scaling = "maxabs"'
    raise DataError(
        f"{table.where(row, names[matrix.indices[first]])}: got a whole number beyond 1; want a "
        f"declared range; {advice}"
    )
