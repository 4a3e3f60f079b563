"""Fixed point: rounding, ranges, public constants, and what an error names."""

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.errors import DataError, UsageError
from colonnade.ring import (
    FEATURE_BITS,
    OPERAND_BITS,
    WEIGHT_BITS,
    Z128,
    FixedMatrix,
    PublicConstant,
    decode_z64,
    encode_int64,
    encode_z128,
    round_shift_z64_copy,
)

QUICK = settings(derandomize=True, max_examples=60, deadline=None)
reals = st.floats(-64, 64)


def matrix(values, *, whole=False, limit=64.0, **names):
    columns = values.shape[1]
    return FixedMatrix.encode(values, [whole] * columns, [limit] * columns, **names)


@QUICK
@given(st.lists(st.tuples(reals, st.integers(-64, 64)), min_size=1, max_size=5))
def test_features_are_rounded_to_the_nearest_multiple_of_their_unit(rows):
    values = np.array(rows, dtype=np.float64)
    x = FixedMatrix.encode(values, [False, True], [64, 64])
    assert x.scale_bits.tolist() == [FEATURE_BITS, 0]
    assert x.bounds.tolist() == [64 << 16, 64]
    for (real, whole), got in zip(rows, x.values, strict=True):
        assert abs(Fraction(int(got[0]), 2**16) - Fraction(real)) <= Fraction(1, 2**17)
        assert got[1] == whole
    assert np.abs(x.decode() - values).max() <= 2**-17


@QUICK
@given(st.lists(st.lists(st.sampled_from([0.0, 1.5, -2.25, 3.0]), min_size=3, max_size=3)))
def test_dense_and_sparse_features_encode_alike(rows):
    values = np.array(rows, dtype=np.float64).reshape(-1, 3)
    dense, sparse = matrix(values), matrix(sp.csr_matrix(values))
    np.testing.assert_array_equal(sparse.values.toarray(), dense.values)
    np.testing.assert_array_equal(dense.csr().toarray(), dense.values)
    np.testing.assert_array_equal(sparse.decode().toarray(), dense.decode())
    assert (dense.shape, len(dense)) == (sparse.shape, len(sparse)) == (values.shape, len(values))


def test_values_that_round_to_zero_leave_no_stored_zeros():
    x = matrix(sp.csr_matrix(np.array([[2.0**-18, 0.0, 1.0]])))
    assert x.values.nnz == 1


def test_stored_duplicates_are_checked_as_the_sum_they_stand_for():
    twice = sp.csr_matrix((np.array([40.0, 40.0]), [0, 0], [0, 2]), shape=(1, 1))
    with pytest.raises(DataError, match="got 80"):
        matrix(twice)
    assert matrix(twice, limit=80.0).values.toarray().tolist() == [[80 << 16]]
    assert twice.nnz == 2  # the caller's matrix is left as it was


def test_rows_are_taken_in_order():
    values = np.arange(12.0).reshape(4, 3)
    for x in (matrix(values), matrix(sp.csr_matrix(values))):
        taken = x.take(np.array([2, 0]))
        np.testing.assert_array_equal(taken.csr().toarray(), x.csr().toarray()[[2, 0]])
        assert taken.bounds is x.bounds


BAD = {
    "NaN": (np.nan, False, "got nan; want a finite number with |value| <= 64"),
    "infinite": (-np.inf, False, "got -inf; want a finite number with |value| <= 64"),
    "out of range": (64.5, False, "got 64.5; want a finite number with |value| <= 64"),
    "not whole": (0.5, True, "got 0.5; want a whole number with |value| <= 64"),
    "whole but out of range": (-65.0, True, "got -65; want a whole number with |value| <= 64"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix], ids=["dense", "csr"])
def test_a_bad_value_is_named_with_file_row_and_column(case, form):
    value, whole, wanted = BAD[case]
    values = np.zeros((4, 3))
    values[0, 2], values[2, 1] = 1.0, value
    with pytest.raises(DataError) as caught:
        matrix(
            form(values),
            whole=whole,
            names=["age", "income", "tenure"],
            where="people.csv",
            row_numbers=np.array([7, 9, 40, 41]),
        )
    assert str(caught.value) == f"people.csv, row 40, column 'income': {wanted}"


def test_without_names_a_bad_value_is_named_by_position():
    with pytest.raises(DataError, match=r"^features, row 2, column '0': got 65"):
        matrix(np.array([[1.0], [65.0]]))


