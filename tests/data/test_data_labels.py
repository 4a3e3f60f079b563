"""Labels as people write them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from colonnade.data.labels import LabelMapping
from colonnade.errors import DataError, IntegrityError, UsageError


@pytest.mark.parametrize(
    ("values", "codes"),
    [
        ([0, 1, 0], [0, 1, 0]),
        ([-1, 1, -1], [0, 1, 0]),
        (np.array([-1.0, 1.0]), [0, 1]),
        ([1, 2], [0, 1]),
        (["1", "2.0", "1.0"], [0, 1, 0]),
        (["+1", "-1"], [1, 0]),
        (["9", "10"], [0, 1]),
        ([True, False], [1, 0]),
        (["True", "FALSE", "true"], [1, 0, 1]),
        (["Yes", "no", "YES"], [1, 0, 1]),
        ([" >50K", " <=50K", ">50K "], [1, 0, 1]),
        (["benign", "malignant"], [0, 1]),
    ],
)
def test_two_classes(values: Any, codes: list[int]) -> None:
    got = LabelMapping.fit(values).transform(values)
    assert got.dtype == np.int64
    assert got.tolist() == codes


def test_printed_positive_first_and_stated_positive() -> None:
    mapping = LabelMapping.fit([">50K", "<=50K"])
    assert str(mapping) == "'>50K' -> 1, '<=50K' -> 0"
    other = LabelMapping.fit([">50K", "<=50K"], positive="<=50K")
    assert str(other) == "'<=50K' -> 1, '>50K' -> 0"
    assert LabelMapping.fit(["Yes", "no"], positive="No").transform(["NO"]).tolist() == [1]
    with pytest.raises(UsageError, match="did you mean '>50K'"):
        LabelMapping.fit([">50K", "<=50K"], positive=">50")


def test_several_classes() -> None:
    values = [1, 0, -1, 0]
    with pytest.raises(DataError, match=r"3 classes \('-1', '0', '1'\); want two"):
        LabelMapping.fit(values)
    mapping = LabelMapping.fit(values, multiclass=True)
    assert mapping.classes == ("-1", "0", "1")
    assert mapping.transform(values).tolist() == [2, 1, 0, 1]
    assert str(mapping) == "'-1' -> 0, '0' -> 1, '1' -> 2"
    with pytest.raises(DataError, match=r"900 classes .*, \.\.\."):
        LabelMapping.fit(range(900))


def test_one_class_no_label_and_missing_labels() -> None:
    with pytest.raises(DataError, match=r"y\.csv: got one class only, 'yes'"):
        LabelMapping.fit(["yes", "YES"], source="y.csv")
    with pytest.raises(DataError, match="no labels"):
        LabelMapping.fit([])
    for missing in (None, "", " ? ", float("nan")):
        with pytest.raises(DataError, match=r"y\.csv, row 9: the label is missing"):
            LabelMapping.fit(["a", missing], source="y.csv", row_numbers=np.array([8, 9]))


def test_an_unknown_label_is_named() -> None:
    mapping = LabelMapping.fit(["a", "b"])
    with pytest.raises(DataError, match=r"new\.csv, row 5: got the label 'c'; want one of 'a'"):
        mapping.transform(["a", "c"], "new.csv", np.array([4, 5]))
    assert mapping.transform([]).shape == (0,)


def test_json() -> None:
    mapping = LabelMapping.fit(["ä", "b"])
    assert LabelMapping.from_json(mapping.to_json()) == mapping
    for bad in (
        b"",
        b"\xff",
        b'{"classes":["a"]}',
        b'{"classes":["a","a"]}',
        b'{"classes":["a","b"],"x":1}',
        b'{"classes":["a","b"],"version":"colonnade-labels/2"}',
    ):
        with pytest.raises(IntegrityError, match="malformed label mapping"):
            LabelMapping.from_json(bad)
