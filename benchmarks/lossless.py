"""How far a federated run is from its float64 twin, on real data.

    COLONNADE_DATA=... python -m benchmarks.lossless --set a9a --epochs 3

The plain engine with real fixed point, shares and masks (bit-identical shares to Paillier's, which
a test shows); the twin starts from the same weights and sees the same batches.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from sklearn.metrics import roc_auc_score

from colonnade.data.real import load_a9a, load_higgs
from colonnade.nn.plan import TrainingPlan
from colonnade.nn.source import LabelSource
from colonnade.protocol.agreement import LayerSettings
from colonnade.ring import FixedMatrix
from colonnade.simulation import Twin, simulate


class LogitRecorder(LabelSource):
    """Keeps what each call returned."""

    def __init__(self, inner: LabelSource) -> None:
        super().__init__(inner.layer)
        self.seen: list[NDArray[np.float64]] = []

    def forward(self, *args: object, **kwargs: object) -> torch.Tensor:
        z = super().forward(*args, **kwargs)  # type: ignore[arg-type]
        self.seen.append(z.detach().numpy().copy())
        return z


def load(name: str) -> tuple[FixedMatrix, FixedMatrix, NDArray[np.float64], int]:
    """Both sides' features, labels of train then test rows, and the number of train rows."""
    if name == "a9a":
        x_train, y_train, x_test, y_test = load_a9a()
        x, cut, whole, limit = sp.vstack([x_train, x_test]).tocsr(), 61, True, 1.0
    else:
        x_train, y_train, x_test, y_test = load_higgs()
        mean, std = x_train.mean(axis=0), x_train.std(axis=0)
        x, cut = (np.concatenate([x_train, x_test]) - mean) / std, 14
        whole, limit = False, 64.0
    y = np.concatenate([y_train, y_test]).astype(np.float64)
    sides = [x[:, :cut], x[:, cut:]]
    matrices = [
        FixedMatrix.encode(s, [whole] * s.shape[1], [limit] * s.shape[1], where=name) for s in sides
    ]
    return matrices[0], matrices[1], y, len(y_train)


def compare(
    seen: list[NDArray[np.float64]], twin: Twin, plan: TrainingPlan, y: NDArray[np.float64]
) -> Iterator[tuple[int, float]]:
    """Worst |logit difference| per epoch (the last entry is the test part), replaying the twin."""
    worst: dict[int, float] = {}
    bias_free = iter(seen)
    for planned in plan.calls():
        z = next(bias_free)
        logits = twin.logits(planned.rows)
        difference = float(np.abs(z - (logits - twin.bias)).max())
        worst[planned.epoch] = max(worst.get(planned.epoch, 0.0), difference)
        if planned.mode == "train":
            probability = 1.0 / (1.0 + np.exp(-logits[:, 0]))
            dz = (probability - y[planned.rows]) / len(planned.rows)
            twin.step(planned.rows, dz[:, None])
    yield from worst.items()


def main(argv: list[str] | None = None) -> dict[str, object]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", choices=("a9a", "higgs"), default="a9a")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args(argv)
    x_a, x_b, y, train_rows = load(options.set)
    plan = TrainingPlan(len(y), options.epochs, 128, b"lossless", 1 - train_rows / len(y))
    settings = LayerSettings(
        outputs=1,
        batch_rows=plan.largest_batch,
        learning_rate=0.05,
        momentum=0.9,
        engine="insecure_plain",
    )
    recorder: list[LogitRecorder] = []

    def wrap(source: LabelSource) -> LabelSource:
        recorder.append(LogitRecorder(source))
        return recorder[0]

    start = time.perf_counter()
    run = simulate(x_a, x_b, y, plan, settings, wrap=wrap)
    seconds = time.perf_counter() - start
    twin = Twin(x_a, x_b, settings, run.initial_w_a, run.initial_w_b)
    worst = dict(compare(recorder[0].seen, twin, plan, y))
    test = plan.split.test
    auc = [
        roc_auc_score(y[test], run.history.test_logits[:, 0]),
        roc_auc_score(y[test], twin.logits(test)[:, 0]),
    ]
    table = Table(title=f"{options.set}: federated against its float64 twin ({seconds:.0f} s)")
    table.add_column("part")
    table.add_column("worst |logit difference|", justify="right")
    for epoch, difference in worst.items():
        name = "test rows" if epoch == plan.epochs else f"epoch {epoch + 1}"
        table.add_row(name, f"{difference:.1e}")
    table.add_row("test AUC, federated / twin", f"{auc[0]:.6f} / {auc[1]:.6f}")
    Console().print(table)
    result: dict[str, object] = {"set": options.set, "worst": worst, "auc": auc, "seconds": seconds}
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
    return result


if __name__ == "__main__":
    main()
