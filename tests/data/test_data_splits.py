"""Splits and batches: the same at both parties for ever, and blind to the data."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.data.splits import batch_schedule, largest_batch, public_order, split_rows
from colonnade.errors import DataError, UsageError

SEED = bytes(range(32))

# Made by `reference_order` below.
KNOWN_ORDER = [7, 11, 1, 3, 9, 6, 0, 10, 5, 4, 2, 8]
KNOWN_BATCHES = [[105, 108, 100, 103], [104, 106, 107, 102, 101]]


def reference_order(n: int, seed: bytes, purpose: bytes) -> list[int]:
    """The construction of the module's docstring in plain Python integers."""
    state = b"colonnade-order/1" + len(purpose).to_bytes(8, "little") + purpose
    state += len(seed).to_bytes(8, "little") + seed + n.to_bytes(8, "little")
    stream = hashlib.shake_256(state).digest(16 * n)
    tags = [int.from_bytes(stream[16 * i : 16 * i + 16], "big") for i in range(n)]
    return sorted(range(n), key=lambda i: (tags[i], i))


def test_known_answers() -> None:
    """They must never change: two parties of different versions rely on them."""
    assert public_order(12, SEED, b"split").tolist() == KNOWN_ORDER
    batches = batch_schedule(np.arange(100, 109, dtype=np.int64), 4, 3, SEED)
    assert [batch.tolist() for batch in batches] == KNOWN_BATCHES


@settings(derandomize=True, max_examples=30, deadline=None)
@given(st.integers(0, 300), st.binary(max_size=40), st.binary(max_size=9))
def test_order_is_the_documented_one(n: int, seed: bytes, purpose: bytes) -> None:
    order = public_order(n, seed, purpose)
    assert order.dtype == np.int64
    assert order.tolist() == reference_order(n, seed, purpose)


def test_seed_and_purpose_do_not_run_together() -> None:
    assert public_order(50, b"ab", b"c").tolist() != public_order(50, b"b", b"ca").tolist()
    assert public_order(50, b"", b"c").tolist() != public_order(50, b"\0", b"c").tolist()


def test_every_place_gets_every_row() -> None:
    firsts = [int(public_order(5, k.to_bytes(2, "little"), b"x")[0]) for k in range(1000)]
    # 200 expected each; 5 standard deviations of the binomial are 63.
    assert np.abs(np.bincount(firsts, minlength=5) - 200).max() < 63


@settings(derandomize=True, max_examples=40, deadline=None)
@given(st.integers(2, 400), st.floats(0, 0.45), st.floats(0, 0.45))
def test_a_split_has_every_row_once(n: int, test: float, validation: float) -> None:
    split = split_rows(n, test, validation, SEED)
    parts = [split.train, split.validation, split.test]
    assert sorted(np.concatenate(parts).tolist()) == list(range(n))
    assert all((np.diff(part) > 0).all() for part in parts)
    assert abs(len(split.test) - n * test) <= 0.5
    assert abs(len(split.validation) - n * validation) <= 0.5


def test_splits_that_cannot_be() -> None:
    assert len(split_rows(10, 0.0, 0.0, SEED).train) == 10
    for test, validation in ((1.0, 0.0), (-0.1, 0.0), (0.0, float("nan"))):
        with pytest.raises(UsageError, match="_fraction"):
            split_rows(10, test, validation, SEED)
    with pytest.raises(UsageError, match="at least one for training"):
        split_rows(4, 0.5, 0.5, SEED)
    with pytest.raises(UsageError, match="at least one for training"):
        split_rows(0, 0.2, 0.0, SEED)


@settings(derandomize=True, max_examples=80, deadline=None)
@given(st.integers(2, 120), st.integers(2, 150), st.integers(1, 5), st.integers(0, 9))
def test_an_epoch_has_every_row_once(n: int, batch_size: int, min_batch: int, epoch: int) -> None:
    if not min_batch <= min(n, batch_size):
        return
    rows = np.arange(1000, 1000 + n, dtype=np.int64)
    batches = batch_schedule(rows, batch_size, epoch, SEED, min_batch)
    assert sorted(np.concatenate(batches).tolist()) == rows.tolist()
    sizes = [len(batch) for batch in batches]
    assert min(sizes) >= min_batch
    assert max(sizes) == largest_batch(n, batch_size, min_batch)
    assert set(sizes[:-1]) <= {batch_size}


def test_batch_sizes() -> None:
    def sizes(n: int, batch_size: int) -> list[int]:
        return [len(b) for b in batch_schedule(np.arange(n), batch_size, 0, SEED)]

    assert sizes(5, 100) == [5], "a batch larger than the data is the data"
    assert sizes(9, 4) == [4, 5], "a last batch of one row joins the one before"
    assert sizes(10, 4) == [4, 4, 2]
    assert sizes(3, 2) == [3]


def test_epochs_differ_and_repeat() -> None:
    def epoch(number: int) -> list[int]:
        return np.concatenate(batch_schedule(np.arange(60), 8, number, SEED)).tolist()  # type: ignore[no-any-return]

    assert epoch(0) == epoch(0)
    assert len({tuple(epoch(number)) for number in range(20)}) == 20


def test_schedules_that_cannot_be() -> None:
    with pytest.raises(DataError, match="got 1 rows to train on"):
        batch_schedule(np.arange(1), 4, 0, SEED)
    with pytest.raises(UsageError, match="batch_size 1"):
        batch_schedule(np.arange(8), 1, 0, SEED)
    with pytest.raises(UsageError, match="epoch -1"):
        batch_schedule(np.arange(8), 4, -1, SEED)
