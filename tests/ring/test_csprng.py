"""Secret randomness: fresh keys, never shared, never stored, uniform."""

import copy
import math
import os
import pickle

import numpy as np
import pytest
from scipy import stats

from colonnade.errors import UsageError
from colonnade.ring import WEIGHT_BITS, Csprng, Streams
from colonnade.ring import csprng as module


def bit_frequency(data: bytes) -> float:
    """Deviation of the share of ones from a half, in standard deviations."""
    ones = int(np.unpackbits(np.frombuffer(data, np.uint8)).sum())
    return (ones - 4 * len(data)) / math.sqrt(2 * len(data))


def test_streams_from_the_operating_system_are_all_different():
    drawn = [Csprng.from_os().bytes(16) for _ in range(20)]
    for streams in (Streams.from_os(), Streams.from_seed_for_tests("s")):
        drawn += [s.bytes(16) for s in (streams.masks, streams.weights, streams.randomisers)]
    assert len(set(drawn)) == len(drawn)


def test_a_stream_never_repeats_itself():
    stream = Csprng.from_os()
    assert len({stream.bytes(16) for _ in range(1000)}) == 1000


def test_seeded_streams_repeat_and_depend_on_their_seed():
    one, same, other = (Csprng.from_seed_for_tests(s) for s in ("a", "a", "b"))
    drawn = one.bytes(64)
    assert drawn == same.bytes(64) != other.bytes(64)


@pytest.mark.parametrize("make", [Csprng.from_os, lambda: Csprng.from_seed_for_tests("s")])
def test_a_forked_child_draws_other_bytes_than_its_parent(make):
    stream = make()
    stream.bytes(1)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, stream.bytes(32))
        os._exit(0)
    os.waitpid(child, 0)
    of_child = os.read(read, 32)
    os.close(read)
    os.close(write)
    assert len(of_child) == 32
    assert of_child != stream.bytes(32)


def test_a_stream_is_keyed_afresh_before_it_runs_long(monkeypatch):
    monkeypatch.setattr(module, "_REKEY_BYTES", 64)
    keys = []
    urandom = os.urandom
    monkeypatch.setattr(module.os, "urandom", lambda n: keys.append(urandom(n)) or keys[-1])
    stream = Csprng.from_os()
    drawn = [stream.bytes(40) for _ in range(3)]
    assert len(set(keys)) == len(keys) == 3
    assert len(set(drawn)) == 3


@pytest.mark.parametrize("store", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_stream_cannot_be_stored_or_copied(store):
    with pytest.raises(UsageError, match="stored"):
        store(Csprng.from_os())
    with pytest.raises(UsageError, match="stored"):
        pickle.dumps(Streams.from_os())


def test_reprs_show_neither_seed_nor_key():
    assert repr(Csprng.from_seed_for_tests("my seed")) == "Csprng(<redacted>)"
    assert "my seed" not in repr(Streams.from_seed_for_tests("my seed"))


@pytest.mark.parametrize("bits", [1, 8, 13, 64, 135])
def test_uniform_bits_fill_their_range_and_nothing_above_it(bits):
    rows = Csprng.from_os().uniform_bits(4000, bits)
    assert rows.shape == (4000, -(-bits // 8))
    ones = np.unpackbits(rows, axis=1, bitorder="little").sum(axis=0).astype(int)
    assert ones[bits:].sum() == 0
    # Every bit is balanced: six standard deviations of a binomial, for 135 bits below 2^-21.
    assert np.abs(ones[:bits] - 2000).max() < 6 * math.sqrt(1000)


def test_output_passes_a_monobit_and_a_byte_frequency_test():
    data = Csprng.from_os().bytes(1 << 16)
    assert abs(bit_frequency(data)) < 6
    counts = np.bincount(np.frombuffer(data, np.uint8), minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-8


def test_the_frequency_tests_see_a_bias_of_two_percent():
    data = np.frombuffer(Csprng.from_os().bytes(1 << 16), np.uint8).copy()
    data[: len(data) // 25] |= 0xF0
    assert abs(bit_frequency(data.tobytes())) > 6
    assert stats.chisquare(np.bincount(data, minlength=256)).pvalue < 1e-8


@pytest.mark.parametrize("bound", [2, 3, 5, 250])
def test_integers_below_a_bound_are_uniform(bound):
    drawn = Csprng.from_os().integers_below(bound, 200 * bound)
    counts = np.bincount(drawn, minlength=bound)
    assert len(counts) == bound
    assert stats.chisquare(counts).pvalue > 1e-8


def test_the_only_integer_below_one_is_zero():
    assert Csprng.from_os().integers_below(1, 3) == [0, 0, 0]


def test_large_bounds_are_respected():
    bound = 2**200 + 1
    drawn = Csprng.from_os().integers_below(bound, 50)
    assert 0 <= min(drawn) <= max(drawn) < bound
    assert len(set(drawn)) == 50


def test_initial_weights_are_normal_with_the_asked_deviation():
    weights = Csprng.from_os().normal_z128((50, 80), 0.1, WEIGHT_BITS).to_float(WEIGHT_BITS)
    assert weights.shape == (50, 80)
    assert stats.kstest(weights.reshape(-1) / 0.1, "norm").pvalue > 1e-8
    assert len(np.unique(weights)) == weights.size
