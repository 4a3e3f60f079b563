"""Paillier in plain Python integers (Paillier 1999, g = n + 1): the oracle of the tests."""

import math
import secrets
from functools import cache

from colonnade.crypto import PrivateKey, insecure_generate_key


@cache
def small_key(bits: int, name: str = "") -> PrivateKey:
    """One insecure key of each size and name for the whole test run."""
    return insecure_generate_key(bits)


def encrypt(key: PrivateKey, m: int, r: int | None = None) -> int:
    n = key.public.n
    while r is None or math.gcd(r, n) != 1:
        r = secrets.randbelow(n)
    return (1 + m * n) * pow(r, n, n * n) % (n * n)


def decrypt(key: PrivateKey, c: int) -> int:
    """The plaintext in 0 .. n - 1."""
    n, order = key.public.n, math.lcm(key.p - 1, key.q - 1)
    return (pow(c, order, n * n) - 1) // n * pow(order, -1, n) % n


def signed(key: PrivateKey, m: int) -> int:
    return m - key.public.n if m > key.public.n // 2 else m


def randomness(key: PrivateKey, c: int) -> int:
    """The r of c = (1 + m n) r^n: mod n the first factor is one, and n has an inverse exponent."""
    n = key.public.n
    return pow(c % n, pow(n, -1, math.lcm(key.p - 1, key.q - 1)), n)


def symbol(a: int, prime: int) -> int:
    """The Legendre symbol (a / prime), 1 or -1."""
    return 1 if pow(a, (prime - 1) // 2, prime) == 1 else -1


def to_bytes(key: PrivateKey, numbers: list[int]) -> bytes:
    """Ciphertexts as they travel: little-endian, fixed width."""
    width = (key.public.n_squared.bit_length() + 7) // 8
    return b"".join(c.to_bytes(width, "little") for c in numbers)


def from_bytes(key: PrivateKey, data: bytes) -> list[int]:
    width = (key.public.n_squared.bit_length() + 7) // 8
    return [int.from_bytes(data[i : i + width], "little") for i in range(0, len(data), width)]
