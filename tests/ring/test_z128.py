"""Z_2^128 tensors against Python integers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.errors import UsageError
from colonnade.ring import Z128

QUICK = settings(derandomize=True, max_examples=60, deadline=None)
EDGES = (0, 1, -1, 2**63, -(2**63), 2**64 - 1, 2**64, -(2**64), 2**127 - 1, -(2**127))
elements = st.one_of(st.sampled_from(EDGES), st.integers(-(2**127), 2**127 - 1))
vectors = st.lists(elements, min_size=1, max_size=5)
pairs = st.lists(st.tuples(elements, elements), min_size=1, max_size=5)


def signed(value: int) -> int:
    """The representative of `value` mod 2^128 in two's complement."""
    return (value + 2**127) % 2**128 - 2**127


def tensor(values: list[int]) -> Z128:
    return Z128.from_ints(values, (len(values),))


def rounded(value: int, bits: int) -> int:
    """round(value / 2^bits), halves upwards, where adding the half may wrap as the ring does."""
    return signed(value + (1 << bits >> 1)) >> bits


@QUICK
@given(st.lists(st.integers(-(2**300), 2**300), min_size=1, max_size=4))
def test_python_integers_of_any_size_are_reduced(values):
    assert tensor(values).to_ints() == [signed(v) for v in values]


@QUICK
@given(pairs)
def test_sums_differences_and_negatives(values):
    left, right = (list(side) for side in zip(*values, strict=True))
    a, b = tensor(left), tensor(right)
    assert (a + b).to_ints() == [signed(x + y) for x, y in values]
    assert (a - b).to_ints() == [signed(x - y) for x, y in values]
    assert (-a).to_ints() == [signed(-x) for x in left]
    assert a.sum_with([b, b]).to_ints() == [signed(x + 2 * y) for x, y in values]


@QUICK
@given(vectors, st.integers(-(2**32) + 1, 2**32 - 1))
def test_public_integer_factors(values, constant):
    assert tensor(values).times(constant).to_ints() == [signed(v * constant) for v in values]


@QUICK
@given(vectors, st.integers(0, 63))
def test_shifts(values, bits):
    a = tensor(values)
    assert a.shift_left(bits).to_ints() == [signed(v << bits) for v in values]
    assert a.round_shift(bits).to_ints() == [rounded(v, bits) for v in values]


def test_rounding_is_to_nearest_and_halves_go_up():
    quarters = tensor([-7, -6, -5, -3, -2, -1, 1, 2, 3, 5, 6, 7])
    assert quarters.round_shift(2).to_ints() == [-2, -1, -1, -1, 0, 0, 0, 1, 1, 1, 2, 2]


@QUICK
@given(st.integers(-(2**70), 2**70), st.integers(0, 2**128 - 1), st.integers(1, 40))
def test_rounding_each_share_on_its_own_is_off_by_one_unit_at_most(value, mask, bits):
    # The one exception: the mask lies within |value| of the point where it wraps.
    if min(abs(signed(mask) - edge) for edge in (2**127, -(2**127))) <= 2**71:
        return
    one, other = tensor([mask]), tensor([value - mask])
    opened = (one.round_shift(bits) + other.round_shift(bits)).to_ints()[0]
    # The two errors are at most half a unit each, and the true quotient need not be whole.
    assert abs(opened * 2**bits - value) <= 2**bits


@QUICK
@given(
    st.lists(st.tuples(elements, st.integers(0, 60)), min_size=1, max_size=5), st.integers(0, 60)
)
def test_rows_are_rescaled_each_from_its_own_scale(rows, to_bits):
    scales = np.array([scale for _, scale in rows])
    got = Z128.from_ints([v for v, _ in rows], (len(rows), 1)).rescale_rows(scales, to_bits)
    want = [
        rounded(v, s - to_bits) if s >= to_bits else signed(v << (to_bits - s)) for v, s in rows
    ]
    assert got.to_ints() == want


@QUICK
@given(vectors, st.integers(0, 60))
def test_floats_are_read_signed_and_to_the_last_bit(values, scale):
    got = tensor(values).to_float(scale)
    want = np.array([float(v) for v in values]) * 2.0**-scale
    # Two limbs are rounded one after the other: two half units of the last place.
    np.testing.assert_allclose(got, want, rtol=2**-52, atol=0)


@QUICK
@given(vectors)
def test_bytes_and_limbs_round_trip(values):
    a = tensor(values)
    assert a.to_bytes() == b"".join((v % 2**128).to_bytes(16, "little") for v in values)
    assert Z128.from_bytes(a.to_bytes(), a.shape).to_ints() == values
    assert Z128.from_limbs(a.to_limbs()).to_ints() == values
    assert a.to_z64().tolist() == [v % 2**64 for v in values]


@QUICK
@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5))
def test_int64_values_are_sign_extended(values):
    assert Z128.from_int64(np.array(values, dtype=np.int64)).to_ints() == values


def test_shape_operations_move_both_limbs():
    values = [(i << 64) - i for i in range(6)]
    a = Z128.from_ints(values, (2, 3))
    assert a.transpose().to_ints() == [values[i] for i in (0, 3, 1, 4, 2, 5)]
    assert a[1].to_ints() == values[3:]
    assert a.reshape(3, 2)[2].to_ints() == values[4:]
    assert (len(a), a.shape) == (2, (2, 3))
    assert Z128.zeros((2, 1)).to_ints() == [0, 0]


def test_a_copy_mod_2_64_does_not_follow_the_tensor():
    a = tensor([5])
    copy = a.to_z64()
    a.lo[0] = 6
    assert copy.tolist() == [5]


def test_bad_arguments_are_refused():
    word = np.zeros(2, np.uint64)
    for lo, hi in ((word, word[:1]), (word.astype(np.int64), word)):
        with pytest.raises(UsageError, match="limbs"):
            Z128(lo, hi)
    for constant in (2**32, -(2**32)):
        with pytest.raises(UsageError, match="want at most 32"):
            tensor([1]).times(constant)


def test_a_repr_shows_the_shape_and_no_share():
    assert repr(Z128.from_ints([271828, -1], (2, 1))) == "Z128(shape=(2, 1), <redacted>)"
