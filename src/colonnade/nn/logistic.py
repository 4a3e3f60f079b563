"""scikit-learn-like estimators for both sides of a federated logistic regression.

The label party fits `VerticalLogisticRegression` while the feature party fits `FeatureContributor`
over the other end of the same channel; each call on one side meets the call of the same name on the
other. With `ids` the rows are first aligned by private set intersection; without, row i must be the
same record on both sides already. Where a call fails, the other side is told and the channel is
closed.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

from colonnade.errors import DataError, PeerError, UsageError
from colonnade.nn.estimator_calls import (
    FitCall,
    OutputCount,
    PredictCall,
    align_rows,
    encode_matrix,
)
from colonnade.nn.plain import sigmoid
from colonnade.nn.plan import TrainingPlan
from colonnade.nn.source import FeatureSource, LabelSource
from colonnade.nn.training import (
    BiasTop,
    follow_prediction,
    follow_training,
    predict_label,
    train_label,
)
from colonnade.protocol.agreement import (
    KeyChoice,
    LayerSettings,
    Resources,
    agree_feature,
    agree_label,
)
from colonnade.protocol.matmul import FeatureMatMul
from colonnade.protocol.matmul_steps import FeatureState, LabelState
from colonnade.ring import FixedMatrix, Streams
from colonnade.wire.channel import Channel
from colonnade.wire.runner import run_role

__all__ = ["FeatureContributor", "VerticalLogisticRegression", "encode_matrix"]

# The longest public seed that a label party may send.
_MAX_SEED_BYTES = 64
# Masks narrower than the default would let values show through.
_MIN_MASK_BITS = 64


class _Side(BaseEstimator):  # type: ignore[misc]
    """Helpers that both sides share."""

    def _resources(self) -> Resources:
        key = KeyChoice(self.key_bits, self.insecure_key_bits)
        return Resources(Streams.from_os(), key, self.threads)

    def _check_fitted(self) -> None:
        if not hasattr(self, "state_"):
            raise UsageError("this estimator is not fitted; call fit first")


class VerticalLogisticRegression(ClassifierMixin, _Side):  # type: ignore[misc]
    """The label party's estimator.

    epochs, batch_size, learning_rate, momentum, weight_decay: momentum SGD on the mean logistic
    loss; engine: "paillier" or "insecure_plain"; key_bits: 2048 or 3072 (insecure_key_bits: a
    smaller size, for tests); initial_scale: deviation of the secret initial weights; max_abs:
    declared range of plain arrays; seed: public randomness of the row order (default: drawn).

    After `fit`: `classes_`, `state_` (this party's shares), `top_`, `history_`, `aligned_rows_`.
    """

    def __init__(
        self,
        *,
        epochs: int = 10,
        batch_size: int = 128,
        learning_rate: float = 0.05,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        engine: str = "paillier",
        key_bits: int = 2048,
        insecure_key_bits: int | None = None,
        initial_scale: float = 0.05,
        max_abs: float = 64.0,
        threads: int = 1,
        seed: bytes | None = None,
    ) -> None:
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.engine = engine
        self.key_bits = key_bits
        self.insecure_key_bits = insecure_key_bits
        self.initial_scale = initial_scale
        self.max_abs = max_abs
        self.threads = threads
        self.seed = seed

    def fit(
        self, X: Any, y: Any, *, channel: Channel, ids: Sequence[object] | None = None
    ) -> VerticalLogisticRegression:
        """Train together with the feature party at the other end of `channel`."""
        return run_role(channel, lambda end: self._fit(end, X, y, ids))

    def _fit(
        self, channel: Channel, x: Any, y: Any, ids: Sequence[object] | None
    ) -> VerticalLogisticRegression:
        matrix = encode_matrix(x, self.max_abs)
        labels = np.asarray(y)
        classes = np.unique(labels)
        if labels.shape != (len(matrix),) or len(classes) != 2:
            raise DataError(
                f"got labels of shape {labels.shape} with {len(classes)} classes; want "
                f"({len(matrix)},) with two"
            )
        aligned = align_rows(channel, matrix, ids, leads=True)
        matrix, rows = aligned.matrix, len(aligned.matrix)
        seed = self.seed if self.seed is not None else secrets.token_bytes(16)
        plan = TrainingPlan(rows, self.epochs, self.batch_size, seed, test_fraction=0.0)
        settings = self._settings(plan.largest_batch)
        channel.send(FitCall(rows=rows, epochs=self.epochs, batch_size=self.batch_size, seed=seed))
        layer = agree_label(
            channel,
            matrix,
            settings,
            self._resources(),
            kept_rows=rows,
            expected_calls=2 * plan.total_calls,
        )
        plan.budgets(layer.spec, decays=self.weight_decay > 0)
        source, top = LabelSource(layer), BiasTop()
        target = torch.from_numpy((labels[aligned.kept] == classes[1]).astype(np.float64))
        constants = settings.sgd()  # rounded, as the shared weights learn
        optimizer = torch.optim.SGD(
            top.parameters(),
            lr=constants.learning_rate.value,
            momentum=constants.momentum.value,
            weight_decay=constants.weight_decay.value,
        )
        self.history_ = train_label(source, top, optimizer, matrix, target, plan)
        source.finish()
        self.classes_, self.aligned_rows_ = classes, aligned.kept
        self.state_: LabelState = layer.state
        self.top_, self.n_features_in_ = top, matrix.shape[1]
        return self

    def decision_function(
        self, X: Any, *, channel: Channel, ids: Sequence[object] | None = None
    ) -> NDArray[np.float64]:
        """Logits (rows,); with `ids`, of the common records only (`aligned_rows_`)."""
        return run_role(channel, lambda end: self._score(end, X, ids))

    def _score(self, channel: Channel, x: Any, ids: Sequence[object] | None) -> NDArray[np.float64]:
        self._check_fitted()
        aligned = align_rows(channel, encode_matrix(x, self.max_abs), ids, leads=True)
        rows = len(aligned.matrix)
        channel.send(PredictCall(rows=rows))
        layer = agree_label(
            channel,
            aligned.matrix,
            self._settings(self.batch_size),
            self._resources(),
            kept_rows=0,
            expected_calls=-(-rows // self.batch_size),
            state=self.state_,
        )
        source = LabelSource(layer)
        logits = predict_label(source, self.top_, aligned.matrix)
        source.finish()
        self.aligned_rows_ = aligned.kept
        return logits[:, 0]

    def predict_proba(
        self, X: Any, *, channel: Channel, ids: Sequence[object] | None = None
    ) -> NDArray[np.float64]:
        """Class probabilities (rows, 2)."""
        logits = self.decision_function(X, channel=channel, ids=ids)
        return np.stack([sigmoid(-logits), sigmoid(logits)], axis=1)

    def predict(
        self, X: Any, *, channel: Channel, ids: Sequence[object] | None = None
    ) -> NDArray[Any]:
        """Class labels (rows,)."""
        logits = self.decision_function(X, channel=channel, ids=ids)
        return np.asarray(self.classes_[(logits > 0).astype(np.int64)])

    def score(
        self, X: Any, y: Any, *, channel: Channel, ids: Sequence[object] | None = None
    ) -> float:
        """Accuracy on the (common) records; meets `predict_proba` on the feature side."""
        predicted = self.predict(X, channel=channel, ids=ids)
        return float(np.mean(predicted == np.asarray(y)[self.aligned_rows_]))

    def _settings(self, batch_rows: int) -> LayerSettings:
        return LayerSettings(
            outputs=1,
            batch_rows=batch_rows,
            learning_rate=self.learning_rate,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            engine=self.engine,
            initial_scale=self.initial_scale,
        )


class FeatureContributor(_Side):
    """The feature party's estimator: same calls, no results.

    The label party proposes; this side takes nothing but one output a row under masks of 64
    statistical bits or more, and refuses what its parameters do not allow, after the alignment and
    before anything that depends on this side's features is sent.

    engine: the protection that this side insists on; the label party cannot lower it alone.
    max_epochs, min_rows: refuse a fit beyond them, or a call on fewer common rows.
    min_batch_size: refuse a fit in smaller batches (the last of an epoch may be smaller). 2, the
        default, is the least that works; the label party sees every row's output at any size.
    max_outputs_per_row: outputs that a record may give over all fits and predictions of this
        object, each epoch and each prediction being one. With as many outputs as features the
        label party can compute the features up to a rotation, so None refuses at or above the
        number of features; setting more is a decision to let it.
    allow_label_party_without_features: without any of its own, the label party's outputs *are* the
        scores of this side's features; refused by default. A column that says nothing counts as a
        feature, so this guards against a mistake rather than against malice.

    After `fit`: `state_` (this party's shares), `aligned_rows_`. `outputs_` counts outputs per
    record, told apart by id or, without ids, by equal features. It lives with this object and in
    memory only: fit again with the same object, not with a clone; the commands keep it on disk.
    """

    def __init__(
        self,
        *,
        engine: str = "paillier",
        key_bits: int = 2048,
        insecure_key_bits: int | None = None,
        max_abs: float = 64.0,
        max_epochs: int = 100,
        min_rows: int = 2,
        min_batch_size: int = 2,
        max_outputs_per_row: int | None = None,
        allow_label_party_without_features: bool = False,
        threads: int = 1,
    ) -> None:
        self.engine = engine
        self.key_bits = key_bits
        self.insecure_key_bits = insecure_key_bits
        self.max_abs = max_abs
        self.max_epochs = max_epochs
        self.min_rows = min_rows
        self.min_batch_size = min_batch_size
        self.max_outputs_per_row = max_outputs_per_row
        self.allow_label_party_without_features = allow_label_party_without_features
        self.threads = threads

    def fit(
        self, X: Any, *, channel: Channel, ids: Sequence[object] | None = None
    ) -> FeatureContributor:
        """Take part in the label party's `fit`."""
        return run_role(channel, lambda end: self._fit(end, X, ids))

    def _fit(self, channel: Channel, x: Any, ids: Sequence[object] | None) -> FeatureContributor:
        encoded = encode_matrix(x, self.max_abs)
        aligned = align_rows(channel, encoded, ids, leads=False, minimum=self.min_rows)
        matrix = aligned.matrix
        call = channel.receive(FitCall)
        self._check(call, len(matrix))
        plan = TrainingPlan(call.rows, call.epochs, call.batch_size, call.seed, test_fraction=0.0)
        layer = self._agree(channel, matrix, kept_rows=len(matrix))
        plan.budgets(layer.spec, decays=layer.decays)
        self._count(aligned.records, call.epochs, matrix)
        follow_training(FeatureSource(layer), matrix, plan)
        self.aligned_rows_ = aligned.kept
        self.state_: FeatureState = layer.state
        self.n_features_in_ = matrix.shape[1]
        return self

    def predict_proba(
        self, X: Any, *, channel: Channel, ids: Sequence[object] | None = None
    ) -> None:
        """Take part in the label party's `predict_proba`, `predict` or `score`."""
        run_role(channel, lambda end: self._predict(end, X, ids))

    predict = predict_proba
    score = predict_proba

    def _predict(self, channel: Channel, x: Any, ids: Sequence[object] | None) -> None:
        self._check_fitted()
        encoded = encode_matrix(x, self.max_abs)
        aligned = align_rows(channel, encoded, ids, leads=False, minimum=self.min_rows)
        matrix = aligned.matrix
        call = channel.receive(PredictCall)
        if call.rows != len(matrix):
            raise PeerError(f"got {call.rows} rows to score; want {len(matrix)}")
        layer = self._agree(channel, matrix, kept_rows=0, state=self.state_)
        self._count(aligned.records, 1, matrix)
        follow_prediction(FeatureSource(layer), matrix)
        self.aligned_rows_ = aligned.kept

    def _agree(
        self,
        channel: Channel,
        matrix: FixedMatrix,
        *,
        kept_rows: int,
        state: FeatureState | None = None,
    ) -> FeatureMatMul:
        return agree_feature(
            channel,
            matrix,
            self._resources(),
            kept_rows=kept_rows,
            engine=self.engine,
            min_label_columns=0 if self.allow_label_party_without_features else 1,
            max_outputs=1,
            min_mask_bits=_MIN_MASK_BITS,
            state=state,
        )

    def _check(self, call: FitCall, rows: int) -> None:
        if call.rows != rows:
            raise PeerError(f"got a fit over {call.rows} rows; want {rows}")
        if not 1 <= call.epochs <= self.max_epochs:
            raise PeerError(f"got {call.epochs} epochs; this side allows 1 .. {self.max_epochs}")
        least = max(2, self.min_batch_size)
        if call.batch_size < least:
            raise PeerError(f"got batches of {call.batch_size} rows; want at least {least}")
        if len(call.seed) > _MAX_SEED_BYTES:
            raise PeerError(f"got a seed of {len(call.seed)} bytes; want {_MAX_SEED_BYTES} at most")

    def _count(self, records: Sequence[bytes], outputs: int, matrix: FixedMatrix) -> None:
        """Count before the first output leaves, so that what breaks off is counted too."""
        limit = self.max_outputs_per_row
        if limit is None:
            limit = matrix.shape[1] - 1
        if not hasattr(self, "outputs_"):
            self.outputs_ = OutputCount()
        self.outputs_.add(records, outputs, limit)
