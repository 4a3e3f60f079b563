"""Encrypted matrices with the manners of numpy, computed on and then sealed.

`CryptoTensor` is what was computed on; it has no way onto the wire but `seal`, which masks and
re-randomises in one step. A computed product that left without fresh randomness would let the key
owner test candidates for the rows of X that made it.

    X @ C, C @ Y, C + D, C - D, -C, C + plain, C - plain, C * number, C[rows], C.sum(),
    C.lookup(rows), C.scatter_add(indices, n), concatenate([C, D]), C.T, C.reshape(rows, columns)

All of it is exact over the integers as long as every result keeps to |value| <= 2^L of the layout:
a slot that overflows spoils its neighbours, and no one can tell from the ciphertexts. The caller
derives the layout from declared bounds that hold for whole expressions, intermediate results
included (`colonnade.protocol.product.Product`); nothing here can check it.

Plain operands are whole numbers of at most 64 bits, used at a scale of 0. `scale_bits` says how
many fraction bits the encrypted values carry; it is public, and tensors of two scales do not mix.

Rows are whole ciphertexts, so rows move freely. The values of a row share ciphertexts, so columns
move only where each value has its own (`SlotLayout.slots_limit=1`): `C.T`, `C @ Y` and `reshape`
want that, and `pack_columns` ends it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from colonnade.crypto.packing import SlotLayout
from colonnade.crypto.space import CipherSpace, Randomisers, SealedTensor
from colonnade.errors import UsageError
from colonnade.native import Residues, horner_pack, invert, mul, multiexp_csr_vartime

__all__ = ["CryptoTensor", "PackedTensor", "concatenate"]

_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True, eq=False)
class CryptoTensor:
    """An encrypted matrix (rows, layout.columns), `ciphertexts_per_row` numbers a row.

    scale_bits: public fixed-point scale of the values, 0 for whole numbers.

    Raises
        UsageError: here and in every operation, for operands of another key, layout, scale or
        shape, and for plain operands that are not whole numbers.
    """

    space: CipherSpace
    layout: SlotLayout
    rows: int
    numbers: Residues = field(repr=False)
    scale_bits: int = 0

    # numpy leaves `array + tensor` and `array @ tensor` to the methods below.
    __array_ufunc__ = None

    def __post_init__(self) -> None:
        want = self.rows * self.layout.ciphertexts_per_row
        if len(self.numbers) != want:
            raise UsageError(f"got {len(self.numbers)} ciphertexts; want {want}")
        if self.layout.modulus_bits != self.space.key.bits:
            raise UsageError("got a slot layout for another key size")
        if self.scale_bits < 0:
            raise UsageError(f"got a scale of {self.scale_bits} bits; want 0 or more")

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns) of the encrypted matrix."""
        return self.rows, self.layout.columns

    # -- products ----------------------------------------------------------------------------------

    def left_multiply(self, x: Any, scale_bits: int = 0) -> CryptoTensor:
        """X @ self for plain whole numbers X (rows', rows), dense or CSR, of scale `scale_bits`.

        The scales add up. Time depends on X (`_vartime`).
        """
        matrix = _plain_csr(x)
        if matrix.shape[1] != self.rows:
            raise UsageError(f"got X with {matrix.shape[1]} columns for {self.rows} encrypted rows")
        numbers = multiexp_csr_vartime(
            self.numbers,
            np.ascontiguousarray(matrix.indptr, dtype=np.int64),
            np.ascontiguousarray(matrix.indices, dtype=np.int64),
            np.ascontiguousarray(matrix.data, dtype=np.int64),
            self.space.threads,
            self.layout.ciphertexts_per_row,
        )
        scale = self.scale_bits + scale_bits
        return replace(self, rows=matrix.shape[0], numbers=numbers, scale_bits=scale)

    def right_multiply(self, y: Any, scale_bits: int = 0) -> CryptoTensor:
        """Self @ Y for plain whole numbers Y (columns, columns'); wants one value a ciphertext."""
        matrix = _plain_csr(y)
        if matrix.shape[0] != self.layout.columns:
            got = f"got Y with {matrix.shape[0]} rows"
            raise UsageError(f"{got} for {self.layout.columns} encrypted columns")
        return self.T.left_multiply(matrix.T, scale_bits).T

    def __rmatmul__(self, x: Any) -> CryptoTensor:
        """X @ self; see `left_multiply`."""
        return self.left_multiply(x)

    def __matmul__(self, y: Any) -> CryptoTensor:
        """Self @ Y; see `right_multiply`."""
        return self.right_multiply(y)

    def __mul__(self, factor: int) -> CryptoTensor:
        """Every value times one public whole number of at most 64 bits."""
        if not _is_whole(factor) or not _INT64_MIN < factor <= _INT64_MAX:
            raise UsageError("got a factor that is no whole number of 64 bits; want one")
        return self.left_multiply(sp.identity(self.rows, np.int64, format="csr") * int(factor))

    __rmul__ = __mul__

    # -- sums --------------------------------------------------------------------------------------

    def __add__(self, other: CryptoTensor | NDArray[Any] | int) -> CryptoTensor:
        """Elementwise sum with another tensor, or with plain whole numbers at this scale.

        Plain: a matrix of this shape, or what numpy broadcasts to it. Needs no randomness: the sum
        is still a computed tensor.
        """
        if isinstance(other, CryptoTensor):
            self._check_alike(other)
            numbers = other.numbers
        else:
            numbers = self._encoded(other)
        return replace(self, numbers=mul(self.numbers, numbers, self.space.threads))

    __radd__ = __add__

    def __neg__(self) -> CryptoTensor:
        """Minus every value; one inversion for the whole batch."""
        return replace(self, numbers=invert(self.numbers, self.space.threads))

    def __sub__(self, other: CryptoTensor | NDArray[Any] | int) -> CryptoTensor:
        """Elementwise difference; the operands are those of `+`."""
        if isinstance(other, CryptoTensor):
            self._check_alike(other)
            return self + -other
        return -(-self + other)

    def __rsub__(self, other: NDArray[Any] | int) -> CryptoTensor:
        """Plain minus encrypted."""
        return -self + other

    def sum(self, axis: int = 0) -> CryptoTensor:
        """The sum of all rows, (1, columns)."""
        if axis != 0:
            raise UsageError(f"got axis {axis}; want 0: the values of a row share ciphertexts")
        return self.left_multiply(np.ones((1, self.rows), np.int64))

    # -- rows --------------------------------------------------------------------------------------

    def __getitem__(self, rows: Any) -> CryptoTensor:
        """The given rows: a slice, whole numbers, a mask, or one row's number (1, columns)."""
        if isinstance(rows, tuple):
            raise UsageError("got an index with several parts; want rows only; use T for columns")
        index = np.atleast_1d(np.arange(self.rows, dtype=np.int64)[rows])
        if index.ndim != 1:
            raise UsageError(f"got an index of {index.ndim} dimensions; want 1")
        return self._take(index)

    def lookup(self, rows: NDArray[np.int64]) -> CryptoTensor:
        """Row rows[i] as the i-th, repeats allowed: a product with a one-hot matrix, for free."""
        return self._take(_row_numbers(rows, self.rows, "a lookup"))

    def scatter_add(self, indices: NDArray[np.int64], n: int) -> CryptoTensor:
        """(n, columns): row k of this tensor is added to row indices[k]; the transpose of `lookup`.

        Rows that nothing is added to are encryptions of 0 without randomness, as all results wait
        for `seal`.
        """
        where = _row_numbers(indices, n, "a scatter")
        if len(where) != self.rows:
            raise UsageError(f"got {len(where)} indices for {self.rows} rows; want one each")
        entries = (np.ones(self.rows, np.int64), (where, np.arange(self.rows)))
        return self.left_multiply(sp.csr_matrix(entries, shape=(n, self.rows)))

    # -- columns -----------------------------------------------------------------------------------

    @property
    def T(self) -> CryptoTensor:  # noqa: N802 (numpy's name)
        """The transpose; wants one value a ciphertext."""
        self._check_single("a transpose")
        rows, columns = self.shape
        order = np.arange(rows * columns, dtype=np.int64).reshape(rows, columns).T.reshape(-1)
        return replace(self.reshape(columns, rows), numbers=self.numbers.take(order.copy()))

    def reshape(self, rows: int, columns: int) -> CryptoTensor:
        """The same values in row-major order; wants one value a ciphertext, or the old shape."""
        if (rows, columns) == self.shape:
            return self
        self._check_single("another shape")
        if rows < 0 or rows * columns != len(self.numbers):
            raise UsageError(f"got shape ({rows}, {columns}) for {len(self.numbers)} values")
        return replace(self, layout=replace(self.layout, columns=columns), rows=rows)

    def pack_columns(self) -> CryptoTensor:
        """Let the values of each row, one a ciphertext until now, share as few as hold them."""
        self._check_single("packing of columns")
        layout = replace(self.layout, slots_limit=None)
        rows, columns = self.shape
        step, threads = layout.columns_per_ciphertext, self.space.threads
        places = np.arange(rows * columns, dtype=np.int64).reshape(rows, columns)
        blocks = []
        for start in range(0, columns, step):
            block = np.ascontiguousarray(places[:, start : start + step])
            numbers = self.numbers.take(block.reshape(-1))
            blocks.append(horner_pack(numbers, block.shape[1], layout.slot_bits, threads))
        order = np.arange(rows * len(blocks)).reshape(len(blocks), rows).T.reshape(-1)
        numbers = Residues.concat(blocks).take(order.astype(np.int64))
        return replace(self, layout=layout, numbers=numbers)

    # -- leaving -----------------------------------------------------------------------------------

    def pack(self) -> PackedTensor:
        """Put `rows_per_ciphertext` rows into each ciphertext: the last step before `seal`."""
        layout, numbers = self.layout, self.numbers
        if layout.rows_per_ciphertext > 1:
            shift = layout.slot_bits * layout.columns
            threads = self.space.threads
            numbers = horner_pack(numbers, layout.rows_per_ciphertext, shift, threads)
        return PackedTensor(self.space, layout, self.rows, numbers)

    def seal(self, masks: Sequence[Sequence[int]], randomisers: Randomisers) -> SealedTensor:
        """`pack`, then `PackedTensor.seal`."""
        return self.pack().seal(masks, randomisers)

    def _take(self, index: NDArray[np.int64]) -> CryptoTensor:
        per_row = self.layout.ciphertexts_per_row
        where = (index[:, None] * per_row + np.arange(per_row)).reshape(-1)
        return replace(self, rows=len(index), numbers=self.numbers.take(where))

    def _encoded(self, plain: Any) -> Residues:
        values = np.asarray(plain)
        if values.dtype.kind not in "iub":
            raise UsageError(f"got plain values of {values.dtype}; want whole numbers; encode them")
        try:
            values = np.broadcast_to(values, self.shape)
        except ValueError:
            got = f"got plain values of shape {values.shape}"
            raise UsageError(f"{got}; want {self.shape}") from None
        rows = values.tolist()
        if any(abs(value) > self.layout.offset for row in rows for value in row):
            raise UsageError(f"got plain values beyond the {self.layout.value_bits} bits of a slot")
        return self.space.encode([m for row in rows for m in self.layout.encode_row(row)])

    def _check_alike(self, other: CryptoTensor) -> None:
        if other.space.key != self.space.key:
            raise UsageError("got tensors under two keys; want one")
        if other.shape != self.shape:
            raise UsageError(f"got tensors of shapes {self.shape} and {other.shape}; want one")
        _check_one_form([self, other])

    def _check_single(self, what: str) -> None:
        if self.layout.slots_limit != 1:
            raise UsageError(
                f"got a layout whose values share ciphertexts; want slots_limit=1 for {what}"
            )


