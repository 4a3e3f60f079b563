"""Fixed point: how real numbers enter and leave the rings, always rounded to nearest.

A real v is round(v * 2^f). Range and finiteness are checked here, where a float enters; the error
names file, column, row and value. Feature columns carry their own scale: f = 0 for whole numbers
(one-hot columns and counts then cost additions only), else 16.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from colonnade.errors import DataError, UsageError
from colonnade.ring.z128 import Z128

__all__ = [
    "DERIVATIVE_BITS",
    "FEATURE_BITS",
    "OPERAND_BITS",
    "WEIGHT_BITS",
    "FixedMatrix",
    "PublicConstant",
    "decode_z64",
    "encode_int64",
    "encode_z128",
    "round_shift_z64_copy",
]

# Weights and optimiser state at 40 bits track a float64 twin to 4e-7 on a9a; 24 bits
# for operands and 32 for derivatives keep products small enough for many slots a plaintext.
WEIGHT_BITS = 40
OPERAND_BITS = 24
DERIVATIVE_BITS = 32
FEATURE_BITS = 16

_CONSTANT_BITS = 24


@dataclass(frozen=True)
class PublicConstant:
    """A public real with 24 significant bits: value = mantissa / 2^shift (learning rate, ...)."""

    mantissa: int
    shift: int

    @classmethod
    def from_float(cls, value: float) -> PublicConstant:
        """Round `value` to 24 significant bits.

        Raises
            UsageError: not finite, or its magnitude is outside 2^-39 .. 2^24.
        """
        if not np.isfinite(value):
            raise UsageError(f"got the constant {value}; want a finite number")
        if value == 0.0:
            return cls(0, 0)
        _, exponent = np.frexp(value)
        shift = _CONSTANT_BITS - int(exponent)
        if not 0 <= shift < 63:
            raise UsageError(f"got the constant {value:g}; want a magnitude in 2^-39 .. 2^24")
        return cls(round(value * 2.0**shift), shift)

    @classmethod
    def nearest(cls, value: float) -> PublicConstant:
        """Round to 24 significant bits, or to fewer where the magnitude is below 2^-39.

        For a factor that decays for ever: it goes to zero instead of out of range.

        Raises
            UsageError: not finite, or a magnitude of 2^24 or more.
        """
        if 0.0 < abs(value) < 2.0**-39:
            return cls(round(value * 2.0**62), 62)
        return cls.from_float(value)

    @property
    def value(self) -> float:
        """The rounded value, exact in float64."""
        return self.mantissa * 2.0**-self.shift

    def apply(self, tensor: Z128) -> Z128:
        """Multiply a fixed-point tensor by this constant, keeping its scale (local truncation)."""
        return tensor.times(self.mantissa).round_shift(self.shift)


@dataclass(frozen=True)
class FixedMatrix:
    """A private feature matrix in fixed point.

    values: int64 (rows, columns), dense or CSR without stored zeros.
    scale_bits: int64 (columns,), 0 for whole-number columns, else 16. Public.
    bounds: int64 (columns,), |values[:, k]| <= bounds[k] by declaration. Public.
    """

    values: NDArray[np.int64] | sp.csr_matrix
    scale_bits: NDArray[np.int64]
    bounds: NDArray[np.int64]

    @classmethod
    def encode(
        cls,
        values: Any,
        whole: Sequence[bool],
        max_abs: Sequence[float],
        names: Sequence[str] | None = None,
        where: str = "features",
        row_numbers: NDArray[np.int64] | None = None,
    ) -> FixedMatrix:
        """Encode float64 features.

        Parameters: values (rows, columns) dense or CSR; whole and max_abs per column: the declared
        kind and range; names, where and row_numbers only serve messages.

        Raises
            DataError: NaN, infinite, outside the declared range, or not whole where declared so;
            names file, row, column and value.
        """
        scale = np.where(np.asarray(whole, dtype=bool), 0, FEATURE_BITS).astype(np.int64)
        limit = np.asarray(max_abs, dtype=np.float64)
        if values.ndim != 2 or values.shape[1] != len(scale) or len(limit) != len(scale):
            raise UsageError(
                f"got features of shape {values.shape}, {len(scale)} kinds and {len(limit)} "
                "ranges; want one of each per column"
            )
        if not bool(np.all(np.isfinite(limit) & (limit > 0) & (limit <= 2.0**15))):
            raise UsageError("declared ranges must be positive and at most 32768")
        sparse = sp.issparse(values)
        if sparse and not values.has_canonical_format:
            # Stored duplicates add up: each could be in range while their sum is not.
            values = values.copy()
            values.sum_duplicates()
        data = np.asarray(values.data if sparse else values, dtype=np.float64)
        columns = values.indices if sparse else np.arange(values.shape[1])
        bad = ~np.isfinite(data) | (np.abs(data) > limit[columns])
        bad |= (scale[columns] == 0) & (data != np.rint(data))
        if bool(bad.any()):
            raise DataError(_complaint(values, bad, scale, limit, names, where, row_numbers))
        integers = np.rint(data * np.exp2(scale[columns])).astype(np.int64)
        bounds = np.ceil(limit * np.exp2(scale)).astype(np.int64)
        if not sparse:
            return cls(integers.reshape(values.shape), scale, bounds)
        # Dropping what rounded to zero rewrites the index arrays: never the caller's.
        places = (values.indices.copy(), values.indptr.copy())
        matrix = sp.csr_matrix((integers, *places), shape=values.shape)
        matrix.eliminate_zeros()
        return cls(matrix, scale, bounds)

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self.values.shape[0], self.values.shape[1]

    def __len__(self) -> int:
        return int(self.values.shape[0])

    def __repr__(self) -> str:
        return f"FixedMatrix(shape={self.shape}, <redacted>)"

    def take(self, rows: NDArray[np.int64]) -> FixedMatrix:
        """The given rows, in the given order."""
        return FixedMatrix(self.values[rows], self.scale_bits, self.bounds)

    def csr(self) -> sp.csr_matrix:
        """int64 CSR form with sorted indices."""
        if sp.issparse(self.values):
            return self.values
        return sp.csr_matrix(self.values)

    def decode(self) -> Any:
        """float64 values as the protocol sees them (rounded), dense or CSR."""
        factor = np.exp2(-self.scale_bits.astype(np.float64))
        if sp.issparse(self.values):
            return self.values.astype(np.float64) @ sp.diags(factor)
        return self.values.astype(np.float64) * factor


def _complaint(
    values: Any,
    bad: NDArray[np.bool_],
    scale: NDArray[np.int64],
    limit: NDArray[np.float64],
    names: Sequence[str] | None,
    where: str,
    row_numbers: NDArray[np.int64] | None,
) -> str:
    first = int(np.flatnonzero(bad.reshape(-1))[0])
    if sp.issparse(values):
        row = int(np.searchsorted(values.indptr, first, side="right")) - 1
        column, value = int(values.indices[first]), float(values.data[first])
    else:
        row, column = divmod(first, values.shape[1])
        value = float(values[row, column])
    name = names[column] if names is not None else str(column)
    number = int(row_numbers[row]) if row_numbers is not None else row + 1
    want = f"a whole number with |value| <= {limit[column]:g}"
    if scale[column]:
        want = f"a finite number with |value| <= {limit[column]:g}"
    return f"{where}, row {number}, column {name!r}: got {value:g}; want {want}"


def encode_int64(
    values: NDArray[np.float64], scale_bits: int, max_abs: float, what: str
) -> NDArray[np.int64]:
    """Encode reals to int64 at `scale_bits`, checking |value| <= max_abs.

    Raises
        DataError: not finite or out of range; names `what`.
    """
    if max_abs * 2.0**scale_bits >= 2.0**62:
        raise UsageError(f"got a range of {max_abs:g} at {scale_bits} bits; want less than 2^62")
    if values.size and not bool(np.all(np.abs(values) <= max_abs)):
        worst = float(np.max(np.abs(values)))
        raise DataError(f"got {what} of magnitude {worst:g}; want at most {max_abs:g}")
    return np.rint(values * 2.0**scale_bits).astype(np.int64)


def encode_z128(values: NDArray[np.float64], scale_bits: int, what: str) -> Z128:
    """Encode reals of magnitude below 2^20 to Z_2^128 at `scale_bits`."""
    return Z128.from_int64(encode_int64(values, scale_bits, 2.0**20, what))


def decode_z64(values: NDArray[np.uint64], scale_bits: int) -> NDArray[np.float64]:
    """Read Z_2^64 elements as two's complement fixed point."""
    return values.view(np.int64).astype(np.float64) * 2.0**-scale_bits


def round_shift_z64_copy(weights: Z128, shift_rows: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Operand copy of a weight (share): scale 40 -> 24, then row k times 2^shift_rows[k], mod 2^64.

    weights: Z128 (columns, outputs). Local truncation on Z_2^128 shares, exact on small values.
    """
    copy = weights.round_shift(WEIGHT_BITS - OPERAND_BITS).to_z64()
    return copy << shift_rows.astype(np.uint64)[:, None]
