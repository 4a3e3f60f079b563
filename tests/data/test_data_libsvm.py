"""The LIBSVM parser: what it accepts, and that it names what it refuses."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_svmlight_file

from colonnade.data.libsvm import parse_libsvm
from colonnade.errors import DataError, UsageError


def test_labels_empty_rows_comments_and_blank_lines() -> None:
    text = b"# made by hand\n+1 1:1 3:0.5 # a note\n-1 \n\n1 2:0 4:-2e1\n\n"
    table = parse_libsvm(text, "f")
    assert table.labels is not None
    assert table.labels.tolist() == [1.0, -1.0, 1.0]
    assert table.sparse.toarray().tolist() == [[1, 0, 0.5, 0], [0] * 4, [0, 0, 0, -20]]
    assert table.sparse.nnz == 3, "no explicit zeros"
    assert table.sparse.has_canonical_format
    assert table.names == ("1", "2", "3", "4")
    assert table.row_numbers.tolist() == [2, 3, 5]


def test_width_base_and_files_without_labels() -> None:
    assert parse_libsvm(b"1 2:1\n", "f", n_columns=5).sparse.shape == (1, 5)
    assert parse_libsvm(b"1 9:0\n", "f").sparse.shape == (1, 9), "a written zero is a column"
    zero = parse_libsvm(b"1 0:7\n", "f", zero_based=True)
    assert zero.names == ("0",)
    assert zero.sparse.toarray().tolist() == [[7.0]]
    assert parse_libsvm(b"1:1\r\n2:1\r\n\r\n", "f").labels is None
    assert len(parse_libsvm(b"", "f")) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 1:1\n1 2:1 2:3\n", "line 2: got '2:3' after index 2; want ascending"),
        ("1 3:1 2:1\n", "line 1: got '2:1' after index 3; want ascending"),
        ("1 0:1\n", "want indices from 1 .*zero_based"),
        ("1 -1:1\n", "want indices from 1"),
        ("1 6:1\n", "want indices from 1 to 5"),
        ("1 99999999999:1\n", "want indices from 1 to 5"),
        ("1 1:nan\n", "got '1:nan'; want a finite value"),
        ("1 1:-inf\n", "want a finite value"),
        ("1 1:1e999\n", "want a finite value"),
        ("1 1:x\n", "got '1:x'; want index:value"),
        ("1 1\n", "got '1'; want index:value"),
        ("1 1:2:3\n", "want index:value"),
        ("1 1:1_0\n", "want index:value"),
        ("1 qid:3 1:1\n", "ranking groups are not supported"),
        ("1,2 1:1\n", "got label '1,2'; want a finite number"),
        ("nan 1:1\n", "got label 'nan'"),
        ("1 1:1\n2:1\n", "line 2: labels on some lines only"),
        ("1:1\n\n2:1\n", "line 2: blank line before a row without label"),
    ],
)
def test_bad_lines(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_libsvm(text.encode(), "f", n_columns=5)


def test_a_width_that_no_matrix_has() -> None:
    with pytest.raises(UsageError, match="n_columns"):
        parse_libsvm(b"", "f", n_columns=-1)


_ROWS = st.lists(
    st.tuples(
        st.sampled_from([-1, 1]),
        st.dictionaries(
            st.integers(1, 40), st.floats(-1e6, 1e6).filter(lambda v: v != 0.0), max_size=6
        ),
    ),
    min_size=1,
    max_size=8,
)


@settings(derandomize=True, max_examples=40, deadline=None)
@given(_ROWS)
def test_equals_scikit_learn(rows: list[tuple[int, dict[int, float]]]) -> None:
    lines = [
        " ".join([str(label), *(f"{index}:{cells[index]!r}" for index in sorted(cells))])
        for label, cells in rows
    ]
    text = "\n".join(lines).encode()
    table = parse_libsvm(text, "f", n_columns=40)
    matrix, labels = load_svmlight_file(io.BytesIO(text), n_features=40, zero_based=False)
    assert (table.sparse != matrix).nnz == 0
    assert np.array_equal(table.labels, labels)


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.text("01:.-e# \nqidx_", max_size=30))
def test_any_bytes_parse_or_are_refused(text: str) -> None:
    try:
        table = parse_libsvm(text.encode(), "f")
    except DataError:
        return
    assert np.isfinite(table.sparse.data).all()
    assert table.sparse.has_canonical_format
