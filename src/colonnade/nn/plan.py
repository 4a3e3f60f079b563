"""The order of all calls of a training run: a function of public randomness and row positions only.

Both parties hold the same plan and walk it in step; the feature party refuses a call that is not
the next one in it, so the label party cannot choose rows (a sampler that looks at labels would
show them).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from colonnade.data.splits import Split, batch_schedule, split_rows
from colonnade.errors import PeerError, UsageError
from colonnade.protocol.matmul_messages import ForwardCall
from colonnade.protocol.matmul_spec import MatMulSpec

__all__ = ["PlanFollower", "PlannedCall", "TrainingPlan", "scoring_chunks"]

Rows = NDArray[np.int64]

# Rows of one evaluation call: large enough to fill packed ciphertexts, small enough for progress.
_CHUNK_ROWS = 1024


@dataclass(frozen=True)
class PlannedCall:
    """One forward call: its rows, in order, and what it is for."""

    epoch: int
    mode: str
    part: str
    rows: Rows


@dataclass(frozen=True)
class TrainingPlan:
    """Epochs over `rows` aligned records: batches, then validation; a test part at the end."""

    rows: int
    epochs: int
    batch_size: int
    seed: bytes
    test_fraction: float = 0.2
    validation_fraction: float = 0.0

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch_size < 2:
            raise UsageError(
                f"got {self.epochs} epochs and batches of {self.batch_size}; want at least 1 and 2"
            )

    @cached_property
    def split(self) -> Split:
        """Training, validation and test positions."""
        return split_rows(self.rows, self.test_fraction, self.validation_fraction, self.seed)

    def batches(self, epoch: int) -> list[Rows]:
        """Training batches of one epoch (0-based)."""
        return batch_schedule(self.split.train, self.batch_size, epoch, self.seed)

    @cached_property
    def largest_batch(self) -> int:
        """Rows of the largest training batch (a single last row is merged into its neighbour)."""
        return max(len(rows) for rows in self.batches(0))

    @property
    def steps_per_epoch(self) -> int:
        """Training batches of one epoch."""
        return len(self.batches(0))

    def calls(self) -> Iterator[PlannedCall]:
        """Every forward call of the run, in order."""
        for epoch in range(self.epochs):
            for rows in self.batches(epoch):
                yield PlannedCall(epoch, "train", "train", rows)
            for rows in scoring_chunks(self.split.validation):
                yield PlannedCall(epoch, "evaluate", "validation", rows)
        for rows in scoring_chunks(self.split.test):
            yield PlannedCall(self.epochs, "evaluate", "test", rows)

    @property
    def total_calls(self) -> int:
        """Number of forward calls."""
        return sum(1 for _ in self.calls())

    @property
    def rows_scored(self) -> int:
        """Rows scored in all calls together."""
        train = len(self.split.train) + len(self.split.validation)
        return self.epochs * train + len(self.split.test)

    @property
    def steps(self) -> int:
        """Updates of the whole run."""
        return self.epochs * self.steps_per_epoch

    def budgets(self, spec: MatMulSpec, *, decays: bool) -> tuple[float, float]:
        """log2 of the run's statistical distance of masks, and of its truncations failing.

        Raises
            UsageError: either is too large for this run.
        """
        distance = spec.mask_distance_log2(self.steps, self.rows_scored)
        return distance, spec.truncation_failure_log2(self.steps, self.rows_scored, decays=decays)

    @property
    def scorings(self) -> NDArray[np.int64]:
        """How often each row is scored in the whole run, int64 (rows,)."""
        counts = np.full(self.rows, self.epochs, dtype=np.int64)
        counts[self.split.test] = 1
        return counts


class PlanFollower:
    """The feature party's walk through the plan."""

    def __init__(self, plan: TrainingPlan) -> None:
        self._calls = plan.calls()

    def expect(self, call: ForwardCall) -> PlannedCall:
        """The planned call that `call` must be.

        Raises
            PeerError: the plan has ended, or mode or row count differ.
        """
        planned = next(self._calls, None)
        if planned is None:
            raise PeerError(f"got call {call.call} after the end of the agreed plan")
        if call.mode != planned.mode or call.rows != len(planned.rows):
            raise PeerError(
                f"got call {call.call} ({call.mode!r}, {call.rows} rows); the agreed plan says "
                f"({planned.mode!r}, {len(planned.rows)} rows)"
            )
        return planned

    def check_finished(self) -> None:
        """Check that the label party walked the whole plan.

        Raises
            PeerError: it finished early; both sides would then count different runs as done.
        """
        if next(self._calls, None) is not None:
            raise PeerError("the label party finished before the end of the agreed plan")


def scoring_chunks(rows: Rows) -> list[Rows]:
    """Cut positions into evaluation calls."""
    return [rows[i : i + _CHUNK_ROWS] for i in range(0, len(rows), _CHUNK_ROWS)]