@dataclass(frozen=True, eq=False)
class PackedTensor:
    """A computed tensor whose ciphertexts hold several rows; there is nothing to do but `seal`."""

    space: CipherSpace
    layout: SlotLayout
    rows: int
    numbers: Residues = field(repr=False)

    def __post_init__(self) -> None:
        want = self.layout.packed_count(self.rows)
        if len(self.numbers) != want:
            raise UsageError(f"got {len(self.numbers)} packed ciphertexts; want {want}")

    def seal(self, masks: Sequence[Sequence[int]], randomisers: Randomisers) -> SealedTensor:
        """Add 2^L and a mask to every slot and re-randomise: one step, then bytes.

        masks: one list of `layout.slots_used` values below 2^mask_width_bits per ciphertext.
        """
        layout, threads = self.layout, self.space.threads
        if len(masks) != len(self.numbers):
            raise UsageError(f"got masks for {len(masks)} ciphertexts; want {len(self.numbers)}")
        if any(len(slots) != layout.slots_used for slots in masks):
            raise UsageError(f"got a ciphertext without {layout.slots_used} masks, one a slot")
        blinds = [layout.join([layout.offset + r for r in slots]) for slots in masks]
        numbers = mul(self.numbers, self.space.encode(blinds), threads)
        numbers = mul(numbers, randomisers.draw(len(numbers)), threads)
        return SealedTensor(numbers.to_bytes(), len(numbers))


