"""The intersection protocol against Python's sets: results, common order, refusals."""

import os
import random
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psi_roles import CONTEXT, ONE, align, check_aligned, numbered, run_pair

from colonnade.errors import DataError, IntegrityError, PeerError, UsageError
from colonnade.protocol.psi import (
    Alignment,
    IdType,
    IntersectionTooSmallError,
    PsiLimits,
    align_feature,
    align_label,
    alignment_context,
    dh,
    encode_ids,
    group,
)
from colonnade.protocol.psi.messages import Begin, Confirm, Points, Tags, Verdict
from colonnade.transport.memory import memory_pair

FEW = settings(derandomize=True, max_examples=40, deadline=None)


@FEW
@given(
    st.sets(st.binary(max_size=3), min_size=1, max_size=12),
    st.sets(st.binary(max_size=3), min_size=1, max_size=12),
    st.sets(st.binary(max_size=3), min_size=1, max_size=5),
    st.integers(1, 5),
)
def test_any_two_sets_with_something_in_common(left, right, both, chunk):
    label_ids, feature_ids = sorted(left | both), sorted(right | both, reverse=True)
    sides = align(label_ids, feature_ids, limits=PsiLimits(chunk_ids=chunk))
    check_aligned(*sides, label_ids, feature_ids)


@pytest.mark.parametrize(
    ("label_numbers", "feature_numbers"),
    [
        ([5], [5]),
        ([5], range(10)),
        (range(10), [5]),
        (range(200), [3, 199, 777]),
        ([3, 199, 777], range(200)),
        (range(6), range(5, 11)),
    ],
)
def test_sizes_that_differ(label_numbers, feature_numbers):
    label_ids, feature_ids = numbered(*label_numbers), numbered(*feature_numbers)
    check_aligned(*align(label_ids, feature_ids), label_ids, feature_ids)


def test_identical_sets_lose_no_id_however_often():
    ids = numbered(*range(40))
    for _ in range(20):
        assert len(check_aligned(*align(ids, ids[::-1]), ids, ids[::-1])) == 40


def test_ids_of_every_length():
    ids = [bytes(size) for size in (0, 1, 127, 128, 255, 256, 65_535, 65_536)]
    label_ids, feature_ids = [*ids, b"label"], [b"feature", *ids]
    assert len(check_aligned(*align(label_ids, feature_ids), label_ids, feature_ids)) == 8


def test_composite_keys_and_types_meet_only_when_equal():
    types = [IdType.TEXT, IdType.TEXT]
    label_ids = encode_ids([["a,b", "ab", "x"], ["c", "c", "7"]], types)
    feature_ids = encode_ids([["a", "a", " x"], ["b,c", "bc", "7"]], types)
    feature_ids += encode_ids([["x"], [7]], [IdType.TEXT, IdType.INTEGER])
    shared = check_aligned(*align(label_ids, feature_ids), label_ids, feature_ids)
    assert shared == [label_ids[2]]


def test_threads_and_chunks_of_different_size_change_nothing():
    label_ids, feature_ids = numbered(*range(30)), numbered(*range(20, 60))
    done: list[tuple[int, int]] = []
    with ThreadPoolExecutor(3) as pool:
        sides = run_pair(
            lambda channel: align_label(
                channel,
                label_ids,
                CONTEXT,
                limits=PsiLimits(chunk_ids=4),
                map_=pool.map,
                progress=lambda *step: done.append(step),
            ),
            lambda channel: align_feature(
                channel, feature_ids, CONTEXT, min_intersection=10, limits=PsiLimits(chunk_ids=7)
            ),
        )
    check_aligned(*sides, label_ids, feature_ids)
    assert done == sorted(done)
    assert len(set(done)) == len(done)
    assert done[-1] == (70, 70)


