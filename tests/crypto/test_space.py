"""Encrypted tensors against Python integers, and what may not get in or out."""

import re

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
    SealedTensor,
    SlotLayout,
)
from colonnade.errors import PeerError, UsageError
from colonnade.protocol.matmul_messages import WeightsPublished
from colonnade.ring import Csprng
from colonnade.wire.messages import encode_frame
from paillier_by_hand import decrypt, encrypt, from_bytes, randomness, signed, small_key, to_bytes

QUICK = settings(derandomize=True, max_examples=25, deadline=None)
KEY = small_key(256)
SPACE = CipherSpace(KEY.public)
NARROW = SlotLayout(12, 40, 2, 256)  # 4 slots of 54 bits, so two rows a ciphertext
WIDE = SlotLayout(12, 40, 6, 256)  # two ciphertexts a row


def encrypted(rows: list[list[int]], layout: SlotLayout) -> CryptoTensor:
    plaintexts = [m for row in rows for m in layout.encode_row(row)]
    data = to_bytes(KEY, [encrypt(KEY, m) for m in plaintexts])
    return CryptoTensor(SPACE, layout, len(rows), SPACE.load(data, len(plaintexts), "test"))


def opened(tensor: CryptoTensor) -> list[int]:
    """Signed plaintexts, one a ciphertext."""
    return [signed(KEY, decrypt(KEY, c)) for c in from_bytes(KEY, tensor.numbers.to_bytes())]


def plain(rows: list[list[int]], layout: SlotLayout) -> list[int]:
    return [m for row in rows for m in layout.encode_row(row)]


def matrices(columns: int, limit: int, rows: int | None = None):
    row = st.lists(st.integers(-limit, limit), min_size=columns, max_size=columns)
    return st.lists(row, min_size=rows or 1, max_size=rows or 4)


@pytest.mark.parametrize("layout", [NARROW, WIDE], ids=["narrow", "wide"])
@QUICK
@given(data=st.data())
def test_products_with_plain_matrices(layout, data):
    v = data.draw(matrices(layout.columns, 100, rows=3))
    x = data.draw(matrices(3, 13))
    got = encrypted(v, layout).left_multiply(sp.csr_matrix(np.array(x, dtype=np.int64)))
    assert got.shape == (len(x), layout.columns)
    assert opened(got) == plain((np.array(x) @ np.array(v)).tolist(), layout)


@pytest.mark.parametrize("layout", [NARROW, WIDE], ids=["narrow", "wide"])
@QUICK
@given(data=st.data())
def test_sums_and_row_selections(layout, data):
    a, b = (data.draw(matrices(layout.columns, 100, rows=3)) for _ in range(2))
    total = encrypted(a, layout) + encrypted(b, layout)
    assert opened(total) == plain((np.array(a) + np.array(b)).tolist(), layout)
    for rows in (np.array([2, 0, 2]), slice(1, None)):
        assert opened(encrypted(a, layout)[rows]) == plain(np.array(a)[rows].tolist(), layout)


@pytest.mark.parametrize("layout", [NARROW, WIDE], ids=["narrow", "wide"])
def test_sealing_packs_masks_and_randomises_anew(layout):
    rows = [[(-1) ** j * (100 * i + j) for j in range(layout.columns)] for i in range(5)]
    count = layout.packed_count(5)
    masks = [[1000 * i + j for j in range(layout.slots_used)] for i in range(count)]
    tensor = encrypted(rows, layout)
    randomisers = DirectRandomisers(SPACE, Csprng.from_os())
    sealed, again = (tensor.seal(masks, randomisers) for _ in range(2))
    assert sealed.count == count
    slots = [layout.split(decrypt(KEY, c)) for c in from_bytes(KEY, sealed.data)]
    blinds = layout.rows_from_slots(masks, 5)
    flat = [value for row in rows for value in row]
    assert layout.rows_from_slots(slots, 5) == [
        v + r + layout.offset for v, r in zip(flat, blinds, strict=True)
    ]
    one, other = (from_bytes(KEY, s.data) for s in (sealed, again))
    assert not {randomness(KEY, c) for c in one} & {randomness(KEY, c) for c in other}


def test_plaintexts_are_encoded_without_randomness():
    got = from_bytes(KEY, SPACE.encode([0, 1, -1]).to_bytes())
    assert got == [encrypt(KEY, m, r=1) for m in (0, 1, -1)]


