"""The plan of a run: public, complete, and followed to the letter by the feature party."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from colonnade.errors import DataError, PeerError, UsageError
from colonnade.nn.plan import PlanFollower, PlannedCall, TrainingPlan, scoring_chunks
from colonnade.protocol.matmul_messages import ForwardCall

QUICK = examples(derandomize=True, max_examples=40, deadline=None)
plans = st.builds(
    TrainingPlan,
    rows=st.integers(10, 60),
    epochs=st.integers(1, 3),
    batch_size=st.integers(2, 70),
    seed=st.binary(max_size=4),
    test_fraction=st.sampled_from([0.0, 0.2, 0.5]),
    validation_fraction=st.sampled_from([0.0, 0.1]),
)


def joined(calls: list[PlannedCall]) -> list[int]:
    return sorted(int(row) for call in calls for row in call.rows)


@QUICK
@given(plans)
def test_every_row_is_used_where_it_belongs(plan):
    calls = list(plan.calls())
    split = plan.split
    parts = [split.train, split.validation, split.test]
    assert sorted(np.concatenate(parts).tolist()) == list(range(plan.rows))
    for epoch in range(plan.epochs):
        of_epoch = [call for call in calls if call.epoch == epoch]
        assert joined([c for c in of_epoch if c.part == "train"]) == split.train.tolist()
        assert joined([c for c in of_epoch if c.part == "validation"]) == split.validation.tolist()
    assert joined([c for c in calls if c.part == "test"]) == split.test.tolist()
    assert all((call.mode == "train") == (call.part == "train") for call in calls)
    # Training comes before validation in an epoch, and the test part last.
    order = {"train": 0, "validation": 1, "test": 2}
    assert [(c.epoch, order[c.part]) for c in calls] == sorted(
        (c.epoch, order[c.part]) for c in calls
    )


@QUICK
@given(plans)
def test_counts_are_those_of_the_calls(plan):
    calls = list(plan.calls())
    train = [call for call in calls if call.mode == "train"]
    assert plan.total_calls == len(calls)
    assert plan.epochs * plan.steps_per_epoch == len(train)
    assert plan.largest_batch == max(len(call.rows) for call in train)
    assert plan.rows_scored == sum(len(call.rows) for call in calls)
    scored = np.bincount([r for call in calls for r in call.rows], minlength=plan.rows)
    assert plan.scorings.tolist() == scored.tolist()


@QUICK
@given(plans)
def test_no_batch_has_a_single_row(plan):
    for call in plan.calls():
        if call.mode == "train":
            assert 2 <= len(call.rows) <= max(2, plan.batch_size + 1)


def test_the_order_follows_from_the_seed_alone_and_is_new_in_each_epoch():
    one, same, other = (TrainingPlan(50, 2, 10, seed) for seed in (b"a", b"a", b"b"))

    def rows(plan: TrainingPlan) -> list[list[int]]:
        return [call.rows.tolist() for call in plan.calls()]

    assert rows(one) == rows(same) != rows(other)
    first, second = ([r.tolist() for r in one.batches(epoch)] for epoch in (0, 1))
    assert first != second


def test_the_first_batch_of_a_known_seed_stays_what_it_is():
    """Both parties must get the same rows on every platform and in every version."""
    plan = TrainingPlan(10, 1, 4, b"known", test_fraction=0.2)
    # Worked out apart from the package, from the definition in `colonnade.data.splits`.
    assert plan.split.test.tolist() == [1, 5]
    assert [rows.tolist() for rows in plan.batches(0)] == [[8, 0, 4, 2], [7, 3, 9, 6]]


def test_impossible_plans_are_refused():
    for epochs, batch_size in ((0, 4), (1, 1)):
        with pytest.raises(UsageError, match="want at least 1 and 2"):
            TrainingPlan(10, epochs, batch_size, b"")
    with pytest.raises(DataError, match="got 1 rows to train on"):
        list(TrainingPlan(2, 1, 4, b"", test_fraction=0.5).calls())
    with pytest.raises(UsageError, match="test_fraction"):
        list(TrainingPlan(10, 1, 4, b"", test_fraction=1.0).calls())


def test_scoring_is_cut_into_chunks_in_order():
    chunks = scoring_chunks(np.arange(2500))
    assert [len(chunk) for chunk in chunks] == [1024, 1024, 452]
    np.testing.assert_array_equal(np.concatenate(chunks), np.arange(2500))
    assert scoring_chunks(np.arange(0)) == []


PLAN = TrainingPlan(12, 1, 5, b"s", test_fraction=0.25)  # batches of 5 and 4, then 3 test rows


def forward_call(number: int, mode: str, rows: int) -> ForwardCall:
    return ForwardCall(call=number, mode=mode, rows=rows, new_rows=0, kept=b"", payload=b"")


def test_the_follower_gives_the_planned_rows():
    follower, calls = PlanFollower(PLAN), list(PLAN.calls())
    assert [(c.mode, len(c.rows)) for c in calls] == [("train", 5), ("train", 4), ("evaluate", 3)]
    for number, planned in enumerate(calls, start=1):
        got = follower.expect(forward_call(number, planned.mode, len(planned.rows)))
        np.testing.assert_array_equal(got.rows, planned.rows)
    with pytest.raises(PeerError, match="got call 4 after the end of the agreed plan"):
        follower.expect(forward_call(4, "evaluate", 3))


@pytest.mark.parametrize(("mode", "rows"), [("evaluate", 5), ("predict", 5), ("train", 4)])
def test_the_follower_refuses_calls_out_of_plan(mode, rows):
    with pytest.raises(PeerError) as caught:
        PlanFollower(PLAN).expect(forward_call(1, mode, rows))
    assert f"got call 1 ('{mode}', {rows} rows); the agreed plan says ('train', 5 rows)" in str(
        caught.value
    )


def test_a_run_that_ends_early_is_no_finished_run():
    follower = PlanFollower(TrainingPlan(20, 1, 8, b"s", test_fraction=0.2))
    with pytest.raises(PeerError, match="before the end of the agreed plan"):
        follower.check_finished()
