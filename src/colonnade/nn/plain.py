"""The same logistic regression in plain float64 on joined data: the baseline of every report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from colonnade.nn.plan import TrainingPlan
from colonnade.protocol.sgd import SharedSgd

__all__ = ["PlainRegression", "fit_plain", "sigmoid"]


def sigmoid(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities 1 / (1 + exp(-z)) of logits of any size, to full precision at both ends."""
    probabilities: NDArray[np.float64] = expit(logits)
    return probabilities


class PlainRegression:
    """Logits sum_k X_k W_k + b over column blocks X_k, trained by momentum SGD.

    blocks: float64 (rows, columns_k), dense or CSR; weights: float64 (columns_k, outputs) per
    block, copied. The constants are those of the federated run, rounded to 24 bits.
    """

    def __init__(
        self, blocks: Sequence[Any], sgd: SharedSgd, weights: Sequence[NDArray[np.float64]]
    ) -> None:
        self._blocks = list(blocks)
        self._sgd = sgd
        self.weights = [w.copy() for w in weights]
        self.bias = np.zeros(self.weights[0].shape[1])
        self._buffers = [np.zeros_like(v) for v in (*self.weights, self.bias)]

    def logits(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Logits of rows, float64 (rows, outputs)."""
        total = np.zeros((len(rows), len(self.bias))) + self.bias
        for block, weight in zip(self._blocks, self.weights, strict=True):
            total += block[rows] @ weight
        return total

    def step(self, rows: NDArray[np.int64], dz: NDArray[np.float64]) -> None:
        """One step with the derivatives dL/dZ of rows, float64 (rows, outputs)."""
        gradients = [np.asarray(block[rows].T @ dz) for block in self._blocks]
        gradients.append(dz.sum(axis=0))
        values = [*self.weights, self.bias]
        lr, momentum = self._sgd.learning_rate.value, self._sgd.momentum.value
        decay = self._sgd.weight_decay.value
        for i, (value, gradient) in enumerate(zip(values, gradients, strict=True)):
            self._buffers[i] = momentum * self._buffers[i] + gradient + decay * value
            values[i] = value - lr * self._buffers[i]
        self.weights, self.bias = values[:-1], values[-1]


def fit_plain(
    model: PlainRegression, y: NDArray[np.float64], plan: TrainingPlan
) -> tuple[NDArray[np.float64], list[float]]:
    """Train over the plan's batches.

    Returns the logits of the plan's test rows, float64 (rows, outputs), and the loss per epoch.
    """
    losses: list[float] = []
    for epoch in range(plan.epochs):
        total = 0.0
        for rows in plan.batches(epoch):
            z = model.logits(rows)[:, 0]
            total += float(np.sum(np.logaddexp(0.0, z) - y[rows] * z))
            dz = (sigmoid(z) - y[rows]) / len(rows)
            model.step(rows, dz[:, None])
        losses.append(total / len(plan.split.train))
    return model.logits(plan.split.test), losses
