"""Tensors over Z_2^128, each element two 64-bit limbs; the home of weights and their updates.

Elements are read as two's complement where a sign matters (rounding, conversion to float). All
rounding is to nearest: half a unit is added before a shift, since floor's bias of one unit a step
adds up (measured: 1.4e-4 per epoch of a9a and growing, against 4e-7 and flat).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import UsageError

__all__ = ["Z128"]

U64 = NDArray[np.uint64]
_MASK32 = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_63 = np.uint64(63)


@dataclass(frozen=True)
class Z128:
    """A tensor over Z_2^128: element = lo + 2^64 hi. Both arrays are uint64 of the same shape."""

    lo: U64
    hi: U64

    def __post_init__(self) -> None:
        if self.lo.shape != self.hi.shape or self.lo.dtype != np.uint64:
            raise UsageError(f"got limbs of shapes {self.lo.shape} and {self.hi.shape}")

    # -- making and taking apart ---------------------------------------------------------------

    @classmethod
    def zeros(cls, shape: tuple[int, ...]) -> Z128:
        """All zeros."""
        return cls(np.zeros(shape, np.uint64), np.zeros(shape, np.uint64))

    @classmethod
    def from_int64(cls, values: NDArray[np.int64]) -> Z128:
        """Sign-extend int64 values."""
        return cls(values.astype(np.uint64), (values >> 63).astype(np.uint64))

    @classmethod
    def from_ints(cls, values: Sequence[int], shape: tuple[int, ...]) -> Z128:
        """Reduce Python integers of any size and sign mod 2^128."""
        raw = b"".join((v & ((1 << 128) - 1)).to_bytes(16, "little") for v in values)
        return cls.from_bytes(raw, shape)

    @classmethod
    def from_bytes(cls, raw: bytes, shape: tuple[int, ...]) -> Z128:
        """Read 16 little-endian bytes per element."""
        limbs = np.frombuffer(raw, dtype="<u8").astype(np.uint64).reshape(*shape, 2)
        return cls(limbs[..., 0].copy(), limbs[..., 1].copy())

    def to_bytes(self) -> bytes:
        """16 little-endian bytes per element, in C order."""
        return self.to_limbs().astype("<u8").tobytes()

    def to_limbs(self) -> U64:
        """The array (..., 2) of both limbs, low first (what is saved)."""
        return np.stack([self.lo, self.hi], axis=-1)

    @classmethod
    def from_limbs(cls, limbs: U64) -> Z128:
        """Inverse of `to_limbs`."""
        return cls(limbs[..., 0].copy(), limbs[..., 1].copy())

    def to_ints(self) -> list[int]:
        """Signed Python integers in C order."""
        high = self.hi.view(np.int64).reshape(-1).tolist()
        return [(h << 64) + lo for h, lo in zip(high, self.lo.reshape(-1).tolist(), strict=True)]

    def to_float(self, scale_bits: int) -> NDArray[np.float64]:
        """Decode signed fixed point to float64 (only for values that are opened)."""
        negative = (self.hi >> _63).astype(bool)
        magnitude = Z128(
            np.where(negative, (-self).lo, self.lo), np.where(negative, (-self).hi, self.hi)
        )
        value = magnitude.hi.astype(np.float64) * 2.0**64 + magnitude.lo.astype(np.float64)
        return np.where(negative, -value, value) * 2.0**-scale_bits

    def to_z64(self) -> U64:
        """Reduce mod 2^64."""
        return self.lo.copy()

    # -- shape -----------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        return self.lo.shape

    def __len__(self) -> int:
        return len(self.lo)

    def __repr__(self) -> str:
        # Shares are secrets: a repr must never end up in a log with values in it.
        return f"Z128(shape={self.shape}, <redacted>)"

    def __getitem__(self, index: Any) -> Z128:
        return Z128(self.lo[index], self.hi[index])

    def reshape(self, *shape: int) -> Z128:
        """Same elements, other shape."""
        return Z128(self.lo.reshape(*shape), self.hi.reshape(*shape))

    def transpose(self) -> Z128:
        """Transposed matrix."""
        return Z128(self.lo.T.copy(), self.hi.T.copy())

    # -- arithmetic ------------------------------------------------------------------------------

    def __add__(self, other: Z128) -> Z128:
        lo = self.lo + other.lo
        return Z128(lo, self.hi + other.hi + (lo < self.lo).astype(np.uint64))

    def __neg__(self) -> Z128:
        lo = np.uint64(0) - self.lo
        return Z128(lo, ~self.hi + (lo == 0).astype(np.uint64))

    def __sub__(self, other: Z128) -> Z128:
        lo = self.lo - other.lo
        return Z128(lo, self.hi - other.hi - (self.lo < other.lo).astype(np.uint64))

    def times(self, constant: int) -> Z128:
        """Multiply by a public integer with |constant| < 2^32."""
        if abs(constant) >= 1 << 32:
            raise UsageError(f"got a constant of {constant.bit_length()} bits; want at most 32")
        c = np.uint64(abs(constant))
        low, mid = (self.lo & _MASK32) * c, (self.lo >> _32) * c
        lo = low + (mid << _32)
        carry = (mid >> _32) + (lo < low).astype(np.uint64)
        product = Z128(lo, self.hi * c + carry)
        return -product if constant < 0 else product

    def shift_left(self, bits: int) -> Z128:
        """Multiply by 2^bits, 0 <= bits < 64."""
        if bits == 0:
            return self
        s, back = np.uint64(bits), np.uint64(64 - bits)
        return Z128(self.lo << s, (self.hi << s) | (self.lo >> back))

    def round_shift(self, bits: int) -> Z128:
        """Divide by 2^bits (0 <= bits < 64) as two's complement, to nearest, halves upwards."""
        if bits == 0:
            return self
        half = np.uint64(1) << np.uint64(bits - 1)
        moved = self + Z128(np.full_like(self.lo, half), np.zeros_like(self.hi))
        s, back = np.uint64(bits), np.uint64(64 - bits)
        high = (moved.hi.view(np.int64) >> np.int64(bits)).view(np.uint64)
        return Z128((moved.lo >> s) | (moved.hi << back), high)

    def rescale_rows(self, from_bits: NDArray[np.int64], to_bits: int) -> Z128:
        """Bring row k (first axis) from scale from_bits[k] to `to_bits`, rounding to nearest."""
        lo, hi = self.lo.copy(), self.hi.copy()
        for scale in np.unique(from_bits):
            rows = np.flatnonzero(from_bits == scale)
            change = int(scale) - to_bits
            part = self[rows]
            part = part.round_shift(change) if change >= 0 else part.shift_left(-change)
            lo[rows], hi[rows] = part.lo, part.hi
        return Z128(lo, hi)

    def sum_with(self, others: Sequence[Z128]) -> Z128:
        """Sum of this tensor and `others`."""
        total = self
        for other in others:
            total = total + other
        return total