def test_progress_counts_every_masked_id_on_both_sides():
    seen: dict[int, list[tuple[int, int]]] = {}
    align(
        numbered(1, 2, 3, 4),
        numbered(4, 5),
        progress=lambda *step: seen.setdefault(threading.get_ident(), []).append(step),
    )
    assert sorted(seen.values()) == sorted([[(3, 6), (4, 6), (6, 6)], [(3, 6), (4, 6), (6, 6)]])


# The common order


def test_the_order_depends_on_the_scalars_and_not_on_input_order():
    scalars = (group.random_scalar(), group.random_scalar())
    ids = numbered(*range(24))
    orders, digests = set(), set()
    for seed in range(3):
        label_ids, feature_ids = list(ids), list(ids)
        random.Random(seed).shuffle(label_ids)
        random.Random(-1 - seed).shuffle(feature_ids)
        sides = align(label_ids, feature_ids, scalars=scalars)
        orders.add(tuple(check_aligned(*sides, label_ids, feature_ids)))
        digests.add(sides[0].result.digest)
    assert len(orders) == len(digests) == 1
    fresh = align(ids, ids)
    assert tuple(check_aligned(*fresh, ids, ids)) not in orders
    assert fresh[0].result.digest not in digests


def test_tags_sort_and_match_as_bytes_do_even_with_zero_bytes():
    tags = [bytes(16), bytes(15) + b"\1", b"\1" + bytes(15), b"\1" * 15 + b"\0", b"\xff" * 16]
    shuffled = [tags[i] for i in (3, 0, 4, 1, 2)]
    rows, common = dh.match(b"".join(shuffled), b"".join(tags), [30, 0, 40, 10, 20])
    assert common == b"".join(sorted(tags))
    assert rows.tolist() == [0, 10, 20, 30, 40]
    rows, common = dh.match(b"".join(shuffled), b"\2" * 16, [30, 0, 40, 10, 20])
    assert (rows.tolist(), common) == ([], b"")


def test_the_digest_covers_order_and_context():
    one, two = b"\1" * 16, b"\2" * 16
    digests = [
        dh.order_digest(one + two, b"x"),
        dh.order_digest(two + one, b"x"),
        dh.order_digest(one, b"x"),
        dh.order_digest(one + two, b"y"),
    ]
    assert len(set(digests)) == 4


_BOTH_ROLES = """
import threading
from colonnade.protocol.psi import align_feature, align_label
from colonnade.transport.memory import memory_pair
label, feature = memory_pair()
ids = list({b"id-%d" % i for i in range(50)})
a, b = (3).to_bytes(32, "little"), (5).to_bytes(32, "little")
thread = threading.Thread(target=align_feature, args=(feature, ids[::-1], b"context"),
    kwargs=dict(min_intersection=1, insecure_scalar_for_tests=b))
thread.start()
found = align_label(label, ids, b"context", insecure_scalar_for_tests=a)
thread.join()
print(found.digest.hex(), [ids[row].decode() for row in found.rows])
"""


def test_hash_seeds_of_the_interpreter_change_nothing():
    outputs = set()
    for seed in ("1", "2"):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": seed,
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        command = [sys.executable, "-c", _BOTH_ROLES]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, timeout=60)
        outputs.add(done.stdout)
    assert len(outputs) == 1
    assert outputs.pop().count(b"id-") == 50


# Small, empty, and refused


def test_the_minimum_stops_before_the_label_party_learns_anything():
    label, feature = align(numbered(*range(10)), numbered(*range(7, 20)), min_intersection=4)
    for side in (label, feature):
        assert isinstance(side.error, IntersectionTooSmallError)
        assert "3" not in str(side.error)
    assert (label.error.size, feature.error.size) == (None, 3)
    assert feature.meter.outbox.keys() == {Begin.TAG, Points.TAG, Verdict.TAG}  # no tags left it
    assert [type(message) for message in label.view if not isinstance(message, Points)] == [
        Begin,
        Verdict,
    ]
    # Control: where the minimum is reached, the tags are in the same view.
    label, feature = align(numbered(*range(10)), numbered(*range(7, 20)), min_intersection=3)
    assert label.received(Tags)
    assert label.result.size == feature.result.size == 3


