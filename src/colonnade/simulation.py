"""Both parties in one process, over an in-memory channel: for tests, benchmarks and audits.

`simulate` runs a training plan with recorded views, optionally from injected streams. It sees both
sides' secrets, which is what makes lossless comparisons and attacks on views possible; real runs go
through `colonnade.party`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.nn.plain import PlainRegression
from colonnade.nn.plan import TrainingPlan
from colonnade.nn.source import FeatureSource, LabelSource
from colonnade.nn.training import BiasTop, History, follow_training, train_label
from colonnade.protocol.agreement import (
    KeyChoice,
    LayerSettings,
    Resources,
    agree_feature,
    agree_label,
)
from colonnade.protocol.matmul import FeatureMatMul, LabelMatMul
from colonnade.ring import WEIGHT_BITS, FixedMatrix, Streams
from colonnade.transport.memory import memory_pair
from colonnade.wire.channel import Channel, RecordingChannel

__all__ = ["SimulatedRun", "Twin", "run_pair", "simulate"]

_L = TypeVar("_L")
_F = TypeVar("_F")


def run_pair(
    label: Callable[[Channel], _L], feature: Callable[[Channel], _F], *, timeout_s: float = 600.0
) -> tuple[_L, _F, RecordingChannel, RecordingChannel]:
    """Run two roles in two threads over a memory pair with recorded views.

    Returns both results and both recording channels (label's first). The first error of either
    role is raised once both threads have ended.
    """
    ends = [RecordingChannel(end) for end in memory_pair(timeout_s=timeout_s)]
    results: list[Any] = [None, None]
    errors: list[BaseException] = []

    def work(side: int, role: Callable[[Channel], Any]) -> None:
        try:
            results[side] = role(ends[side])
        except BaseException as error:  # noqa: BLE001 (raised again in the caller's thread)
            errors.append(error)
        finally:
            ends[side].close()

    thread = threading.Thread(target=work, args=(1, feature), daemon=True)
    thread.start()
    work(0, label)
    thread.join(timeout_s)
    if errors:
        raise errors[0]
    return results[0], results[1], ends[0], ends[1]


@dataclass(frozen=True)
class SimulatedRun:
    """What a simulated training run leaves: both roles, the top model, history and views."""

    label: LabelMatMul
    feature: FeatureMatMul
    top: BiasTop
    history: History
    initial_w_a: NDArray[np.float64]
    initial_w_b: NDArray[np.float64]
    label_channel: RecordingChannel
    feature_channel: RecordingChannel

    @property
    def w_a(self) -> NDArray[np.float64]:
        """The opened weights W_A = U_A + V_A, float64."""
        return (self.feature.state.u_a + self.label.state.v_a).to_float(WEIGHT_BITS)

    @property
    def w_b(self) -> NDArray[np.float64]:
        """The opened weights W_B = U_B + V_B, float64."""
        state = self.feature.state
        v_b = state.decay.apply(state.v_b)
        return (self.label.state.u_b + v_b).to_float(WEIGHT_BITS)


def simulate(
    x_a: FixedMatrix,
    x_b: FixedMatrix,
    y: NDArray[np.float64],
    plan: TrainingPlan,
    settings: LayerSettings,
    *,
    key: KeyChoice | None = None,
    streams_seed: str | None = None,
    wrap: Callable[[LabelSource], LabelSource] | None = None,
) -> SimulatedRun:
    """Train a logistic model over `plan` with both parties in this process.

    streams_seed: inject reproducible streams (tests only); wrap: replaces the label party's source
    (to observe or break it).
    """
    key = key or KeyChoice()

    def resources(side: str) -> Resources:
        if streams_seed is None:
            return Resources(Streams.from_os(), key)
        return Resources(Streams.from_seed_for_tests(f"{streams_seed}/{side}"), key)

    first: dict[str, Any] = {}

    def label_role(channel: Channel) -> tuple[LabelMatMul, BiasTop, History]:
        layer = agree_label(
            channel,
            x_b,
            settings,
            resources("label"),
            kept_rows=plan.rows,
            expected_calls=2 * plan.total_calls,
        )
        first["label"] = layer.state
        source, top = LabelSource(layer), BiasTop(settings.outputs)
        if wrap is not None:
            source = wrap(source)
        sgd = settings.sgd()
        optimizer = torch.optim.SGD(
            top.parameters(),
            lr=sgd.learning_rate.value,
            momentum=sgd.momentum.value,
            weight_decay=sgd.weight_decay.value,
        )
        history = train_label(source, top, optimizer, x_b, torch.from_numpy(y), plan)
        source.finish()
        return layer, top, history

    def feature_role(channel: Channel) -> FeatureMatMul:
        layer = agree_feature(
            channel, x_a, resources("feature"), kept_rows=plan.rows, engine=settings.engine
        )
        first["feature"] = layer.state
        follow_training(FeatureSource(layer), x_a, plan)
        return layer

    (label, top, history), feature, label_end, feature_end = run_pair(label_role, feature_role)
    return SimulatedRun(
        label,
        feature,
        top,
        history,
        (first["feature"].u_a + first["label"].v_a).to_float(WEIGHT_BITS),
        (first["label"].u_b + first["feature"].v_b).to_float(WEIGHT_BITS),
        label_end,
        feature_end,
    )


class Twin(PlainRegression):
    """The same run in float64 on joined data: same batches, initial weights, rounded constants
    and rounded X; what "lossless" is measured against.
    """

    def __init__(
        self,
        x_a: FixedMatrix,
        x_b: FixedMatrix,
        settings: LayerSettings,
        w_a: NDArray[np.float64],
        w_b: NDArray[np.float64],
    ) -> None:
        super().__init__([x_a.decode(), x_b.decode()], settings.sgd(), [w_a, w_b])