GOOD = encrypt(KEY, 5)
BAD_NUMBERS = {
    "zero": (0, "not coprime"),
    "n": (KEY.public.n, "not coprime"),
    "a multiple of p": (KEY.p * 12345, "not coprime"),
    "a multiple of q": (KEY.q, "not coprime"),
    "the modulus": (KEY.public.n_squared, "out of range"),
    "the largest": (2**512 - 1, "out of range"),
}


@pytest.mark.parametrize("position", [0, 2])
@pytest.mark.parametrize("case", BAD_NUMBERS)
def test_numbers_that_are_no_ciphertexts_are_refused(case, position):
    number, message = BAD_NUMBERS[case]
    numbers = [GOOD] * 3
    numbers[position] = number
    with pytest.raises(PeerError, match=re.escape(message)) as caught:
        SPACE.load(to_bytes(KEY, numbers), 3, "X_A V_A")
    assert "X_A V_A" in str(caught.value)
    assert str(number) not in str(caught.value)


def test_factors_of_n_that_cancel_out_to_it_are_still_refused():
    with pytest.raises(PeerError, match="not coprime"):
        SPACE.load(to_bytes(KEY, [KEY.p, KEY.q]), 2, "it")


@pytest.mark.parametrize("change", [-64, -1, 1, 64])
def test_wrong_lengths_are_refused(change):
    data = (to_bytes(KEY, [GOOD] * 2) + bytes(64))[: 128 + change]
    with pytest.raises(PeerError, match=f"got {128 + change} bytes for it; want 128"):
        SPACE.load(data, 2, "it")


def test_nothing_can_be_loaded_as_nothing():
    assert len(SPACE.load(b"", 0, "it")) == 0


def test_operands_that_do_not_fit_are_refused():
    tensor = encrypted([[1, 2], [3, 4]], NARROW)
    other_key = CipherSpace(small_key(256, "other").public)
    elsewhere = CryptoTensor(other_key, NARROW, 1, other_key.encode([1]))
    with pytest.raises(UsageError, match="X with 3 columns for 2"):
        tensor.left_multiply(sp.csr_matrix((1, 3), dtype=np.int64))
    with pytest.raises(UsageError, match="two keys"):
        tensor[:1] + elsewhere
    with pytest.raises(UsageError, match="shapes"):
        tensor + tensor[:1]
    with pytest.raises(UsageError, match="want 2"):
        CryptoTensor(SPACE, WIDE, 1, SPACE.encode([1]))
    with pytest.raises(UsageError, match="another key size"):
        CryptoTensor(SPACE, SlotLayout(12, 40, 2, 512), 1, SPACE.encode([1]))
    with pytest.raises(UsageError, match="without 4 masks, one a slot"):
        tensor.seal([[0] * 3], DirectRandomisers(SPACE, Csprng.from_os()))
    with pytest.raises(UsageError, match="masks for 2 ciphertexts; want 1"):
        tensor.seal([[0] * 4] * 2, DirectRandomisers(SPACE, Csprng.from_os()))


def test_a_computed_tensor_has_no_way_onto_the_wire():
    tensor = encrypted([[1, 2]], NARROW)
    with pytest.raises((TypeError, OverflowError)):
        encode_frame(WeightsPublished(payload=tensor))
    sealed = tensor.seal([[0] * 4], DirectRandomisers(SPACE, Csprng.from_os()))
    assert encode_frame(WeightsPublished(payload=sealed.data))
    assert not isinstance(tensor, SealedTensor)
    public = {name for name in dir(CryptoTensor) if not name.startswith("_")}
    computed = {"T", "left_multiply", "lookup", "pack_columns", "reshape", "right_multiply"}
    computed |= {"scale_bits", "scatter_add", "sum"}
    assert public == computed | {"shape", "pack", "seal"}  # seal is the only way out
    packed = tensor.pack()
    with pytest.raises((TypeError, OverflowError)):
        encode_frame(WeightsPublished(payload=packed))
    assert {name for name in dir(PackedTensor) if not name.startswith("_")} == {"seal"}


def test_a_repr_shows_no_ciphertexts():
    assert "numbers" not in repr(encrypted([[1, 2]], NARROW))
