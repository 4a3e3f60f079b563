"""Exact products of integer matrices with ring elements, against Python integers."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.errors import UsageError
from colonnade.ring import Z128, matmul_z64, matmul_z128

QUICK = settings(derandomize=True, max_examples=50, deadline=None)


def matrices(low: int, high: int):
    """(X, V): X (rows, inner) with entries in [low, high], V (inner, columns) in Z_2^128."""
    return st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 3)).flatmap(
        lambda shape: st.tuples(
            _entries(st.sampled_from([0, low, high]) | st.integers(low, high), shape[0], shape[1]),
            _entries(st.integers(-(2**127), 2**127 - 1), shape[1], shape[2]),
        )
    )


def _entries(element, rows: int, columns: int):
    row = st.lists(element, min_size=columns, max_size=columns)
    return st.lists(row, min_size=rows, max_size=rows)


def exact(x, v, modulus: int) -> list[int]:
    """X @ V row-major, reduced to 0 .. modulus - 1."""
    return [
        sum(a * b for a, b in zip(row, column, strict=True)) % modulus
        for row in x
        for column in zip(*v, strict=True)
    ]


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix], ids=["dense", "csr"])
@QUICK
@given(operands=matrices(-(2**63), 2**63 - 1))
def test_products_wrap_mod_2_64(form, operands):
    x, v = operands
    words = np.array([[e % 2**64 for e in row] for row in v], dtype=np.uint64)
    got = matmul_z64(form(np.array(x, dtype=np.int64)), words)
    assert got.dtype == np.uint64
    assert got.reshape(-1).tolist() == exact(x, v, 2**64)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix], ids=["dense", "csr"])
@QUICK
@given(operands=matrices(-(2**31) + 1, 2**31 - 1))
def test_products_wrap_mod_2_128(form, operands):
    x, v = operands
    shape = (len(v), len(v[0]))
    got = matmul_z128(
        form(np.array(x, dtype=np.int64)), Z128.from_ints([e for row in v for e in row], shape)
    )
    assert got.shape == (len(x), shape[1])
    assert [e % 2**128 for e in got.to_ints()] == exact(x, v, 2**128)


def test_as_many_of_the_largest_factors_as_are_allowed_stay_exact():
    terms, factor = 2**15, 2**31 - 1
    v = Z128.from_ints([-1] * terms, (terms, 1))
    got = matmul_z128(np.full((1, terms), factor, dtype=np.int64), v)
    assert got.to_ints() == [-factor * terms]


def test_a_transposed_view_is_read_in_the_right_order():
    x = np.arange(6, dtype=np.int64).reshape(2, 3)
    v = np.arange(4, dtype=np.uint64).reshape(2, 2)
    np.testing.assert_array_equal(matmul_z64(x.T, v).astype(np.int64), x.T @ v.astype(np.int64))


def test_empty_batches_and_empty_rows():
    v = Z128.from_ints([3, 4], (2, 1))
    assert matmul_z128(np.zeros((0, 2), np.int64), v).shape == (0, 1)
    assert matmul_z128(sp.csr_matrix((2, 2), dtype=np.int64), v).to_ints() == [0, 0]
    assert matmul_z64(sp.csr_matrix((2, 2), dtype=np.int64), v.to_z64()).tolist() == [[0], [0]]


def test_factors_that_could_overflow_a_limb_are_refused():
    v = Z128.zeros((1, 1))
    for factor in (2**31 + 1, -(2**31) - 1):
        with pytest.raises(UsageError, match="2\\^31"):
            matmul_z128(np.array([[factor]]), v)


@pytest.mark.parametrize("sparse", [False, True])
def test_long_sums_are_exact(sparse):
    terms = 40_000
    x = np.full((1, terms), 1 << 31, dtype=np.int64)
    x[0, ::2] = -(1 << 31)
    v = Z128.from_int64(np.arange(terms, dtype=np.int64)[:, None] << 30)
    want = sum(int(a) * (k << 30) for k, a in enumerate(x[0]))
    assert matmul_z128(sp.csr_matrix(x) if sparse else x, v).to_ints() == [want]