def test_the_stopped_view_is_the_same_for_every_size_below_the_minimum():
    def shape(view):
        return [(type(m), len(m.points) if isinstance(m, Points) else None) for m in view]

    shapes = [
        shape(
            align(numbered(*range(6)), numbered(*range(start, start + 6)), min_intersection=4)[
                0
            ].view
        )
        for start in (3, 5, 100)
    ]
    assert shapes[0] == shapes[1] == shapes[2]


def test_disjoint_sets_end_with_a_clear_message_on_both_sides():
    label, feature = align(numbered(1, 2, 3), numbered(4, 5))
    for side in (label, feature):
        assert isinstance(side.error, IntersectionTooSmallError)
        assert "same key columns" in str(side.error)
    assert feature.error.size == 0


@pytest.mark.parametrize(("label_count", "feature_count"), [(0, 3), (3, 0), (0, 0)])
def test_empty_sets_end_with_a_clear_message_on_both_sides(label_count, feature_count):
    sides = align(numbered(*range(label_count)), numbered(*range(feature_count)))
    for side, count in zip(sides, (label_count, feature_count), strict=True):
        assert isinstance(side.error, PeerError if count else DataError)
        assert "no ids to align" in str(side.error)


def test_repeated_own_ids_and_bad_arguments_are_usage_errors():
    channel = memory_pair()[0]
    with pytest.raises(UsageError, match="duplicate policy"):
        align_label(channel, numbered(1, 2, 1), CONTEXT)
    with pytest.raises(UsageError, match="duplicate policy"):
        align_feature(channel, numbered(1, 1), CONTEXT, min_intersection=1)
    with pytest.raises(UsageError, match="min_intersection"):
        align_feature(channel, numbered(1), CONTEXT, min_intersection=0)
    for values in ({"max_peer_ids": 0}, {"chunk_ids": 0}, {"chunk_ids": 65_537}):
        with pytest.raises(UsageError):
            PsiLimits(**values)
    assert channel.meter.sent_messages == 0


def test_another_context_is_refused_on_both_sides():
    other = alignment_context(b"session", "bank", "telecom", "colonnade-ids/1(integer)")
    sides = run_pair(
        lambda channel: align_label(channel, numbered(1), CONTEXT),
        lambda channel: align_feature(channel, numbered(1), other, min_intersection=1),
    )
    for side in sides:
        assert isinstance(side.error, IntegrityError)
        assert "types of the key columns" in str(side.error)


def test_the_context_is_length_prefixed():
    assert alignment_context(b"s", "ab", "c", "n") != alignment_context(b"s", "a", "bc", "n")


def test_the_context_separates_the_masked_ids():
    assert dh.mask(ONE, b"one", [b"id"]) != dh.mask(ONE, b"two", [b"id"])


def test_the_steps_in_the_docstring_are_those_in_the_code():
    source = Path(dh.__file__).read_text(encoding="utf-8")
    docstring, code = source.split('"""', 2)[1:]
    steps = set(re.findall(r"\b[AB][1-9]\b", docstring))
    assert steps == {*(f"A{i}" for i in range(1, 6)), *(f"B{i}" for i in range(1, 7))}
    assert set(re.findall(r"# ([AB][1-9])$", code, re.MULTILINE)) == steps


def test_every_message_says_what_it_leaks_and_costs_what_is_stated():
    sides = align(numbered(*range(1000)), numbered(*range(990, 1990)), limits=PsiLimits())
    rows = [row for side in sides for row in side.meter.outbox.values()]
    assert {row.tag for row in rows} == {
        kind.TAG for kind in (Begin, Points, Tags, Verdict, Confirm)
    }
    assert all(row.leaks for row in rows)
    assert 48 <= sum(side.meter.sent_bytes for side in sides) / 2000 < 48.5


def test_alignment_holds_rows_digest_and_size():
    found = Alignment(np.array([4, 2], dtype=np.int64), b"d" * 32)
    assert found.size == 2
