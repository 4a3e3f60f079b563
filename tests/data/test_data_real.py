"""Public data sets, where COLONNADE_DATA names a folder with them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import issparse

from colonnade.data import real
from colonnade.data.preprocess import Preprocessor
from colonnade.data.readers import ReadOptions, read_table
from colonnade.data.schema import SourceSpec
from colonnade.errors import DataError

needs_data = pytest.mark.skipif(
    not os.environ.get("COLONNADE_DATA"), reason="COLONNADE_DATA names no folder with data sets"
)

ADULT_COLUMNS = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status"),
    *("occupation", "relationship", "race", "sex", "capital-gain", "capital-loss"),
    *("hours-per-week", "native-country", "income"),
)


def test_without_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("COLONNADE_DATA", raising=False)
    assert real.data_folder() is None
    with pytest.raises(DataError, match="got no COLONNADE_DATA; want the folder that holds a9a"):
        real.load_a9a()
    monkeypatch.setenv("COLONNADE_DATA", str(tmp_path))
    assert real.data_folder() == tmp_path
    with pytest.raises(DataError, match="w8a: cannot be read"):
        real.load_w8a()
    monkeypatch.setenv("COLONNADE_DATA", str(tmp_path / "none"))
    with pytest.raises(DataError, match="want a folder"):
        real.data_folder()


@needs_data
@pytest.mark.data
def test_a9a() -> None:
    start = time.perf_counter()
    x_train, y_train, x_test, y_test = real.load_a9a()
    assert time.perf_counter() - start < 10.0, "half a second each on an idle core"
    assert x_train.shape == (32_561, 123)
    assert x_test.shape == (16_281, 123)
    assert (int(y_train.sum()), int(y_test.sum())) == (7_841, 3_846)
    matrix: Any = x_train
    assert set(matrix.data.tolist()) == {1.0}


@needs_data
@pytest.mark.data
def test_w8a_has_empty_rows_and_few_positives() -> None:
    x_train, y_train, x_test, y_test = real.load_w8a()
    assert (x_train.shape, x_test.shape) == ((39_799, 300), (9_950, 300))
    assert int(y_train.sum() + y_test.sum()) == 1_479
    matrix: Any = x_train
    assert (np.diff(matrix.indptr) == 0).any()


@needs_data
@pytest.mark.data
def test_higgs_is_dense() -> None:
    x_train, y_train, x_test, y_test = real.load_higgs()
    assert not issparse(x_train)
    assert (x_train.shape, x_test.shape) == ((7_000, 28), (500, 28))
    assert set(y_train.tolist()) == set(y_test.tolist()) == {0, 1}


@needs_data
@pytest.mark.data
@pytest.mark.slow
def test_connect4_has_three_classes() -> None:
    x_train, y_train, x_test, y_test = real.load_connect4()
    assert x_train.shape[1] == x_test.shape[1] == 126
    counts = np.bincount(np.concatenate([y_train, y_test]))
    assert counts.tolist() == [16_635, 6_449, 44_473]


@needs_data
@pytest.mark.data
def test_bank_marketing_with_quotes_and_categories() -> None:
    folder = real.data_folder()
    assert folder is not None
    table = read_table(folder / "bank-marketing" / "bank-full.csv.gz")
    stated = SourceSpec(path=folder, ids="row", label="y", clip=True)
    features, report = Preprocessor.fit(table, stated).transform(table)
    assert len(features) == 45_211
    assert issparse(features.values)
    assert report.imputed == {}


@needs_data
@pytest.mark.data
def test_adult_without_header_with_question_marks() -> None:
    folder = real.data_folder()
    assert folder is not None
    options = ReadOptions(columns=ADULT_COLUMNS)
    train = read_table(folder / "adult" / "adult.data", options=options)
    test = read_table(folder / "adult" / "adult.test", format="csv", options=options)
    stated = SourceSpec(path=folder, label="income", scaling="minmax")
    fitted = Preprocessor.fit(train, stated)
    features, _ = fitted.transform(train)
    assert len(features) == 32_561
    assert [name for name in features.names if name.endswith("=(missing)")] == [
        "workclass=(missing)",
        "occupation=(missing)",
        "native-country=(missing)",
    ]
    assert fitted.transform(test)[0].n_columns == features.n_columns
