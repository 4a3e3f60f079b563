"""The demonstration's files: what each party holds and what they have in common."""

from __future__ import annotations

from pathlib import Path

import pytest

from colonnade.data.bundled import DemoFiles, write_demo_data
from colonnade.data.labels import LabelMapping
from colonnade.data.preprocess import Preprocessor
from colonnade.data.readers import read_table
from colonnade.data.schema import SourceSpec, id_columns, label_values


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> DemoFiles:
    return write_demo_data(tmp_path_factory.mktemp("demo") / "data")


def ids_of(path: Path) -> list[object]:
    return id_columns(read_table(path), SourceSpec(path=path, ids=("patient",)))[0]


def test_who_is_where(files: DemoFiles) -> None:
    label, feature = ids_of(files.label), ids_of(files.feature)
    assert (len(label), len(feature)) == (470, 480)
    common = set(label) & set(feature)
    assert len(common) == 450
    assert [i for i in label if i in common] != [i for i in feature if i in common]
    new = ids_of(files.label_new)
    assert len(new) == 69
    assert set(new) == set(ids_of(files.feature_new)) == set(ids_of(files.outcomes_new))
    assert new != ids_of(files.feature_new)
    assert len(set(label) | set(feature) | set(new)) == 569
    assert all(str(i).startswith("patient-") and len(str(i)) == 13 for i in new)


def test_who_holds_what(files: DemoFiles) -> None:
    label, feature = read_table(files.label), read_table(files.feature)
    assert (len(label.names), len(feature.names)) == (1 + 12 + 1, 1 + 18)
    assert not set(label.names) & set(feature.names) - {"patient"}
    assert {"worst fractal dimension", "mean texture"} < set(label.names)
    assert read_table(files.label_new).names == label.names[:-1]
    assert read_table(files.outcomes_new).names == ("patient", "diagnosis")


def test_it_trains(files: DemoFiles) -> None:
    stated = SourceSpec(path=files.label, ids=("patient",), label="diagnosis")
    table = read_table(files.label)
    fitted = Preprocessor.fit(table, stated)
    assert fitted.transform(table)[0].n_columns == 12
    assert len(fitted.transform(read_table(files.label_new))[0]) == 69
    labels = LabelMapping.fit(label_values(table, stated))
    assert str(labels) == "'malignant' -> 1, 'benign' -> 0"


def test_the_files_are_the_same_every_time(files: DemoFiles, tmp_path: Path) -> None:
    again = write_demo_data(tmp_path)
    assert again.label.read_bytes() == files.label.read_bytes()
    assert again.feature_new.read_bytes() == files.feature_new.read_bytes()
