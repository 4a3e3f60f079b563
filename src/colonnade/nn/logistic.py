"""scikit-learn-like estimators for both sides of a federated logistic regression.

The label party fits `VerticalLogisticRegression` while the feature party fits `FeatureContributor`
over the other end of the same channel; each call on one side meets the call of the same name on the
other. With `ids` the rows are first aligned by private set intersection; without, row i must be the
same record on both sides already.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

from colonnade.errors import DataError, PeerError, UsageError
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
from colonnade.protocol.matmul_steps import FeatureState, LabelState
from colonnade.protocol.psi import (
    IdType,
    align_feature,
    align_label,
    alignment_context,
    encode_ids,
    normaliser_id,
)
from colonnade.ring import FixedMatrix, Streams
from colonnade.wire.channel import Channel
from colonnade.wire.messages import Message

__all__ = [
    "DeclaredFeatures",
    "FeatureContributor",
    "FitCall",
    "PredictCall",
    "VerticalLogisticRegression",
    "encode_matrix",
]


class DeclaredFeatures(Protocol):
    """Features with declared kinds and ranges (`colonnade.data.Features`)."""

    values: Any
    names: tuple[str, ...]
    whole: tuple[bool, ...]
    max_abs: tuple[float, ...]
    source: str
    row_numbers: NDArray[np.int64]


class FitCall(Message, frozen=True, kw_only=True):
    """The label party starts a fit."""

    TAG: ClassVar[str] = "estimator.fit/1"
    LEAKS: ClassVar[str] = "number of rows, epochs, batch size and the public order of rows"

    rows: int
    epochs: int
    batch_size: int
    seed: bytes


class PredictCall(Message, frozen=True, kw_only=True):
    """The label party asks to score rows."""

    TAG: ClassVar[str] = "estimator.predict/1"
    LEAKS: ClassVar[str] = "number of rows to score"

    rows: int


def encode_matrix(x: Any, max_abs: float = 64.0) -> FixedMatrix:
    """Fixed point of an array, a CSR matrix or declared features.

    Boolean and integer arrays become whole-number columns (scale 0), others real ones; `max_abs`
    is the declared range of a plain array's columns.

    Raises
        DataError: a value is not finite or out of range; names row and column.
    """
    if hasattr(x, "row_numbers"):
        return FixedMatrix.encode(x.values, x.whole, x.max_abs, x.names, x.source, x.row_numbers)
    matrix = sp.csr_matrix(x) if sp.issparse(x) else np.asarray(x)
    if matrix.ndim != 2:
        raise UsageError(f"got X of {matrix.ndim} dimensions; want (rows, columns)")
    whole = matrix.dtype.kind in "biu"
    columns = matrix.shape[1]
    return FixedMatrix.encode(
        matrix.astype(np.float64), [whole] * columns, [max_abs] * columns, where="X"
    )


class _Side(BaseEstimator):  # type: ignore[misc]
    """Parameters and helpers that both sides share."""

    def _resources(self, streams: Streams | None = None) -> Resources:
        key = KeyChoice(self.key_bits, self.insecure_key_bits)
        return Resources(streams or Streams.from_os(), key, self.threads)


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
        matrix = encode_matrix(X, self.max_abs)
        labels = np.asarray(y)
        classes = np.unique(labels)
        if labels.shape != (len(matrix),) or len(classes) != 2:
            raise DataError(
                f"got labels of shape {labels.shape} with {len(classes)} classes; want "
                f"({len(matrix)},) with two"
            )
        matrix, kept = _align(channel, matrix, ids, leads=True)
        seed = self.seed if self.seed is not None else secrets.token_bytes(16)
        channel.send(
            FitCall(rows=len(matrix), epochs=self.epochs, batch_size=self.batch_size, seed=seed)
        )
        plan = TrainingPlan(len(matrix), self.epochs, self.batch_size, seed, test_fraction=0.0)
        layer = agree_label(
            channel,
            matrix,
            self._settings(plan.largest_batch),
            self._resources(),
            kept_rows=len(matrix),
            expected_calls=2 * plan.total_calls,
        )
        plan.budgets(layer.spec, decays=self.weight_decay > 0)
        source, top = LabelSource(layer), BiasTop()
        target = torch.from_numpy((labels[kept] == classes[1]).astype(np.float64))
        optimizer = torch.optim.SGD(
            top.parameters(),
            lr=self.learning_rate,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
        )
        self.history_ = train_label(source, top, optimizer, matrix, target, plan)
        source.finish()
        self.classes_, self.aligned_rows_ = classes, kept
        self.state_: LabelState = layer.state
        self.top_, self.n_features_in_ = top, matrix.shape[1]
        return self

    def decision_function(
        self, X: Any, *, channel: Channel, ids: Sequence[object] | None = None
    ) -> NDArray[np.float64]:
        """Logits (rows,); with `ids`, of the common records only (`aligned_rows_`)."""
        if not hasattr(self, "state_"):
            raise UsageError("this estimator is not fitted; call fit first")
        matrix, kept = _align(channel, encode_matrix(X, self.max_abs), ids, leads=True)
        channel.send(PredictCall(rows=len(matrix)))
        layer = agree_label(
            channel,
            matrix,
            self._settings(self.batch_size),
            self._resources(),
            kept_rows=0,
            expected_calls=-(-len(matrix) // self.batch_size),
            state=self.state_,
        )
        source = LabelSource(layer)
        logits = predict_label(source, self.top_, matrix)
        source.finish()
        self.aligned_rows_ = kept
        return logits[:, 0]

    def predict_proba(
        self, X: Any, *, channel: Channel, ids: Sequence[object] | None = None
    ) -> NDArray[np.float64]:
        """Class probabilities (rows, 2)."""
        logits = self.decision_function(X, channel=channel, ids=ids)
        positive = 1.0 / (1.0 + np.exp(-logits))
        return np.stack([1.0 - positive, positive], axis=1)

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

    engine: the protection that this side insists on; the label party cannot lower it alone.
    max_epochs, min_rows: refuse a fit beyond them. After `fit`: `state_`, `aligned_rows_`.
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
        threads: int = 1,
    ) -> None:
        self.engine = engine
        self.key_bits = key_bits
        self.insecure_key_bits = insecure_key_bits
        self.max_abs = max_abs
        self.max_epochs = max_epochs
        self.min_rows = min_rows
        self.threads = threads

    def fit(
        self, X: Any, *, channel: Channel, ids: Sequence[object] | None = None
    ) -> FeatureContributor:
        """Take part in the label party's `fit`."""
        encoded = encode_matrix(X, self.max_abs)
        matrix, kept = _align(channel, encoded, ids, leads=False, minimum=self.min_rows)
        call = channel.receive(FitCall)
        self._check(call, len(matrix))
        plan = TrainingPlan(call.rows, call.epochs, call.batch_size, call.seed, test_fraction=0.0)
        layer = agree_feature(
            channel, matrix, self._resources(), kept_rows=len(matrix), engine=self.engine
        )
        plan.budgets(layer.spec, decays=layer.decays)
        follow_training(FeatureSource(layer), matrix, plan)
        self.aligned_rows_ = kept
        self.state_: FeatureState = layer.state
        self.n_features_in_ = matrix.shape[1]
        return self

    def predict_proba(
        self, X: Any, *, channel: Channel, ids: Sequence[object] | None = None
    ) -> None:
        """Take part in the label party's `predict_proba`, `predict` or `score`."""
        if not hasattr(self, "state_"):
            raise UsageError("this estimator is not fitted; call fit first")
        encoded = encode_matrix(X, self.max_abs)
        matrix, kept = _align(channel, encoded, ids, leads=False, minimum=self.min_rows)
        call = channel.receive(PredictCall)
        if call.rows != len(matrix):
            raise PeerError(f"got {call.rows} rows to score; want {len(matrix)}")
        layer = agree_feature(
            channel,
            matrix,
            self._resources(),
            kept_rows=0,
            engine=self.engine,
            state=self.state_,
        )
        follow_prediction(FeatureSource(layer), matrix)
        self.aligned_rows_ = kept

    predict = predict_proba
    score = predict_proba

    def _check(self, call: FitCall, rows: int) -> None:
        if call.rows != rows:
            raise PeerError(f"got a fit over {call.rows} rows; want {rows}")
        if not 1 <= call.epochs <= self.max_epochs:
            raise PeerError(f"got {call.epochs} epochs; this side allows 1 .. {self.max_epochs}")
        if call.batch_size < 2 or len(call.seed) > 64:
            raise PeerError(f"got batches of {call.batch_size} rows; want at least 2")


def _align(
    channel: Channel,
    matrix: FixedMatrix,
    ids: Sequence[object] | None,
    *,
    leads: bool,
    minimum: int = 1,
) -> tuple[FixedMatrix, NDArray[np.int64]]:
    if len(matrix) < minimum:
        raise UsageError(f"got {len(matrix)} rows; want at least {minimum}")
    if ids is None:
        return matrix, np.arange(len(matrix), dtype=np.int64)
    if len(ids) != len(matrix):
        raise UsageError(f"got {len(ids)} ids for {len(matrix)} rows")
    whole = all(isinstance(value, int | np.integer) for value in ids)
    types = [IdType.INTEGER if whole else IdType.TEXT]
    encoded = encode_ids([ids], types, "ids")
    parties = (channel.local, channel.remote)
    label, feature = parties if leads else parties[::-1]
    context = alignment_context(b"", label, feature, normaliser_id(types))
    if leads:
        rows = align_label(channel, encoded, context).rows
    else:
        rows = align_feature(channel, encoded, context, min_intersection=minimum).rows
    return matrix.take(rows), rows
