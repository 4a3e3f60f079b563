"""Training runs of one MatMul layer with everything recorded, for the tests of protocol and nn."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from colonnade.crypto import PrivateKey
from colonnade.errors import ColonnadeError
from colonnade.nn.plan import PlanFollower, PlannedCall, TrainingPlan
from colonnade.nn.source import FeatureSource, LabelSource
from colonnade.nn.training import logistic_loss
from colonnade.protocol.agreement import (
    KeyChoice,
    LayerSettings,
    Resources,
    agree_feature,
    agree_label,
)
from colonnade.protocol.matmul import FeatureMatMul, LabelMatMul
from colonnade.protocol.matmul_steps import FeatureState, LabelState
from colonnade.ring import WEIGHT_BITS, Csprng, FixedMatrix, Streams
from colonnade.simulation import run_pair
from colonnade.transport.memory import memory_pair
from colonnade.wire.channel import Channel, Meter
from colonnade.wire.messages import Message

# A p-value below which a test on fresh randomness fails: less than once in a million runs.
RARE = 1e-6

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Game:
    """The data of both parties and what they agreed on."""

    x_a: FixedMatrix
    x_b: FixedMatrix
    y: np.ndarray
    plan: TrainingPlan
    settings: LayerSettings
    loss: Loss = logistic_loss

    def with_labels(self, y: np.ndarray) -> "Game":
        return replace(self, y=y)

    def with_settings(self, **changes: Any) -> "Game":
        return replace(self, settings=replace(self.settings, **changes))


@dataclass
class Played:
    """What a run leaves; the test sees both sides' secrets.

    label_view, feature_view: all messages each side received; z: Z of every planned call; dz:
    dL/dZ of every training call; label_state0, feature_state0: shares before the first call.
    """

    game: Game
    label: LabelMatMul
    feature: FeatureMatMul
    label_state0: LabelState
    feature_state0: FeatureState
    label_view: list[Message] = field(default_factory=list)
    feature_view: list[Message] = field(default_factory=list)
    z: list[np.ndarray] = field(default_factory=list)
    dz: list[np.ndarray] = field(default_factory=list)

    @property
    def calls(self) -> list[PlannedCall]:
        return list(self.game.plan.calls())

    @property
    def w_a(self) -> np.ndarray:
        return (self.feature.state.u_a + self.label.state.v_a).to_float(WEIGHT_BITS)

    @property
    def w_b(self) -> np.ndarray:
        state = self.feature.state
        return (self.label.state.u_b + state.decay.apply(state.v_b)).to_float(WEIGHT_BITS)

    @property
    def initial_w_a(self) -> np.ndarray:
        return (self.feature_state0.u_a + self.label_state0.v_a).to_float(WEIGHT_BITS)

    @property
    def initial_w_b(self) -> np.ndarray:
        return (self.label_state0.u_b + self.feature_state0.v_b).to_float(WEIGHT_BITS)

    def key_of(self, layer: LabelMatMul | FeatureMatMul) -> PrivateKey:
        owner = layer._context.engine._own
        return PrivateKey(owner._p.prime, owner._q.prime)

    def received(self, view: list[Message], kind: type[Message]) -> list[Any]:
        return [message for message in view if isinstance(message, kind)]


@dataclass
class Side:
    """What one role returned or raised, and what it sent."""

    result: Any = None
    error: ColonnadeError | None = None
    meter: Meter = field(default_factory=Meter)


def run_sides(
    label: Callable[[Channel], Any], feature: Callable[[Channel], Any]
) -> tuple[Side, Side]:
    """Both roles in two threads; where one fails its channel is closed, as a runner does."""
    sides = Side(), Side()

    def work(side: Side, channel: Channel, role: Callable[[Channel], Any]) -> None:
        side.meter = channel.meter
        try:
            side.result = role(channel)
        except ColonnadeError as error:
            side.error = error
        finally:
            channel.close()

    channels = memory_pair(timeout_s=20)
    thread = threading.Thread(target=work, args=(sides[1], channels[1], feature))
    thread.start()
    work(sides[0], channels[0], label)
    thread.join(30)
    assert not thread.is_alive()
    return sides


def resources(side: str, seed: str | None, bits: int) -> Resources:
    streams = Streams.from_os() if seed is None else Streams.from_seed_for_tests(f"{seed}/{side}")
    return Resources(streams, KeyChoice(insecure_bits=bits))


def play(game: Game, *, keep: bool = True, seed: str | None = None, bits: int = 256) -> Played:
    """Walk the game's plan with both parties; `keep`: keep X_B V_B shares between calls."""
    kept = game.plan.rows if keep else 0
    z: list[np.ndarray] = []
    dz: list[np.ndarray] = []

    def label_role(channel):
        layer = agree_label(
            channel,
            game.x_b,
            game.settings,
            resources("label", seed, bits),
            kept_rows=kept,
            expected_calls=2 * game.plan.total_calls,
        )
        before, source = layer.state, LabelSource(layer)
        y = torch.from_numpy(game.y)
        for call in game.plan.calls():
            source.train(call.mode == "train")
            out = source(game.x_b.take(call.rows), call.rows if keep else None)
            z.append(out.detach().numpy().copy())
            if call.mode == "train":
                out.register_hook(lambda gradient: dz.append(gradient.numpy().copy()))
                game.loss(out, y[call.rows]).backward()
                source.step()
        source.finish()
        return layer, before

    def feature_role(channel):
        layer = agree_feature(
            channel,
            game.x_a,
            resources("feature", seed, bits),
            kept_rows=kept,
            engine=game.settings.engine,
        )
        before, follower = layer.state, PlanFollower(game.plan)

        def supply(call):
            rows = follower.expect(call).rows
            return game.x_a.take(rows), rows if keep else None

        FeatureSource(layer).follow(supply)
        return layer, before

    label, feature, label_end, feature_end = run_pair(label_role, feature_role, timeout_s=60)
    return Played(
        game, label[0], feature[0], label[1], feature[1], label_end.view, feature_end.view, z, dz
    )