def test_bad_declarations_are_refused():
    values = np.zeros((2, 2))
    for whole, limit in (([True], [1, 1]), ([True, True], [1])):
        with pytest.raises(UsageError, match="one of each per column"):
            FixedMatrix.encode(values, whole, limit)
    for limit in (0.0, -1.0, np.nan, np.inf, 32769.0):
        with pytest.raises(UsageError, match="declared ranges"):
            FixedMatrix.encode(values, [True, True], [1.0, limit])


def test_a_repr_shows_the_shape_and_no_feature():
    assert repr(matrix(np.full((2, 1), 42.0))) == "FixedMatrix(shape=(2, 1), <redacted>)"


constants = st.floats(2.0**-38, 2.0**23).flatmap(lambda v: st.sampled_from([v, -v]))


@QUICK
@given(constants)
def test_public_constants_have_24_significant_bits(value):
    constant = PublicConstant.from_float(value)
    assert 2**23 <= abs(constant.mantissa) <= 2**24
    assert abs(constant.value - value) <= abs(value) * 2**-24


@QUICK
@given(constants, st.integers(-(2**46), 2**46))
def test_a_constant_times_a_tensor_is_rounded_to_nearest(value, element):
    constant = PublicConstant.from_float(value)
    got = constant.apply(Z128.from_ints([element], (1,))).to_ints()[0]
    exact = Fraction(element * constant.mantissa, 2**constant.shift)
    assert abs(got - exact) <= Fraction(1, 2)


def test_constants_out_of_range_are_refused_and_zero_is_exact():
    zero = PublicConstant.from_float(0.0)
    assert (zero.value, zero.apply(Z128.from_ints([5], (1,))).to_ints()) == (0.0, [0])
    for value in (np.nan, np.inf, 2.0**24, 2.0**-40):
        with pytest.raises(UsageError, match="constant"):
            PublicConstant.from_float(value)


@QUICK
@given(st.floats(-1000, 1000), st.integers(0, 40))
def test_reals_enter_both_rings_rounded_to_nearest(value, scale):
    want = round(Fraction(value) * 2**scale)  # halves to even
    encoded = encode_int64(np.array([value]), scale, 1000, "it")
    assert encoded.tolist() == [want]
    assert encode_z128(np.array([value]), scale, "it").to_ints() == [want]
    assert abs(decode_z64(encoded.view(np.uint64), scale)[0] - value) <= 2.0 ** -(scale + 1)


def test_a_real_out_of_range_is_named():
    for value in (1.5, -np.inf, np.nan):
        with pytest.raises(DataError, match="got a rate of magnitude"):
            encode_int64(np.array([0.0, value]), 8, 1.0, "a rate")
    with pytest.raises(UsageError, match="want less than 2\\^62"):
        encode_int64(np.zeros(1), 60, 4.0, "a rate")


@QUICK
@given(st.integers(-(2**46), 2**46), st.integers(0, 2**128 - 1), st.sampled_from([0, 16]))
def test_operand_copies_of_two_shares_add_up_mod_2_64(weight, mask, shift):
    shares = [Z128.from_ints([v], (1, 1)) for v in (mask, weight - mask)]
    copies = [round_shift_z64_copy(share, np.array([shift])) for share in shares]
    opened = int((copies[0] + copies[1]).view(np.int64)[0, 0])
    units = Fraction(weight, 2 ** (WEIGHT_BITS - OPERAND_BITS)) * 2**shift
    # Each copy is rounded by half a unit at most; a wrap of the 128-bit sum is a jump of 2^112.
    assert abs(opened - units) <= 2**shift


def test_encoding_leaves_the_callers_matrix_alone():
    # 1e-6 rounds to zero at 16 bits; dropping it must not move the caller's other entries.
    x = sp.csr_matrix(np.array([[0.0, 1e-6, 2.0], [3.0, 0.0, 4.0]]))
    before = x.copy()
    first = FixedMatrix.encode(x, [False] * 3, [8.0] * 3)
    second = FixedMatrix.encode(x, [False] * 3, [8.0] * 3)
    assert (x != before).nnz == 0
    assert x.indices.tolist() == before.indices.tolist()
    assert x.indptr.tolist() == before.indptr.tolist()
    assert (first.values != second.values).nnz == 0
    assert first.values.nnz == 3


def test_a_decaying_constant_goes_to_zero_and_never_out_of_range():
    for value in (2.0**-39, 2.0**-40, 1e-15, 2.0**-62, 2.0**-70, 1e-300, 0.0):
        constant = PublicConstant.nearest(value)
        assert constant.shift <= 62
        assert abs(constant.value - value) <= max(2.0**-63, value * 2.0**-24)
    assert PublicConstant.nearest(0.3) == PublicConstant.from_float(0.3)
    with pytest.raises(UsageError):
        PublicConstant.nearest(float("nan"))
