"""The key owner's side: encryption and decryption by the Chinese remainder theorem.

Encryption under one's own key may use a fixed-base table: r^n mod p² runs over a cyclic group of
order p - 1, so h_p^a with h_p = x^n for a secret uniform x and a uniform in [0, p - 1) is a fresh
randomiser at a third of the price of r^n. It is uniform over the subgroup that x^n generates (often
half of the group), which is enough for ciphertexts that an owner makes under its own key: nobody
else can tell the subgroup, and nobody but the owner ever learns r.

Constant time: the exponentiation by p - 1 and q - 1 in decryption (masked table reads). Limit: the
reductions mod p², q² and the final division are CPython integer arithmetic, which is not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from colonnade.crypto.keys import PrivateKey
from colonnade.crypto.space import CipherSpace, Randomisers, SealedTensor
from colonnade.native import FixedBaseTable, Modulus, Residues, mul, pow_secret
from colonnade.ring.csprng import Csprng

__all__ = ["KeyOwner", "OwnerRandomisers"]

# 6-bit windows: 171 multiplications an encryption and prime at 2048 bits, tables of 2.8 MiB each.
_WINDOW_BITS = 6


class _PrimeSide:
    """Everything mod p² for one of the two primes."""

    def __init__(self, prime: int, other: int, n: int) -> None:
        self.prime = prime
        self.square = prime * prime
        self.width = (self.square.bit_length() + 7) // 8
        self.modulus = Modulus(self.square.to_bytes(self.width, "little"))
        self.exponent = (prime - 1).to_bytes((prime.bit_length() + 7) // 8, "little")
        # L(g^(p-1) mod p²)^-1 with g = n + 1: g^(p-1) = 1 + (p-1) n, so L = (p-1) q = -q mod p.
        self.scale = pow(-other, -1, prime)
        self.n = n

    def logarithms(self, ciphertexts: Sequence[int], threads: int) -> list[int]:
        """Plaintexts mod p."""
        raw = b"".join((c % self.square).to_bytes(self.width, "little") for c in ciphertexts)
        numbers = self.modulus.from_bytes(raw, threads)
        bits = self.prime.bit_length()
        powered = pow_secret(numbers, self.exponent, bits, threads).to_bytes()
        return [
            (int.from_bytes(powered[i : i + self.width], "little") - 1)
            // self.prime
            * self.scale
            % self.prime
            for i in range(0, len(powered), self.width)
        ]


class _RandomnessTable:
    """Fixed-base table for fresh n-th residues mod p²."""

    def __init__(self, side: _PrimeSide, rng: Csprng, threads: int) -> None:
        self._side = side
        base = pow(1 + rng.integers_below(side.square - 1, 1)[0], side.n, side.square)
        raw = base.to_bytes(side.width, "little")
        numbers = side.modulus.from_bytes(raw, 1)
        bits = side.prime.bit_length()
        self._table = FixedBaseTable(side.modulus, numbers, bits, _WINDOW_BITS, threads)

    def draw(self, count: int, rng: Csprng, threads: int) -> list[int]:
        width = len(self._side.exponent)
        exponents = rng.integers_below(self._side.prime - 1, count)
        raw = b"".join(e.to_bytes(width, "little") for e in exponents)
        powers = self._table.power_vartime(raw, width, threads).to_bytes()
        step = self._side.width
        return [int.from_bytes(powers[i : i + step], "little") for i in range(0, len(powers), step)]


class OwnerRandomisers:
    """Fresh n-th residues mod n² from the fixed-base tables of both primes; made at the first draw.

    `rng` is drawn from in `draw` alone, so a background thread may do it.
    """

    def __init__(
        self, space: CipherSpace, sides: tuple[_PrimeSide, _PrimeSide], rng: Csprng
    ) -> None:
        self._space = space
        self._sides = sides
        self._rng = rng
        self._inverse = pow(sides[0].square, -1, sides[1].square)
        self._tables: tuple[_RandomnessTable, _RandomnessTable] | None = None

    def draw(self, count: int) -> Residues:
        """Return `count` fresh n-th residues."""
        left, right = self._sides
        threads = self._space.threads
        if self._tables is None:
            self._tables = (
                _RandomnessTable(left, self._rng, threads),
                _RandomnessTable(right, self._rng, threads),
            )
        mod_p, mod_q = (table.draw(count, self._rng, threads) for table in self._tables)
        width = self._space.ciphertext_bytes
        raw = bytearray()
        for r_p, r_q in zip(mod_p, mod_q, strict=True):
            lift = (r_q - r_p) * self._inverse % right.square
            raw += (r_p + left.square * lift).to_bytes(width, "little")
        return self._space.modulus.from_bytes(bytes(raw), threads)


class KeyOwner:
    """A private key at work. `rng` gives the randomness of its encryptions.

    prepare: puts a stock in front of the randomisers (`colonnade.party.pool`), so that encrypting
    costs two multiplications; None draws each when it is needed.
    """

    def __init__(
        self,
        key: PrivateKey,
        rng: Csprng,
        threads: int = 1,
        prepare: Callable[[Randomisers], Randomisers] | None = None,
    ) -> None:
        self.space = CipherSpace(key.public, threads)
        n = key.public.n
        self._p = _PrimeSide(key.p, key.q, n)
        self._q = _PrimeSide(key.q, key.p, n)
        self._p_inverse = pow(key.p, -1, key.q)
        source = OwnerRandomisers(self.space, (self._p, self._q), rng)
        self._randomisers: Randomisers = source if prepare is None else prepare(source)

    def __repr__(self) -> str:
        return f"KeyOwner({self.space.key!r}, <redacted>)"

    def encrypt(self, plaintexts: Sequence[int]) -> SealedTensor:
        """Encrypt signed integers |m| < n/2 with fresh randomness."""
        count = len(plaintexts)
        plain = self.space.encode(plaintexts)
        sealed = mul(plain, self._randomisers.draw(count), self.space.threads)
        return SealedTensor(sealed.to_bytes(), count)

    def decrypt(self, data: bytes, count: int, what: str) -> list[int]:
        """Decrypt `count` received ciphertexts to plaintexts in [0, n).

        Raises
            PeerError: a number is out of range or not a ciphertext.
        """
        self.space.load(data, count, what)
        width, threads = self.space.ciphertext_bytes, self.space.threads
        numbers = [
            int.from_bytes(data[i : i + width], "little") for i in range(0, len(data), width)
        ]
        mod_p = self._p.logarithms(numbers, threads)
        mod_q = self._q.logarithms(numbers, threads)
        p, q = self._p.prime, self._q.prime
        return [
            m_p + p * ((m_q - m_p) * self._p_inverse % q)
            for m_p, m_q in zip(mod_p, mod_q, strict=True)
        ]
