"""Paillier keys: generation, checks on a received public key, redacted representation.

Source: Paillier 1999, with g = n + 1. Primes come from OpenSSL's RSA key generation (through
`cryptography`): two primes of equal size whose distance is checked, which also gives
gcd(n, phi(n)) = 1.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass, field
from functools import cache, cached_property

from cryptography.hazmat.primitives.asymmetric import rsa

from colonnade.errors import PeerError, UsageError

__all__ = ["SECURE_KEY_BITS", "PrivateKey", "PublicKey", "generate_key", "insecure_generate_key"]

SECURE_KEY_BITS = (2048, 3072)
_SMALL_PRIMES_LIMIT = 1 << 16
_MILLER_RABIN_ROUNDS = 40


@dataclass(frozen=True)
class PublicKey:
    """The modulus n; everything is computed mod n²."""

    n: int

    @property
    def bits(self) -> int:
        """Size of n."""
        return self.n.bit_length()

    @cached_property
    def n_squared(self) -> int:
        """The ciphertext modulus."""
        return self.n * self.n

    def __repr__(self) -> str:
        return f"PublicKey(bits={self.bits})"

    def check(self, *, want_bits: int) -> PublicKey:
        """Check a received key as far as it can be checked.

        Size, odd, no factor below 2^16, not a prime, not a perfect square (a higher power of
        2048-bit size would have a factor that Miller-Rabin's composite verdict does not exclude;
        the rest is the semi-honest assumption).

        Raises
            PeerError: naming what is wrong.
        """
        if self.bits != want_bits:
            raise PeerError(f"got a key of {self.bits} bits; want {want_bits}")
        if math.gcd(self.n, _small_primorial()) != 1:
            raise PeerError("got a key whose modulus has a factor below 65536")
        for exponent in _prime_exponents(self.bits):
            root = _integer_root(self.n, exponent)
            if root**exponent == self.n:
                raise PeerError("got a key whose modulus is a perfect power")
        if _is_probable_prime(self.n, rounds=8):
            raise PeerError("got a key whose modulus is a prime")
        return self


@dataclass(frozen=True)
class PrivateKey:
    """The primes p and q. Never leaves the process; `repr` shows nothing.

    Limit: CPython integers cannot be wiped; the key lives until the process ends.
    """

    p: int = field(repr=False)
    q: int = field(repr=False)

    @cached_property
    def public(self) -> PublicKey:
        """The public half."""
        return PublicKey(self.p * self.q)

    def __repr__(self) -> str:
        return f"PrivateKey(bits={self.public.bits}, <redacted>)"

    def __reduce__(self) -> str:
        raise UsageError("a private key cannot be pickled")


def generate_key(bits: int = 2048) -> PrivateKey:
    """Make a key of 2048 or 3072 bits.

    Raises
        UsageError: another size (`insecure_generate_key` makes smaller ones for tests).
    """
    if bits not in SECURE_KEY_BITS:
        raise UsageError(f"got a key size of {bits} bits; want one of {SECURE_KEY_BITS}")
    numbers = rsa.generate_private_key(public_exponent=65537, key_size=bits).private_numbers()
    return PrivateKey(numbers.p, numbers.q)


def insecure_generate_key(bits: int) -> PrivateKey:
    """Make a key of any even size from 128 bits up; for tests only."""
    if bits % 2 or bits < 128:
        raise UsageError(f"got a key size of {bits} bits; want an even number from 128 up")
    while True:
        p, q = _random_prime(bits // 2), _random_prime(bits // 2)
        if p != q and math.gcd(p * q, (p - 1) * (q - 1)) == 1:
            return PrivateKey(p, q)


def _random_prime(bits: int) -> int:
    while True:
        # Two top bits set, so that the product of two such primes has full size.
        candidate = secrets.randbits(bits) | 3 << (bits - 2) | 1
        if _is_probable_prime(candidate, _MILLER_RABIN_ROUNDS):
            return candidate


def _is_probable_prime(n: int, rounds: int) -> bool:
    if n < 1 << 32:
        return n > 1 and all(n % d for d in range(2, math.isqrt(n) + 1))
    if math.gcd(n, _small_primorial()) != 1:
        return False
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd >> 1, twos + 1
    return all(_passes(n, 2 + secrets.randbelow(n - 3), odd, twos) for _ in range(rounds))


def _passes(n: int, base: int, odd: int, twos: int) -> bool:
    x = pow(base, odd, n)
    if x in (1, n - 1):
        return True
    for _ in range(twos - 1):
        x = x * x % n
        if x == n - 1:
            return True
    return False


def _integer_root(n: int, k: int) -> int:
    root = 1 << -(-n.bit_length() // k)
    while True:
        better = ((k - 1) * root + n // root ** (k - 1)) // k
        if better >= root:
            return root
        root = better


def _prime_exponents(bits: int) -> list[int]:
    # No factor lies below 2^16, so a perfect power has an exponent below bits / 16.
    return [k for k in range(2, bits // 16 + 1) if all(k % d for d in range(2, k))]


@cache
def _small_primorial() -> int:
    sieve = bytearray([1]) * _SMALL_PRIMES_LIMIT
    for d in range(2, 256):
        if sieve[d]:
            sieve[d * d :: d] = bytes(len(sieve[d * d :: d]))
    return math.prod(i for i in range(2, _SMALL_PRIMES_LIMIT) if sieve[i])
