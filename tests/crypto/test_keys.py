"""Paillier keys: sizes, checks on a received modulus, and that private halves stay put."""

import copy
import dataclasses
import pickle
import re

import gmpy2
import pytest

from colonnade.crypto import (
    SECURE_KEY_BITS,
    PrivateKey,
    PublicKey,
    generate_key,
    insecure_generate_key,
)
from colonnade.errors import PeerError, UsageError
from paillier_by_hand import small_key


def prime_of(bits: int, *, above: int = 0) -> int:
    """The first prime of exactly `bits` bits after a fixed start, plus an offset."""
    return int(gmpy2.next_prime((3 << (bits - 2)) + above))


@pytest.mark.parametrize("bits", [128, 130, 256])
def test_insecure_keys_have_the_asked_size_and_two_primes(bits):
    key = insecure_generate_key(bits)
    assert key.public.bits == bits
    assert key.p != key.q
    assert all(gmpy2.is_prime(prime, 40) for prime in (key.p, key.q))
    assert gmpy2.gcd(key.public.n, (key.p - 1) * (key.q - 1)) == 1
    assert key.public.check(want_bits=bits) is key.public


def test_keys_are_drawn_afresh():
    keys = [insecure_generate_key(128) for _ in range(5)]
    assert len({prime for key in keys for prime in (key.p, key.q)}) == 10


@pytest.mark.real_keys
def test_a_key_of_the_default_size():
    key = generate_key()
    assert key.public.bits == 2048
    assert key.p.bit_length() == key.q.bit_length() == 1024
    assert all(gmpy2.is_prime(prime, 40) for prime in (key.p, key.q))
    assert gmpy2.gcd(key.public.n, (key.p - 1) * (key.q - 1)) == 1
    # Fermat's factorisation needs primes that lie close together.
    assert abs(key.p - key.q).bit_length() > 900
    key.public.check(want_bits=2048)


def test_small_keys_have_to_be_asked_for_by_name():
    assert SECURE_KEY_BITS == (2048, 3072)
    for bits in (512, 1024, 2047, 4096):
        with pytest.raises(UsageError, match="key size"):
            generate_key(bits)
    for bits in (126, 129):
        with pytest.raises(UsageError, match="even number"):
            insecure_generate_key(bits)


GOOD = small_key(256).public.n
BAD = {
    "too short": (small_key(128).public.n, "got a key of 128 bits; want 256"),
    "too long": (small_key(130).public.n << 128 | 1, "got a key of 258 bits; want 256"),
    "zero": (0, "got a key of 0 bits; want 256"),
    "even": (GOOD & ~1, "factor below 65536"),
    "small factor": (65521 * prime_of(240), "factor below 65536"),
    "prime": (prime_of(256), "a prime"),
    "square": (prime_of(128) ** 2, "a perfect power"),
    "cube": (int(gmpy2.next_prime(gmpy2.iroot(3 << 254, 3)[0])) ** 3, "a perfect power"),
    "fifth power": (int(gmpy2.next_prime(gmpy2.iroot(3 << 254, 5)[0])) ** 5, "a perfect power"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_modulus_is_refused(case):
    n, message = BAD[case]
    with pytest.raises(PeerError, match=re.escape(message)):
        PublicKey(n).check(want_bits=256)


@pytest.mark.parametrize("store", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_private_key_cannot_be_stored_or_copied(store):
    with pytest.raises(UsageError, match="private key"):
        store(small_key(128))


def test_reprs_show_the_size_alone():
    key = small_key(256)
    assert repr(key) == "PrivateKey(bits=256, <redacted>)"
    assert repr(key.public) == "PublicKey(bits=256)"


def test_keys_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        small_key(256).p = 3
    assert PrivateKey(3, 5).public == PublicKey(15)
