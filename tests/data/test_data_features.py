"""Features keep their declaration or do not exist."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import coo_matrix, csr_matrix

from colonnade.data.features import Features, next_power_of_two
from colonnade.errors import DataError, UsageError

VALUES = np.array([[1.0, 0.5], [0.0, -3.5], [1.0, 4.0]])


def features(values: Any = VALUES, **changes: Any) -> Features:
    fields = {
        "names": ("flag", "größe"),
        "whole": (True, False),
        "max_abs": (1.0, 4.0),
        "source": "f.csv",
        "row_numbers": np.array([2, 3, 7], dtype=np.int64),
    }
    return Features(values=values, **(fields | changes))


@pytest.mark.parametrize("make", [np.array, csr_matrix])
def test_shape_and_rows(make: Any) -> None:
    whole = features(make(VALUES))
    assert (len(whole), whole.n_columns, whole.nnz) == (3, 2, 5)
    taken = whole.take(np.array([2, 0]))
    assert np.asarray(csr_matrix(taken.values).toarray()).tolist() == [[1.0, 4.0], [1.0, 0.5]]
    assert taken.row_numbers.tolist() == [7, 2]
    assert len(whole.take(np.array([], dtype=np.int64))) == 0
    with pytest.raises(UsageError, match="outside the 3 rows"):
        whole.take(np.array([-1]))


@pytest.mark.parametrize("make", [np.array, csr_matrix])
@pytest.mark.parametrize(
    ("row", "column", "value", "message"),
    [
        (2, 0, 0.5, r"f\.csv, row 7, column 'flag': got 0\.5; want a whole number"),
        (1, 0, 2.0, r"row 3, column 'flag': got 2; want at most 1 .*clip = true"),
        (1, 1, -4.5, r"row 3, column 'größe': got -4\.5; want at most 4"),
        (0, 1, np.nan, r"row 2, column 'größe': got nan; want a finite"),
        (0, 1, -np.inf, r"row 2, column 'größe': got -inf; want a finite"),
    ],
)
def test_values_outside_the_declaration(
    make: Any, row: int, column: int, value: float, message: str
) -> None:
    values = VALUES.copy()
    values[row, column] = value
    with pytest.raises(DataError, match=message):
        features(make(values))


@pytest.mark.parametrize(
    ("values", "changes"),
    [
        (VALUES, {"names": ("a",)}),
        (VALUES, {"whole": (True,)}),
        (VALUES, {"max_abs": (1.0,)}),
        (VALUES, {"max_abs": (1.0, 5.0)}),
        (VALUES, {"max_abs": (1.0, 65536.0)}),
        (VALUES, {"max_abs": (1.0, np.nan)}),
        (VALUES, {"row_numbers": np.array([1])}),
        (VALUES.astype(np.float32), {}),
        (VALUES.ravel(), {}),
        (coo_matrix(VALUES), {}),
        (csr_matrix((np.ones(2), [1, 0], [0, 2, 2, 2]), shape=(3, 2)), {}),
    ],
)
def test_forms_that_do_not_fit(values: Any, changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        features(values, **changes)


def test_powers_of_two() -> None:
    got = [next_power_of_two(value) for value in (0.0, 0.3, 1.0, 1.5, 2.0, 100.0, 128.0, 128.1)]
    assert got == [1.0, 1.0, 1.0, 2.0, 2.0, 128.0, 128.0, 256.0]


def test_a_repr_shows_the_declaration_and_no_values() -> None:
    shown = repr(features())
    assert "größe" in shown
    assert "3.5" not in shown
    assert "values" not in shown
