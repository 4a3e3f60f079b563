"""The numbers under one public key: validated loading, encoding, and the form fit to send.

`SealedTensor` is fit to send: the only ways to make one are encryption by the key owner and
`CryptoTensor.seal` (`colonnade.crypto.tensor`), which masks and re-randomises in one step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from colonnade.crypto.keys import PublicKey
from colonnade.errors import PeerError
from colonnade.native import Modulus, Residues

__all__ = ["CipherSpace", "Randomisers", "SealedTensor"]


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


def _little(value: int) -> bytes:
    return value.to_bytes((value.bit_length() + 7) // 8, "little")
