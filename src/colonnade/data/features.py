"""What the protocol layer takes from the data: numbers in declared ranges, checked once, here.

Every `Features` that exists is finite, canonical and within its declaration. The declaration
(`whole`, `max_abs`, the number of columns) is public to the other side; the values are not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, issparse

from colonnade.data.table import describe_place
from colonnade.errors import DataError, UsageError

__all__ = ["MAX_RANGE", "Features", "Matrix", "next_power_of_two"]

# The largest range that fixed point accepts for a column (`colonnade.ring.fixed`): with more, the
# products of a layer no longer fit 64 bits.
MAX_RANGE = 2.0**15

Matrix: TypeAlias = NDArray[np.float64] | csr_matrix


@dataclass(frozen=True, eq=False)
class Features:
    """The feature matrix of one party.

    values: float64 (rows, columns), dense, or CSR in canonical form (sorted, no duplicates).
    names: one per column; unicode.
    whole: True where every value of the column is a whole number by declaration (fixed-point
        scale 0, which makes products with it additions).
    max_abs: declared range per column, |value| <= max_abs, a power of two.
    source, row_numbers: file name and int64 (rows,) 1-based numbers in it, for messages.

    Raises
        UsageError: shapes, dtype or declaration do not fit together.
        DataError: a value is not finite, not whole or out of its declared range; names the cell.
    """

    values: Matrix = field(repr=False)
    names: tuple[str, ...]
    whole: tuple[bool, ...]
    max_abs: tuple[float, ...]
    source: str
    row_numbers: NDArray[np.int64] = field(repr=False)

    def __post_init__(self) -> None:
        self._check_form()
        self._check_values()

    def __len__(self) -> int:
        return int(self.values.shape[0])

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return int(self.values.shape[1])

    @property
    def nnz(self) -> int:
        """Number of values that are not zero."""
        sparse = _as_sparse(self.values)
        return int(np.count_nonzero(self.values if sparse is None else sparse.data))

    def take(self, rows: NDArray[np.int64]) -> Features:
        """Return the rows at these 0-based positions, in this order."""
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < len(self):
            raise UsageError(f"got row positions outside the {len(self)} rows of {self.source}")
        return Features(
            values=self.values[rows],
            names=self.names,
            whole=self.whole,
            max_abs=self.max_abs,
            source=self.source,
            row_numbers=self.row_numbers[rows],
        )

    def _check_form(self) -> None:
        sparse = _as_sparse(self.values)
        if sparse is not None and not (sparse.format == "csr" and sparse.has_canonical_format):
            raise UsageError("got a sparse matrix; want CSR in canonical form; call sum_duplicates")
        if self.values.ndim != 2 or self.values.dtype != np.float64:
            got = f"{self.values.ndim} dimensions of {self.values.dtype}"
            raise UsageError(f"got {got} as features; want 2 of float64")
        if len(self.row_numbers) != len(self):
            raise UsageError(f"got {len(self.row_numbers)} row numbers for {len(self)} rows")
        for what in ("names", "whole", "max_abs"):
            count = len(getattr(self, what))
            if count != self.n_columns:
                raise UsageError(f"got {count} {what} for {self.n_columns} columns")
        for name, bound in zip(self.names, self.max_abs, strict=True):
            if not (0 < bound <= MAX_RANGE and math.frexp(bound)[0] == 0.5):
                want = f"a power of two up to {MAX_RANGE:g}"
                raise UsageError(f"got max_abs {bound} for column {name!r}; want {want}")

    def _check_values(self) -> None:
        sparse = _as_sparse(self.values)
        values = self.values if sparse is None else sparse.data
        columns = slice(None) if sparse is None else sparse.indices
        bound = np.asarray(self.max_abs, dtype=np.float64)[columns]
        whole = np.asarray(self.whole, dtype=np.bool_)[columns]
        bad = ~(np.abs(values) <= bound)  # "not at most" is true of NaN as well
        if whole.any():
            bad |= whole & (values != np.rint(values))
        if bad.any():
            self._refuse(int(np.flatnonzero(bad)[0]))

    def _refuse(self, position: int) -> NoReturn:
        """Complain of the value at this position of the dense matrix or of the stored values."""
        sparse = _as_sparse(self.values)
        if sparse is not None:
            row = int(np.searchsorted(sparse.indptr, position, side="right")) - 1
            column, value = int(sparse.indices[position]), float(sparse.data[position])
        else:
            row, column = divmod(position, self.n_columns)
            value = float(self.values[row, column])
        place = describe_place(self.source, int(self.row_numbers[row]), self.names[column])
        bound = self.max_abs[column]
        if abs(value) <= bound:
            raise DataError(
                f"{place}: got {value:.6g}; want a whole number; correct it, or declare the column "
                "numeric"
            )
        if not math.isfinite(value):
            raise DataError(f"{place}: got {value}; want a finite number")
        raise DataError(
            f"{place}: got {value:.6g}; want at most {bound:g} in absolute value, the range "
            "declared for the column after scaling; declare a larger one, or set clip = true"
        )


def _as_sparse(values: Matrix) -> Any:
    """Return a sparse matrix as it is and None for a dense one, for scipy's lack of types."""
    return values if issparse(values) else None


def next_power_of_two(value: float) -> float:
    """Return the smallest power of two that is at least `value`, and at least 1."""
    mantissa, exponent = math.frexp(max(value, 1.0))
    return math.ldexp(1.0, exponent - (mantissa == 0.5))
