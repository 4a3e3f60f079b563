"""The training loop of both sides over one plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.nn.plan import PlanFollower, TrainingPlan, scoring_chunks
from colonnade.nn.source import FeatureSource, LabelSource
from colonnade.protocol.matmul_messages import ForwardCall
from colonnade.ring import FixedMatrix

__all__ = [
    "BiasTop",
    "CallDone",
    "History",
    "Observer",
    "follow_prediction",
    "follow_training",
    "logistic_loss",
    "predict_label",
    "train_label",
]


@dataclass(frozen=True)
class CallDone:
    """One call of a plan is done; `loss` is known to the label party only."""

    epoch: int
    call: int
    calls: int
    part: str
    loss: float | None = None


Observer = Callable[[CallDone], None]


@dataclass
class History:
    """What a training run leaves at the label party.

    batch_loss: mean loss of every training batch; epoch_loss and validation_loss per epoch;
    test_logits: float64 (test rows, outputs), in the order of the plan's test rows.
    """

    batch_loss: list[float] = field(default_factory=list)
    epoch_loss: list[float] = field(default_factory=list)
    validation_loss: list[float] = field(default_factory=list)
    test_logits: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 1)))


class BiasTop(torch.nn.Module):
    """The top model of generalised linear models: adds a bias to Z."""

    def __init__(self, outputs: int = 1) -> None:
        super().__init__()
        self.bias = torch.nn.Parameter(torch.zeros(outputs, dtype=torch.float64))

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        """Z + b."""
        return z + self.bias


def logistic_loss(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Mean binary cross-entropy of logits (rows, 1) and labels (rows,)."""
    return torch.nn.functional.binary_cross_entropy_with_logits(logits[:, 0], y)


def train_label(
    source: LabelSource,
    top: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    x: FixedMatrix,
    y: torch.Tensor,
    plan: TrainingPlan,
    observer: Observer | None = None,
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = logistic_loss,
) -> History:
    """Train over the plan and score its test rows.

    x, y: this party's features and float64 labels in aligned order; optimizer: the top model's.
    """
    history, calls = History(), plan.total_calls
    sums = {"train": [0.0, 0.0], "validation": [0.0, 0.0]}
    test: list[NDArray[np.float64]] = []
    epoch = 0
    for done, planned in enumerate(plan.calls(), start=1):
        if planned.epoch != epoch:
            _close_epoch(history, sums)
            epoch = planned.epoch
        source.train(planned.mode == "train")
        logits = top(source(x.take(planned.rows), planned.rows))
        value = loss(logits, y[planned.rows])
        if planned.mode == "train":
            optimizer.zero_grad()
            value.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            source.step()
            history.batch_loss.append(float(value.detach()))
        if planned.part == "test":
            test.append(logits.detach().numpy())
        else:
            sums[planned.part][0] += float(value.detach()) * len(planned.rows)
            sums[planned.part][1] += len(planned.rows)
        if observer is not None:
            observer(CallDone(planned.epoch, done, calls, planned.part, float(value.detach())))
    if epoch < plan.epochs:
        _close_epoch(history, sums)
    if test:
        history.test_logits = np.concatenate(test)
    return history


def _close_epoch(history: History, sums: dict[str, list[float]]) -> None:
    for part, record in (("train", history.epoch_loss), ("validation", history.validation_loss)):
        total, rows = sums[part]
        if rows:
            record.append(total / rows)
        sums[part] = [0.0, 0.0]


def follow_training(
    source: FeatureSource, x: FixedMatrix, plan: TrainingPlan, observer: Observer | None = None
) -> None:
    """The feature party's loop: answer every call of the plan, in its order."""
    follower, calls = PlanFollower(plan), plan.total_calls

    def supply(call: ForwardCall) -> tuple[FixedMatrix, NDArray[np.int64] | None]:
        planned = follower.expect(call)
        if observer is not None:
            observer(CallDone(planned.epoch, call.call, calls, planned.part))
        return x.take(planned.rows), planned.rows

    source.follow(supply)
    follower.check_finished()


def predict_label(
    source: LabelSource,
    top: torch.nn.Module,
    x: FixedMatrix,
    observer: Observer | None = None,
) -> NDArray[np.float64]:
    """Logits of all rows of x, float64 (rows, outputs)."""
    chunks = scoring_chunks(np.arange(len(x), dtype=np.int64))
    out: list[NDArray[np.float64]] = []
    with torch.no_grad():
        for done, rows in enumerate(chunks, start=1):
            out.append(top(source(x.take(rows), predict=True)).numpy())
            if observer is not None:
                observer(CallDone(0, done, len(chunks), "predict"))
    return np.concatenate(out) if out else np.zeros((0, source.layer.spec.outputs))


def follow_prediction(
    source: FeatureSource, x: FixedMatrix, observer: Observer | None = None
) -> None:
    """The feature party's part of `predict_label`: every row exactly once, in order."""
    chunks = scoring_chunks(np.arange(len(x), dtype=np.int64))
    for done, rows in enumerate(chunks, start=1):
        source(x.take(rows), mode="predict")
        if observer is not None:
            observer(CallDone(0, done, len(chunks), "predict"))
    source.finish()
