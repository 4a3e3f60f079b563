"""Encrypted matrices under numpy's operators, against Python integers."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.crypto import (
    CipherSpace,
    CryptoTensor,
    DirectRandomisers,
    PackedTensor,
    SlotLayout,
    concatenate,
)
from colonnade.errors import UsageError
from colonnade.ring import Csprng
from paillier_by_hand import decrypt, encrypt, from_bytes, signed, small_key, to_bytes

QUICK = settings(derandomize=True, max_examples=15, deadline=None)
KEY = small_key(256)
SPACE = CipherSpace(KEY.public)
NARROW = SlotLayout(16, 40, 2, 256)  # 4 slots of 58 bits, so two rows a ciphertext
WIDE = SlotLayout(16, 40, 6, 256)  # two ciphertexts a row
SINGLE = SlotLayout(16, 40, 3, 256, slots_limit=1)
LAYOUTS = pytest.mark.parametrize(
    "layout", [NARROW, WIDE, SINGLE], ids=["narrow", "wide", "single"]
)


def encrypted(values: Any, layout: SlotLayout, scale_bits: int = 0) -> CryptoTensor:
    rows = np.asarray(values).tolist()
    plaintexts = [m for row in rows for m in layout.encode_row(row)]
    data = to_bytes(KEY, [encrypt(KEY, m) for m in plaintexts])
    numbers = SPACE.load(data, len(plaintexts), "test")
    return CryptoTensor(SPACE, layout, len(rows), numbers, scale_bits)


def check(tensor: CryptoTensor, want: Any) -> None:
    """The tensor decrypts, slot by slot, to these whole numbers."""
    want = np.asarray(want)
    assert tensor.shape == want.shape
    opened = [signed(KEY, decrypt(KEY, c)) for c in from_bytes(KEY, tensor.numbers.to_bytes())]
    assert opened == [m for row in want.tolist() for m in tensor.layout.encode_row(row)]


def drawn(data: st.DataObject, rows: int, columns: int, limit: int = 99) -> np.ndarray:
    cells = st.lists(st.integers(-limit, limit), min_size=rows * columns, max_size=rows * columns)
    return np.array(data.draw(cells), dtype=np.int64).reshape(rows, columns)


@LAYOUTS
@QUICK
@given(data=st.data())
def test_products_from_the_left(layout, data):
    v, x = drawn(data, 3, layout.columns), drawn(data, 2, 3, 50)
    c = encrypted(v, layout, 5)
    for form in (x, sp.csr_matrix(x), sp.csr_array(x), x.astype(np.int32), np.asfortranarray(x)):
        check(form @ c, x @ v)
    assert (x @ c).scale_bits == 5
    assert c.left_multiply(x, 7).scale_bits == 12


@QUICK
@given(data=st.data())
def test_products_from_the_right_transposes_and_shapes(data):
    v, y = drawn(data, 4, 3), drawn(data, 3, 2, 50)
    c = encrypted(v, SINGLE, 5)
    check(c @ y, v @ y)
    check(c @ sp.csr_matrix(y), v @ y)
    assert (c @ y).scale_bits == 5
    assert c.right_multiply(y, 7).scale_bits == 12
    check(c.T, v.T)
    check(c.T.T, v)
    check(c.reshape(2, 6), v.reshape(2, 6))
    check(y.T @ c.T, (v @ y).T)


@LAYOUTS
@QUICK
@given(data=st.data())
def test_sums_and_differences(layout, data):
    a, b = (drawn(data, 3, layout.columns) for _ in range(2))
    c, d = encrypted(a, layout, 5), encrypted(b, layout, 5)
    check(c + d, a + b)
    check(c - d, a - b)
    check(-c, -a)
    check(c + b, a + b)
    check(b + c, a + b)
    check(c - b, a - b)
    check(b - c, b - a)
    check(c + b[0], a + b[0])
    check(c + 1, a + 1)
    check(1 - c, 1 - a)
    check(c.sum(axis=0), a.sum(axis=0, keepdims=True))
    assert {t.scale_bits for t in (c + d, c - d, -c, c + b, b - c, c.sum())} == {5}


@LAYOUTS
@pytest.mark.parametrize("factor", [-3, -1, 0, 1, 7, np.int64(9)])
def test_multiples(layout, factor):
    v = np.arange(2 * layout.columns).reshape(2, -1) - 3
    check(encrypted(v, layout) * factor, v * factor)
    check(factor * encrypted(v, layout), v * factor)


@LAYOUTS
@QUICK
@given(data=st.data())
def test_rows_move_freely(layout, data):
    v = drawn(data, 4, layout.columns)
    c = encrypted(v, layout, 5)
    picks = np.array(data.draw(st.lists(st.integers(0, 3), max_size=5)), dtype=np.int64)
    for rows in (slice(1, None), slice(None, None, -1), picks, v[:, 0] > 0, [0, -1]):
        check(c[rows], v[rows])
    check(c[2], v[2:3])
    check(c.lookup(picks), v[picks])
    check(concatenate([c, c[picks], c[:0]]), np.concatenate([v, v[picks]]))
    where = drawn(data, 4, 1, 2)[:, 0] + 2
    want = np.zeros((5, layout.columns), np.int64)
    np.add.at(want, where, v)
    check(c.scatter_add(where, 5), want)
    assert {t.scale_bits for t in (c[1], c.lookup(picks), concatenate([c, c]))} == {5}


def test_a_scatter_is_the_transpose_of_a_lookup():
    v, rows = np.arange(8).reshape(4, 2), np.array([3, 0, 3])
    one_hot = np.eye(4, dtype=np.int64)[rows]
    c = encrypted(v, NARROW)
    check(c.lookup(rows), one_hot @ v)
    check(c[:3].scatter_add(rows, 4), one_hot.T @ v[:3])


@pytest.mark.parametrize("columns", [1, 2, 4, 5, 9])
def test_columns_are_packed_and_sealed(columns):
    layout = SlotLayout(16, 40, columns, 256, slots_limit=1)
    v = np.arange(-5, 3 * columns - 5).reshape(3, columns)
    packed = encrypted(v, layout, 5).pack_columns()
    assert packed.layout == SlotLayout(16, 40, columns, 256)
    assert packed.scale_bits == 5
    check(packed, v)


@LAYOUTS
def test_packing_is_a_step_of_its_own(layout):
    v = np.arange(5 * layout.columns).reshape(5, -1) - 7
    packed = encrypted(v, layout).pack()
    assert isinstance(packed, PackedTensor)
    masks = [[3] * layout.slots_used] * layout.packed_count(5)
    sealed = packed.seal(masks, DirectRandomisers(SPACE, Csprng.from_os()))
    slots = [layout.split(decrypt(KEY, c)) for c in from_bytes(KEY, sealed.data)]
    opened = np.array(layout.rows_from_slots(slots, 5)) - layout.offset - 3
    np.testing.assert_array_equal(opened.reshape(v.shape), v)


def test_whole_expressions():
    v, x, y = (np.arange(6).reshape(2, 3) + k for k in range(3))
    c = encrypted(v, SINGLE)
    got = (x.T @ c @ y.T)[:2] * 2 - c @ y.T
    check(got, (x.T @ v @ y.T)[:2] * 2 - v @ y.T)


C = encrypted([[1, 2], [3, 4]], NARROW, 5)
ONE = encrypted([[1, 2, 3]], SINGLE)
ELSEWHERE = CipherSpace(small_key(256, "other").public)
BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "another key": (
        lambda: C - CryptoTensor(ELSEWHERE, NARROW, 2, ELSEWHERE.encode([1, 2]), 5),
        "two keys",
    ),
    "another key below": (
        lambda: concatenate([C, CryptoTensor(ELSEWHERE, NARROW, 1, ELSEWHERE.encode([1]), 5)]),
        "two keys",
    ),
    "another scale": (lambda: C + encrypted([[1, 2], [3, 4]], NARROW, 6), r"scales of \[5, 6\]"),
    "another scale below": (lambda: concatenate([C, encrypted([[1, 2]], NARROW)]), "scales"),
    "another layout": (
        lambda: C + encrypted([[1, 2], [3, 4]], SlotLayout(17, 40, 2, 256), 5),
        "two slot layouts",
    ),
    "a negative scale": (lambda: encrypted([[1, 2]], NARROW, -1), "scale of -1"),
    "other rows": (lambda: C - C[:1], "shapes"),
    "nothing to join": (lambda: concatenate([]), "no tensors"),
    "fractions added": (lambda: C + 0.5, "float64; want whole numbers"),
    "fractions multiplied": (lambda: np.ones((1, 2)) @ C, "float64; want int64"),
    "numbers above int64": (lambda: np.ones((1, 2), np.uint64) @ C, "uint64; want int64"),
    "a vector": (lambda: np.ones(2, np.int64) @ C, "1 dimensions; want 2"),
    "a wide X": (lambda: np.ones((1, 3), np.int64) @ C, "X with 3 columns for 2"),
    "a tall Y": (lambda: ONE @ np.ones((2, 1), np.int64), "Y with 2 rows for 3"),
    "another shape added": (
        lambda: C + np.ones((3, 2), np.int64),
        r"shape \(3, 2\); want \(2, 2\)",
    ),
    "a value beyond its slot": (lambda: C + (2**16 + 1), "beyond the 16 bits"),
    "a fraction as factor": (lambda: C * 0.5, "no whole number"),
    "a truth as factor": (lambda: C * True, "no whole number"),
    "a huge factor": (lambda: C * 2**63, "no whole number"),
    "a sum of columns": (lambda: C.sum(axis=1), "got axis 1"),
    "columns picked": (lambda: C[:, 0], "rows only"),
    "rows of rows": (lambda: C[np.zeros((1, 1), np.int64)], "2 dimensions"),
    "a lookup before the first": (lambda: C.lookup(np.array([-1])), "beyond the 2 rows"),
    "a lookup after the last": (lambda: C.lookup(np.array([2])), "beyond the 2 rows"),
    "a lookup of fractions": (lambda: C.lookup(np.array([0.0])), "float64"),
    "a scatter beyond": (lambda: C.scatter_add(np.array([0, 3]), 3), "beyond the 3 rows"),
    "a scatter of one": (lambda: C.scatter_add(np.array([0]), 3), "1 indices for 2 rows"),
    "a shared transpose": (lambda: C.T, "slots_limit=1 for a transpose"),
    "a shared product": (lambda: C @ np.ones((2, 1), np.int64), "slots_limit=1"),
    "a shared shape": (lambda: C.reshape(1, 4), "slots_limit=1"),
    "columns packed twice": (lambda: C.pack_columns(), "slots_limit=1"),
    "a shape of another size": (lambda: ONE.reshape(2, 2), "for 3 values"),
    "no slots": (lambda: SlotLayout(16, 40, 2, 256, slots_limit=0), "limit of 0 slots"),
    "a pack of another size": (
        lambda: PackedTensor(SPACE, NARROW, 5, C.numbers),
        "got 2 packed ciphertexts; want 3",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_operands_that_do_not_fit_are_named(case):
    operation, message = BAD[case]
    with pytest.raises(UsageError, match=message):
        operation()


def test_a_plain_sum_keeps_the_tensor_computed():
    """Adding plain numbers takes no randomness, so the sum must not pass for a sealed tensor."""
    assert isinstance(C + 1, CryptoTensor)
    first, second = (from_bytes(KEY, (C + 1).numbers.to_bytes()) for _ in range(2))
    assert first == second