def whole_columns(rows: int, columns: int, rng: np.random.Generator, top: int = 3) -> FixedMatrix:
    values = rng.integers(-top, top + 1, (rows, columns)).astype(np.float64)
    return FixedMatrix.encode(values, [True] * columns, [top] * columns)


def real_columns(rows: int, columns: int, rng: np.random.Generator) -> FixedMatrix:
    values = rng.normal(size=(rows, columns)).clip(-8, 8)
    return FixedMatrix.encode(values, [False] * columns, [8] * columns)


def mixed_columns(rows: int, rng: np.random.Generator) -> FixedMatrix:
    """Two whole and two real columns."""
    values = np.hstack([rng.integers(-3, 4, (rows, 2)), rng.normal(size=(rows, 2)).clip(-8, 8)])
    return FixedMatrix.encode(values, [True, True, False, False], [3, 3, 8, 8])


def linear_labels(x: FixedMatrix, rng: np.random.Generator) -> np.ndarray:
    """0/1 labels that a linear model of x predicts well."""
    score = np.asarray(x.decode()) @ rng.normal(size=x.shape[1])
    return (score + 0.3 * rng.normal(size=len(x)) > np.median(score)).astype(np.float64)


def settings(plan: TrainingPlan, **changes: Any) -> LayerSettings:
    """One output under the engine without cryptography, unless `changes` say otherwise."""
    options = {"outputs": 1, "learning_rate": 0.1, "engine": "insecure_plain"}
    return LayerSettings(batch_rows=plan.largest_batch, **(options | changes))


def small_game(*, engine: str = "paillier", epochs: int = 2, rows: int = 40) -> Game:
    """Whole columns at A, mixed ones at B; batches of up to 20."""
    rng = np.random.default_rng(3)
    x_a, x_b = whole_columns(rows, 6, rng), mixed_columns(rows, rng)
    plan = TrainingPlan(rows, epochs, 20, b"views", test_fraction=0.0)
    return Game(x_a, x_b, linear_labels(x_a, rng), plan, settings(plan, engine=engine))


@cache
def breast_cancer(epochs: int = 3, batch_size: int = 64) -> Game:
    """scikit-learn's breast cancer records: 18 standardised columns at A, 12 at B, 80/20."""
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    at_b = [any(f in name for f in FACTS_OF_B) for name in data.feature_names]
    x = ((data.data - data.data.mean(axis=0)) / data.data.std(axis=0)).clip(-8, 8)
    sides = [x[:, ~np.array(at_b)], x[:, np.array(at_b)]]
    x_a, x_b = (
        FixedMatrix.encode(s, [False] * s.shape[1], [8] * s.shape[1], where="breast cancer")
        for s in sides
    )
    plan = TrainingPlan(len(x), epochs, batch_size, b"breast cancer", test_fraction=0.2)
    return Game(x_a, x_b, data.target.astype(np.float64), plan, settings(plan, learning_rate=0.05))


FACTS_OF_B = ("texture", "smoothness", "symmetry", "fractal dimension")


def real_set(name: str, epochs: int) -> Game:
    """A set of the data folder, columns split in half, train and test rows cut 80/20."""
    import scipy.sparse as sp

    from colonnade.data import real

    train, y_train, test, y_test = getattr(real, f"load_{name}")()
    x, y = sp.vstack([train, test]).tocsr(), np.concatenate([y_train, y_test]).astype(np.float64)
    cut = x.shape[1] // 2
    x_a, x_b = (
        FixedMatrix.encode(s, [True] * s.shape[1], [1] * s.shape[1])
        for s in (x[:, :cut], x[:, cut:])
    )
    plan = TrainingPlan(len(y), epochs, 128, b"views", test_fraction=0.2)
    return Game(x_a, x_b, y, plan, settings(plan, learning_rate=0.05))


class Repeating(Csprng):
    """A stream that starts over at every draw."""

    def __init__(self, seed: bytes | None) -> None:
        super().__init__(seed)
        self._pad = super().bytes(1 << 14)

    def bytes(self, count: int) -> bytes:
        return self._pad[:count]


def repeat_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    def from_os(cls: type[Streams]) -> Streams:
        return cls(Repeating(None), *(Csprng.from_os() for _ in range(3)))

    monkeypatch.setattr(Streams, "from_os", classmethod(from_os))
