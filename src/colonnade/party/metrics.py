"""What a binary model is worth: the metrics of every report."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["METRIC_NAMES", "binary_metrics"]

METRIC_NAMES = {
    "roc_auc": "ROC AUC",
    "pr_auc": "PR AUC",
    "accuracy": "accuracy",
    "log_loss": "log loss",
}


def binary_metrics(y: NDArray[np.float64], logits: NDArray[np.float64]) -> dict[str, float | int]:
    """ROC AUC, area under the precision-recall curve, accuracy at 0.5, log loss.

    y: 0/1 (rows,); logits: (rows,). With one class only, the two areas are left out.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score  # slow to import

    found: dict[str, float | int] = {"rows": len(y), "positives": int(y.sum())}
    if len(y) and 0 < y.sum() < len(y):
        found["roc_auc"] = float(roc_auc_score(y, logits))
        found["pr_auc"] = float(average_precision_score(y, logits))
    if len(y):
        found["accuracy"] = float(np.mean((logits > 0) == (y > 0.5)))
        found["log_loss"] = float(np.mean(np.logaddexp(0.0, logits) - y * logits))
    return {key: value for key, value in found.items() if math.isfinite(value)}