def concatenate(parts: Sequence[CryptoTensor]) -> CryptoTensor:
    """The rows of all parts, one below the other.

    Raises
        UsageError: no parts, or parts of two keys, layouts or scales.
    """
    if not parts:
        raise UsageError("got no tensors to concatenate; want at least one")
    if any(part.space.key != parts[0].space.key for part in parts):
        raise UsageError("got tensors under two keys; want one")
    _check_one_form(parts)
    numbers = Residues.concat([part.numbers for part in parts])
    return replace(parts[0], rows=sum(part.rows for part in parts), numbers=numbers)


def _check_one_form(parts: Sequence[CryptoTensor]) -> None:
    if any(part.layout != parts[0].layout for part in parts):
        raise UsageError("got tensors of two slot layouts; want one")
    scales = sorted({part.scale_bits for part in parts})
    if len(scales) > 1:
        raise UsageError(f"got scales of {scales} bits; want one: shift the smaller by a product")


def _plain_csr(x: Any) -> sp.csr_matrix:
    """A plain operand as int64 CSR; refuses what would be rounded or wrapped on the way."""
    matrix = x if sp.issparse(x) else np.asarray(x)
    if matrix.ndim != 2:
        raise UsageError(f"got a plain operand of {matrix.ndim} dimensions; want 2")
    if not np.can_cast(matrix.dtype, np.int64):
        raise UsageError(f"got a plain operand of {matrix.dtype}; want int64; encode it first")
    return sp.csr_matrix(matrix, dtype=np.int64)


def _row_numbers(rows: Any, count: int, what: str) -> NDArray[np.int64]:
    index = np.asarray(rows)
    if index.ndim != 1 or (index.size and index.dtype.kind not in "iu"):
        raise UsageError(f"got {what} with {index.dtype} of {index.ndim} dimensions; want int64, 1")
    if index.size and not 0 <= int(index.min()) <= int(index.max()) < count:
        raise UsageError(f"got {what} beyond the {count} rows; want 0 .. {count - 1}")
    return index.astype(np.int64)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
