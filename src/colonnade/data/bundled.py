"""Data for the demonstration: scikit-learn's breast cancer records, dealt to two parties.

The clinic (label party) holds texture, smoothness, symmetry and fractal dimension and the
diagnosis, the laboratory (feature party) the other 18 measurements. Each lacks some patients and
keeps its rows in an order of its own. The ids are invented.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from colonnade.data.splits import public_order

__all__ = ["DemoFiles", "write_demo_data"]

_LABEL_PARTY_FACTS = ("texture", "smoothness", "symmetry", "fractal dimension")
# Public: everybody who runs the demonstration gets the same files.
_SEED = b"colonnade demonstration"
_NEW_PATIENTS = 69
_UNKNOWN_TO_CLINIC = 30
_UNKNOWN_TO_LABORATORY = 20
_ID_NUMBERS = 100_000


@dataclass(frozen=True)
class DemoFiles:
    """The files written.

    label, feature: training records of the two parties, `patient` the id column of both and
        `diagnosis` the label (450 patients in common).
    label_new, feature_new: 69 further patients to predict, known to both, without diagnosis.
    outcomes_new: their diagnoses, to see how good the predictions were.
    """

    label: Path
    feature: Path
    label_new: Path
    feature_new: Path
    outcomes_new: Path


def write_demo_data(directory: Path) -> DemoFiles:
    """Write the demonstration's CSV files into `directory`, which is made if it is not there."""
    from sklearn.datasets import load_breast_cancer  # slow to import, and used here only

    data = load_breast_cancer()
    names = [str(name) for name in data.feature_names]
    held = [any(fact in name for fact in _LABEL_PARTY_FACTS) for name in names]
    clinic = [index for index, at_clinic in enumerate(held) if at_clinic]
    laboratory = [index for index, at_clinic in enumerate(held) if not at_clinic]
    diagnoses = [str(data.target_names[code]) for code in data.target]
    numbers = public_order(_ID_NUMBERS, _SEED, b"ids")
    ids = [f"patient-{numbers[row]:05d}" for row in range(len(diagnoses))]

    patients = public_order(len(ids), _SEED, b"new")
    new, old = patients[:_NEW_PATIENTS], patients[_NEW_PATIENTS:]
    files = DemoFiles(
        label=directory / "label.csv",
        feature=directory / "feature.csv",
        label_new=directory / "label_new.csv",
        feature_new=directory / "feature_new.csv",
        outcomes_new=directory / "outcomes_new.csv",
    )

    def table(columns: Sequence[int], rows: NDArray[np.int64], diagnosis: bool) -> Iterable[Row]:
        yield ["patient", *(names[k] for k in columns), *(["diagnosis"] if diagnosis else [])]
        for row in rows:
            cells = [repr(float(data.data[row, k])) for k in columns]
            yield [ids[row], *cells, *([diagnoses[row]] if diagnosis else [])]

    directory.mkdir(parents=True, exist_ok=True)
    at_laboratory = old[: len(old) - _UNKNOWN_TO_LABORATORY]
    _write(files.label, table(clinic, _shuffled(old[_UNKNOWN_TO_CLINIC:], b"label"), True))
    _write(files.feature, table(laboratory, _shuffled(at_laboratory, b"feature"), False))
    _write(files.label_new, table(clinic, _shuffled(new, b"label new"), False))
    _write(files.feature_new, table(laboratory, _shuffled(new, b"feature new"), False))
    _write(files.outcomes_new, table([], np.sort(new), True))
    return files


Row = list[str]


def _shuffled(rows: NDArray[np.int64], purpose: bytes) -> NDArray[np.int64]:
    return rows[public_order(len(rows), _SEED, purpose)]


def _write(path: Path, rows: Iterable[Row]) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream, lineterminator="\n").writerows(rows)
