"""Sources of encryptions of zero (n-th residues mod n²).

Leaving the *non-owner*, a computed tensor must be multiplied by an encryption of zero whose
randomness is within 2^-40 of uniform over all of Z*_n in the key owner's eyes: the owner can read
the randomness of what it decrypts. Two sources meet that:

* `DirectRandomisers`: r^n with uniform r; no set-up, some 3,000 multiplications each.
* `ManyBaseRandomisers`: prod G_i^{a_i} over independent uniform G_i = g_i^n and 8-bit a_i. With
  (n_bits + 192) / 8 bases the leftover hash lemma gives a distance below 2^-90; one multiplication
  per base and draw.

A single-base or short-exponent table (DJN) is *not* enough here: the owner reads
Legendre symbols of the returned randomness and solves for rows of X.
"""

from __future__ import annotations

import numpy as np

from colonnade.crypto.space import CipherSpace, Randomisers
from colonnade.native import ProductTable, Residues, pow_vartime
from colonnade.ring.csprng import Csprng

__all__ = ["DirectRandomisers", "ManyBaseRandomisers", "randomisers_for"]

_DIGIT_BITS = 8
# Surplus entropy over |n|: the leftover hash lemma halves it, 192 bits leave 2^-96.
_SURPLUS_BITS = 192
# Building the table costs about as much as this many direct draws (one r^n per base, and powers).
_WORTH_A_TABLE = 450


class DirectRandomisers:
    """r^n mod n² with r uniform in Z_n; every draw is computed from scratch."""

    def __init__(self, space: CipherSpace, rng: Csprng) -> None:
        self._space = space
        self._rng = rng

    def draw(self, count: int) -> Residues:
        """Return `count` fresh n-th residues."""
        return _nth_powers(self._space, self._rng, count)


class ManyBaseRandomisers:
    """Products over secret uniform bases; the table of 256 powers a base takes some 36 MiB."""

    def __init__(self, space: CipherSpace, rng: Csprng) -> None:
        self._rng = rng
        self._threads = space.threads
        self._bases = -(-(space.key.bits + _SURPLUS_BITS) // _DIGIT_BITS)
        bases = _nth_powers(space, rng, self._bases)
        self._table = ProductTable(space.modulus, bases, _DIGIT_BITS, self._threads)

    def draw(self, count: int) -> Residues:
        """Return `count` fresh n-th residues."""
        digits = self._rng.uniform_bits(count * self._bases, _DIGIT_BITS)
        shaped = np.ascontiguousarray(digits.reshape(count, self._bases))
        return self._table.products_vartime(shaped, self._threads)


def randomisers_for(space: CipherSpace, rng: Csprng, expected: int) -> Randomisers:
    """The cheaper safe source for about `expected` draws."""
    if expected < _WORTH_A_TABLE:
        return DirectRandomisers(space, rng)
    return ManyBaseRandomisers(space, rng)


def _nth_powers(space: CipherSpace, rng: Csprng, count: int) -> Residues:
    # A uniform r in [1, n) is a unit except with probability about 2^-|n|/2.
    width = space.ciphertext_bytes
    drawn = rng.integers_below(space.key.n - 1, count)
    raw = b"".join((r + 1).to_bytes(width, "little") for r in drawn)
    exponent = space.key.n.to_bytes((space.key.bits + 7) // 8, "little")
    numbers = space.modulus.from_bytes(raw, space.threads)
    return pow_vartime(numbers, exponent, len(exponent), space.threads)
