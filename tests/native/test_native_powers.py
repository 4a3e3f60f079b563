"""Powers by every method against Python's pow."""

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numbers_modulo import (
    batch,
    each_kernel,
    integers,
    modulus_of,
    odd_number,
    samples,
    stored_bytes,
)

from colonnade.native import FixedBaseTable, ProductTable, mul, pow_secret, pow_vartime


def little(exponent: int, width: int) -> bytes:
    return exponent.to_bytes(width, "little")


EXPONENT_BITS = [1, 2, 5, 8, 63, 64, 65, 130, 521]


@each_kernel
@pytest.mark.parametrize("bits", EXPONENT_BITS)
def test_shared_exponents(bits, kernel):
    n = odd_number(512)
    numbers = samples(n, 9)
    a = batch(modulus_of(n, kernel), numbers)
    width = (bits + 7) // 8
    rng = random.Random(bits)
    for e in (0, 1, 1 << (bits - 1), (1 << bits) - 1, rng.getrandbits(bits)):
        expected = [pow(x, e, n) for x in numbers]
        assert integers(pow_secret(a, little(e, width), bits)) == expected
        assert integers(pow_secret(a, little(e, width + 9), bits + 5)) == expected
        assert integers(pow_vartime(a, little(e, width), width)) == expected


@each_kernel
@pytest.mark.parametrize("bits", [1024, 2048, 4096])
def test_powers_of_real_sizes(bits, kernel):
    n, e = odd_number(bits), odd_number(bits, 1)
    numbers = samples(n, 9)[-1:]
    a = batch(modulus_of(n, kernel), numbers)
    expected = [pow(x, e, n) for x in numbers]
    width = bits // 8
    assert integers(pow_secret(a, little(e, width), bits)) == expected
    assert integers(pow_vartime(a, little(e, width), width)) == expected


@each_kernel
def test_secret_power_of_no_bits_is_one(kernel):
    a = batch(modulus_of(odd_number(64), kernel), [0, 5])
    assert integers(pow_secret(a, b"", 0)) == [1, 1]
    assert integers(pow_secret(a, b"\0\0", 0)) == [1, 1]


@pytest.mark.parametrize(("exponent", "bits"), [(4, 2), (256, 8), (1 << 64, 64), (128, 7)])
def test_secret_exponent_longer_than_stated(exponent, bits):
    a = modulus_of(odd_number(64)).ones(1)
    with pytest.raises(ValueError, match=f"longer than the stated {bits} bits"):
        pow_secret(a, little(exponent, 10), bits)


@each_kernel
@settings(max_examples=30, derandomize=True, deadline=None)
@given(st.lists(st.integers(0, (1 << 72) - 1), min_size=2, max_size=10), st.integers(1, 3))
def test_an_exponent_for_each_number(kernel, exponents, threads):
    n = odd_number(256)
    numbers = samples(n, len(exponents))
    a = batch(modulus_of(n, kernel), numbers)
    raw = b"".join(little(e, 9) for e in exponents)
    expected = [pow(x, e, n) for x, e in zip(numbers, exponents, strict=True)]
    assert integers(pow_vartime(a, raw, 9, threads)) == expected


@pytest.mark.parametrize(("size", "width"), [(0, 0), (8, 0), (3, 2), (8, 2)])
def test_exponents_that_do_not_fit_the_numbers(size, width):
    with pytest.raises(ValueError, match="want one exponent, or 3"):
        pow_vartime(modulus_of(odd_number(64)).ones(3), bytes(size), width)


def test_a_width_whose_product_with_the_count_wraps():
    with pytest.raises(ValueError, match="want one exponent, or 2"):
        pow_vartime(modulus_of(odd_number(64)).ones(2), bytes(8), (1 << 63) + 4)


