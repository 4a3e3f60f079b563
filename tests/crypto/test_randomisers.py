"""Encryptions of zero that hide even from the key owner."""

import math

import numpy as np
import pytest
from scipy import stats

from colonnade.crypto import (
    CipherSpace,
    DirectRandomisers,
    ManyBaseRandomisers,
    randomisers_for,
)
from colonnade.ring import Csprng
from paillier_by_hand import decrypt, from_bytes, randomness, small_key, symbol

KEY = small_key(256)
SPACE = CipherSpace(KEY.public)
SOURCES = [DirectRandomisers, ManyBaseRandomisers]


def drawn(source, count: int) -> list[int]:
    return from_bytes(KEY, source.draw(count).to_bytes())


@pytest.mark.parametrize("source", SOURCES)
def test_draws_are_encryptions_of_zero_and_never_repeat(source):
    made = source(SPACE, Csprng.from_os())
    numbers = drawn(made, 100) + drawn(made, 100)
    assert {decrypt(KEY, c) for c in numbers} == {0}
    assert len(set(numbers)) == 200


def check_uniform_to_the_key_owner(numbers: list[int]) -> None:
    """The owner's view of the randomness: four symbol classes alike, top bits uniform."""
    found = [randomness(KEY, c) for c in numbers]
    classes = [2 * (symbol(r, KEY.p) > 0) + (symbol(r, KEY.q) > 0) for r in found]
    assert stats.chisquare(np.bincount(classes, minlength=4)).pvalue > 1e-8
    for prime in (KEY.p, KEY.q):
        top = np.array([r % prime / prime for r in found])
        assert stats.kstest(top, "uniform").pvalue > 1e-8


@pytest.mark.parametrize("source", SOURCES)
def test_the_key_owner_finds_uniform_randomness(source):
    check_uniform_to_the_key_owner(drawn(source(SPACE, Csprng.from_os()), 1000))


class _SingleBase:
    """DJN: powers of one secret base; fine for an owner's own ciphertexts alone."""

    def __init__(self, space, rng):
        self.base = randomness(KEY, drawn(DirectRandomisers(space, rng), 1)[0])
        self.rng = rng

    def numbers(self, count: int) -> list[int]:
        n = KEY.public.n
        exponents = self.rng.integers_below(n, count)
        return [pow(self.base, e * n, n * n) for e in exponents]


def test_control_a_single_base_is_not_uniform_to_the_key_owner():
    # Powers of one base: with g = its symbols, a power has the symbols g or (1, 1), so at most two
    # of the four classes occur.
    with pytest.raises(AssertionError):
        check_uniform_to_the_key_owner(_SingleBase(SPACE, Csprng.from_os()).numbers(1000))


def test_control_few_short_exponents_are_not_uniform_to_the_key_owner():
    with pytest.raises(AssertionError):
        check_uniform_to_the_key_owner(drawn(_few_bases(), 1000))


def _few_bases() -> ManyBaseRandomisers:
    source = ManyBaseRandomisers.__new__(ManyBaseRandomisers)
    source.__init__(SPACE, Csprng.from_os())
    bases = source._bases

    class Zeroed(Csprng):
        def uniform_bits(self, count, bits):
            digits = super().uniform_bits(count, bits).reshape(-1, bases)
            digits[:, 1:] = 0
            return digits.reshape(-1, 1)

    source._rng = Zeroed(None)
    return source


def test_the_many_base_product_is_what_it_says():
    streams = [Csprng.from_seed_for_tests("many") for _ in range(2)]
    got = drawn(ManyBaseRandomisers(SPACE, streams[0]), 3)
    n, square = KEY.public.n, KEY.public.n_squared
    count = math.ceil((256 + 192) / 8)
    bases = [pow(r + 1, n, square) for r in streams[1].integers_below(n - 1, count)]
    digits = streams[1].uniform_bits(3 * count, 8).reshape(3, count).tolist()
    want = [
        math.prod(pow(b, d, square) for b, d in zip(bases, row, strict=True)) % square
        for row in digits
    ]
    assert got == want


def test_there_are_enough_bases_for_the_leftover_hash_lemma():
    for bits in (256, 512):
        space = CipherSpace(small_key(bits).public)
        made = ManyBaseRandomisers(space, Csprng.from_os())
        # Distance 2^-(entropy - |n|)/2 below 2^-90; each digit gives eight bits of entropy.
        assert (8 * made._bases - bits) / 2 >= 90


def test_the_cheaper_source_is_chosen():
    assert isinstance(randomisers_for(SPACE, Csprng.from_os(), 10), DirectRandomisers)
    assert isinstance(randomisers_for(SPACE, Csprng.from_os(), 10**4), ManyBaseRandomisers)


def test_drawing_nothing_gives_nothing():
    for source in SOURCES:
        assert len(source(SPACE, Csprng.from_os()).draw(0)) == 0
