"""Arithmetic on ciphertexts under one public key: validated loading, products, packing, sealing.

`CryptoTensor` is what was computed on; it has no way onto the wire. `SealedTensor` is fit to send:
the only ways to make one are encryption by the key owner and `CryptoTensor.seal`, which masks and
re-randomises in one step. A computed product that left without fresh randomness would let the key
owner test candidates for the rows of X that made it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from colonnade.crypto.keys import PublicKey
from colonnade.crypto.packing import SlotLayout
from colonnade.errors import PeerError, UsageError
from colonnade.native import Modulus, Residues, horner_pack, mul, multiexp_csr_vartime

if TYPE_CHECKING:
    import scipy.sparse as sp

__all__ = ["CipherSpace", "CryptoTensor", "Randomisers", "SealedTensor"]


class Randomisers(Protocol):
    """A source of encryptions of zero, each used once."""

    def draw(self, count: int) -> Residues:
        """Return `count` fresh n-th residues mod n²."""
        ...


@dataclass(frozen=True)
class SealedTensor:
    """Ciphertexts fit to send: `count` numbers below n², little-endian, fixed width."""

    data: bytes
    count: int


@dataclass(frozen=True)
class CipherSpace:
    """Z*_{n²} of one public key. `threads` bounds the threads of every batch operation."""

    key: PublicKey
    threads: int = 1

    @cached_property
    def modulus(self) -> Modulus:
        """Montgomery context mod n²."""
        return Modulus(_little(self.key.n_squared))

    @property
    def ciphertext_bytes(self) -> int:
        """Bytes of one ciphertext on the wire."""
        return int(self.modulus.bytes)

    def load(self, data: bytes, count: int, what: str) -> Residues:
        """Read `count` received ciphertexts; every one is checked before use.

        Raises
            PeerError: wrong length, a number not below n², or one that shares a factor with n.
        """
        want = count * self.ciphertext_bytes
        if len(data) != want:
            raise PeerError(f"got {len(data)} bytes for {what}; want {want} ({count} ciphertexts)")
        try:
            numbers = self.modulus.from_bytes(data, self.threads)
        except ValueError as error:
            raise PeerError(f"got a ciphertext out of range in {what}: {error}") from None
        if math.gcd(self._product(data) % self.key.n, self.key.n) != 1:
            raise PeerError(f"got a number that is not a ciphertext in {what} (not coprime to n)")
        return numbers

    def _product(self, data: bytes) -> int:
        width, n = self.ciphertext_bytes, self.key.n
        product = 1
        for start in range(0, len(data), width):
            product = product * int.from_bytes(data[start : start + width], "little") % n
        return product

    def encode(self, plaintexts: Sequence[int]) -> Residues:
        """(1 + m n) mod n² for signed plaintexts m: ciphertexts without randomness."""
        n, square, width = self.key.n, self.key.n_squared, self.ciphertext_bytes
        raw = b"".join(((1 + m * n) % square).to_bytes(width, "little") for m in plaintexts)
        return self.modulus.from_bytes(raw, self.threads)


@dataclass(frozen=True)
class CryptoTensor:
    """An encrypted matrix (rows, layout.columns), `ciphertexts_per_row` numbers a row."""

    space: CipherSpace
    layout: SlotLayout
    rows: int
    numbers: Residues = field(repr=False)

    def __post_init__(self) -> None:
        want = self.rows * self.layout.ciphertexts_per_row
        if len(self.numbers) != want:
            raise UsageError(f"got {len(self.numbers)} ciphertexts; want {want}")
        if self.layout.modulus_bits != self.space.key.bits:
            raise UsageError("got a slot layout for another key size")

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns) of the encrypted matrix."""
        return self.rows, self.layout.columns

    def left_multiply(self, x: sp.csr_matrix) -> CryptoTensor:
        """X @ self for a plain int64 CSR matrix X (rows', rows). Time depends on X (`_vartime`).

        The caller must have derived the layout from bounds that hold for X (see `Product`).
        """
        if x.shape[1] != self.rows:
            raise UsageError(f"got X with {x.shape[1]} columns for {self.rows} encrypted rows")
        numbers = multiexp_csr_vartime(
            self.numbers,
            np.ascontiguousarray(x.indptr, dtype=np.int64),
            np.ascontiguousarray(x.indices, dtype=np.int64),
            np.ascontiguousarray(x.data, dtype=np.int64),
            self.space.threads,
            self.layout.ciphertexts_per_row,
        )
        return CryptoTensor(self.space, self.layout, x.shape[0], numbers)

    def __add__(self, other: CryptoTensor) -> CryptoTensor:
        """Elementwise sum of two tensors under one key and layout."""
        if other.space.key != self.space.key:
            raise UsageError("got tensors under two keys; want one")
        if other.layout != self.layout or other.rows != self.rows:
            raise UsageError(f"got shapes {self.shape} and {other.shape} or two layouts; want one")
        numbers = mul(self.numbers, other.numbers, self.space.threads)
        return CryptoTensor(self.space, self.layout, self.rows, numbers)

    def __getitem__(self, rows: Any) -> CryptoTensor:
        """The given rows (int64 array or slice)."""
        index = np.arange(self.rows, dtype=np.int64)[rows]
        per_row = self.layout.ciphertexts_per_row
        where = (index[:, None] * per_row + np.arange(per_row)).reshape(-1)
        return CryptoTensor(self.space, self.layout, len(index), self.numbers.take(where))

    def seal(self, masks: Sequence[Sequence[int]], randomisers: Randomisers) -> SealedTensor:
        """Pack across rows, add 2^L and a mask to every slot, re-randomise: one step, then bytes.

        masks: one list of `layout.slots_used` mask values per packed ciphertext.
        """
        layout, threads = self.layout, self.space.threads
        numbers = self.numbers
        if layout.rows_per_ciphertext > 1:
            shift = layout.slot_bits * layout.columns
            numbers = horner_pack(numbers, layout.rows_per_ciphertext, shift, threads)
        if len(masks) != len(numbers):
            raise UsageError(f"got masks for {len(masks)} ciphertexts; want {len(numbers)}")
        blinds = [layout.join([layout.offset + r for r in slots]) for slots in masks]
        numbers = mul(numbers, self.space.encode(blinds), threads)
        numbers = mul(numbers, randomisers.draw(len(numbers)), threads)
        return SealedTensor(numbers.to_bytes(), len(numbers))


def _little(value: int) -> bytes:
    return value.to_bytes((value.bit_length() + 7) // 8, "little")
