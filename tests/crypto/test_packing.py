"""Slot layouts: budgets, and that no value under any mask leaves its slot."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.crypto import SlotLayout
from colonnade.errors import PeerError, UsageError
from colonnade.protocol.matmul_spec import Columns, MatMulSpec
from colonnade.protocol.product import Product, Result

QUICK = settings(derandomize=True, max_examples=60, deadline=None)

# L, then slot bits and slots of a 2048-bit key for masks of 40 and of 64 statistical bits: worked
# out by hand from w = L + sigma + 2 for the products of a9a, w8a, higgs and a wide-and-deep model.
BUDGETS = [
    (69, (111, 18), (135, 15)),
    (39, (81, 25), (105, 19)),
    (71, (113, 18), (137, 14)),
    (89, (131, 15), (155, 13)),
    (61, (103, 19), (127, 16)),
    (127, (169, 12), (193, 10)),
    (132, (174, 11), (198, 10)),
    (166, (208, 9), (232, 8)),
    (171, (213, 9), (237, 8)),
]


@pytest.mark.parametrize(("value_bits", "with_40", "with_64"), BUDGETS)
def test_slot_budgets(value_bits, with_40, with_64):
    for sigma, want in ((40, with_40), (64, with_64)):
        layout = SlotLayout(value_bits, sigma, 1, 2048)
        assert (layout.slot_bits, layout.per_plaintext) == want
        assert layout.mask_width_bits == value_bits + 1 + sigma


def forward(columns: int, scale: int, bound: int) -> Product:
    label = Columns((0,), (1,))
    return MatMulSpec(Columns((scale,) * columns, (bound,) * columns), label, 1, 128).forward


@pytest.mark.parametrize(
    ("product", "value_bits", "slots"),
    [
        pytest.param(forward(62, 0, 1), 69, 15, id="a9a"),
        pytest.param(forward(150, 0, 1), 71, 14, id="w8a"),
        pytest.param(forward(14, 16, 1 << 22), 89, 13, id="higgs"),
    ],
)
def test_the_forward_products_of_real_sets_have_these_budgets(product, value_bits, slots):
    assert product.value_bits == value_bits
    assert product.layout(2048).per_plaintext == slots


@pytest.mark.parametrize(
    ("bound", "bits"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (2**63, 63), (2**63 + 1, 64)]
)
def test_a_bound_gets_the_least_power_of_two_that_covers_it(bound, bits):
    assert Product("it", 1, 1, bound, Result.Z64).value_bits == bits


layouts = st.builds(
    SlotLayout,
    value_bits=st.integers(1, 90),
    mask_bits=st.integers(40, 64),
    columns=st.integers(1, 9),
    modulus_bits=st.sampled_from([256, 512, 1024]),
)


@QUICK
@given(layouts, st.data())
def test_masked_rows_come_back_out_of_their_slots(layout, data):
    """What Paillier does to plaintexts, on integers: pack a row, shift rows, add blinds, split."""
    rows = data.draw(st.integers(1, 2 * layout.rows_per_ciphertext + 1))
    limit, top = 1 << layout.value_bits, (1 << layout.mask_width_bits) - 1
    value = st.sampled_from([-limit, limit, 0]) | st.integers(-limit, limit)
    values = data.draw(
        st.lists(value, min_size=rows * layout.columns, max_size=rows * layout.columns)
    )
    mask = data.draw(st.sampled_from([0, top]) | st.integers(0, top))
    encoded = [
        layout.encode_row(values[i * layout.columns : (i + 1) * layout.columns])
        for i in range(rows)
    ]
    if layout.ciphertexts_per_row == 1:
        group, shift = layout.rows_per_ciphertext, layout.slot_bits * layout.columns
        packed = [
            sum(row[0] << (shift * j) for j, row in enumerate(encoded[i : i + group]))
            for i in range(0, rows, group)
        ]
    else:
        packed = [plaintext for row in encoded for plaintext in row]
    assert len(packed) == layout.packed_count(rows)
    blind = layout.join([layout.offset + mask] * layout.slots_used)
    sent = [plaintext + blind for plaintext in packed]
    assert all(0 <= plaintext < 1 << (layout.modulus_bits - 1) for plaintext in sent)
    slots = [layout.split(plaintext) for plaintext in sent]
    opened = layout.rows_from_slots(slots, rows)
    assert opened == [v + layout.offset + mask for v in values]


@QUICK
@given(layouts)
def test_every_slot_that_travels_fits_below_the_modulus(layout):
    assert layout.slots_used <= layout.per_plaintext
    assert layout.per_plaintext * layout.slot_bits <= layout.modulus_bits - 1
    assert layout.offset * 2 + (1 << layout.mask_width_bits) <= 1 << layout.slot_bits


def test_bits_above_the_last_slot_are_refused():
    layout = SlotLayout(8, 40, 3, 256)
    full = layout.join([(1 << layout.slot_bits) - 1] * layout.slots_used)
    assert layout.split(full) == [(1 << layout.slot_bits) - 1] * layout.slots_used
    with pytest.raises(PeerError, match="above its last slot"):
        layout.split(full + 1)


def test_slots_wider_than_the_key_and_rows_without_columns_are_refused():
    assert SlotLayout(189, 64, 1, 256).per_plaintext == 1
    for value_bits, columns in ((190, 1), (10, 0)):
        with pytest.raises(UsageError, match="want at least one slot"):
            SlotLayout(value_bits, 64, columns, 256)