@each_kernel
@pytest.mark.parametrize(("bits", "window"), [(1, 1), (7, 3), (64, 5), (100, 8), (13, 12)])
def test_fixed_base_tables(bits, window, kernel):
    n = odd_number(512)
    modulus = modulus_of(n, kernel)
    numbers = samples(n, 9)[-3:]
    rng = random.Random(window)
    exponents = [0, 1, (1 << bits) - 1, 1 << (bits - 1), *(rng.getrandbits(bits) for _ in range(5))]
    width = (bits + 7) // 8 + 1
    raw = b"".join(little(e, width) for e in exponents)
    for threads in (1, 3):
        table = FixedBaseTable(modulus, batch(modulus, numbers), bits, window, threads)
        assert (len(table), table.exponent_bits) == (3, bits)
        assert table.memory_bytes == 3 * -(-bits // window) * 2**window * stored_bytes(n, kernel)
        for base, x in enumerate(numbers):
            expected = [pow(x, e, n) for e in exponents]
            assert integers(table.power_secret(raw, width, threads, base=base)) == expected
            assert integers(table.power_vartime(raw, width, threads, base=base)) == expected
    assert len(table.power_secret(b"", width)) == 0


@each_kernel
def test_fixed_base_table_refuses(kernel):
    modulus = modulus_of(odd_number(512), kernel)
    one = modulus.ones(1)
    table = FixedBaseTable(modulus, one, 10, 4)
    for power in (table.power_secret, table.power_vartime):
        with pytest.raises(ValueError, match="more than 10 bits"):
            power(little(5, 2) + little(1 << 10, 2), 2)
        with pytest.raises(ValueError, match="multiple of the width"):
            power(bytes(3), 2)
        with pytest.raises(ValueError, match="base = 1"):
            power(bytes(2), 2, base=1)
    with pytest.raises(ValueError, match="window = 13; want 1 to 12"):
        FixedBaseTable(modulus, one, 10, 13)
    with pytest.raises(ValueError, match="exponent_bits = 0"):
        FixedBaseTable(modulus, one, 0, 4)
    with pytest.raises(ValueError, match="number of bases = 0"):
        FixedBaseTable(modulus, modulus.ones(0), 10, 4)
    with pytest.raises(ValueError, match="more than 1024 MiB"):
        FixedBaseTable(modulus, modulus.ones(100), 8192, 12)
    with pytest.raises(ValueError, match="two moduli"):
        FixedBaseTable(modulus_of(odd_number(512, 1), kernel), one, 10, 4)


@each_kernel
def test_powers_of_any_number_of_lanes(kernel):
    n, e, bits = odd_number(207), odd_number(70, 1), 70
    modulus = modulus_of(n, kernel)
    for count in (*range(1, 10), 17):
        numbers = samples(n, count + 7)[-count:]
        a, expected = batch(modulus, numbers), [pow(x, e, n) for x in numbers]
        assert integers(pow_secret(a, little(e, 9), bits, 2)) == expected
        assert integers(pow_vartime(a, little(e, 9), 9, 2)) == expected
        table = FixedBaseTable(modulus, a, bits, 4, 2)
        for base in (0, count - 1):
            exponents = [e >> i for i in range(count)]
            raw = b"".join(little(x, 9) for x in exponents)
            powers = [pow(numbers[base], x, n) for x in exponents]
            assert integers(table.power_secret(raw, 9, 2, base=base)) == powers
            assert integers(table.power_vartime(raw, 9, 2, base=base)) == powers


@each_kernel
@pytest.mark.parametrize("rows", [1, 2, 40])
def test_products_of_uneven_lengths(rows, kernel):
    n, bases = odd_number(207), 60
    modulus = modulus_of(n, kernel)
    numbers = samples(n, bases + 1)[-bases:]
    table = ProductTable(modulus, batch(modulus, numbers), 1)
    digits = np.zeros((rows, bases), np.uint8)
    for row in range(rows):  # 60, then 0, 1, 2, ... factors
        digits[row, : bases if row == 0 else row - 1] = 1
    expected = [math.prod(x for x, d in zip(numbers, row, strict=True) if d) % n for row in digits]
    for threads in (1, 2, 3):
        assert integers(table.products_vartime(digits, threads)) == expected


@each_kernel
@pytest.mark.parametrize("digit_bits", [1, 3, 8])
def test_product_tables(digit_bits, kernel):
    n = odd_number(512)
    modulus = modulus_of(n, kernel)
    numbers = samples(n, 13)[-5:]
    digits = np.random.default_rng(1).integers(0, 1 << digit_bits, (7, 5), dtype=np.uint8)
    digits[0], digits[1] = 0, (1 << digit_bits) - 1
    expected = []
    for row in digits.tolist():
        product = 1
        for x, digit in zip(numbers, row, strict=True):
            product = product * pow(x, digit, n) % n
        expected.append(product)
    for threads in (1, 2, 3):
        table = ProductTable(modulus, batch(modulus, numbers), digit_bits, threads)
        assert (len(table), table.memory_bytes) == (5, 5 * 2**digit_bits * stored_bytes(n, kernel))
        assert integers(table.products_vartime(digits, threads)) == expected
    assert len(table.products_vartime(digits[:0])) == 0


@each_kernel
def test_product_table_of_no_bases_gives_ones(kernel):
    modulus = modulus_of(odd_number(64), kernel)
    table = ProductTable(modulus, modulus.ones(0))
    assert integers(table.products_vartime(np.zeros((2, 0), np.uint8))) == [1, 1]


@each_kernel
def test_product_table_refuses(kernel):
    modulus = modulus_of(odd_number(512), kernel)
    table = ProductTable(modulus, modulus.ones(2), 3)
    with pytest.raises(ValueError, match="more than 3 bits"):
        table.products_vartime(np.array([[0, 8]], dtype=np.uint8))
    with pytest.raises(ValueError, match="3 digits a row; want one for each of 2"):
        table.products_vartime(np.zeros((1, 3), np.uint8))
    with pytest.raises(TypeError):
        table.products_vartime(np.zeros((1, 2), np.int64))
    with pytest.raises(ValueError, match="digit_bits = 9"):
        ProductTable(modulus, modulus.ones(2), 9)
    with pytest.raises(ValueError, match="two moduli"):
        mul(
            table.products_vartime(np.zeros((1, 2), np.uint8)),
            modulus_of(odd_number(64), kernel).ones(1),
        )
