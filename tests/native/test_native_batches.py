"""Batches against Python integers: form, product, inverse, gather, packing."""

import itertools
import math
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numbers_modulo import (
    FASTEST,
    KERNELS,
    batch,
    each_kernel,
    each_size,
    integers,
    modulus_of,
    odd_number,
    samples,
    units,
)

from colonnade import native
from colonnade.native import (
    Modulus,
    Residues,
    horner_pack,
    invert,
    mul,
    multiexp_csr_vartime,
    square_times,
)


@each_kernel
@each_size
def test_products_and_squares(bits, kernel):
    # All-ones limbs make every carry of a kernel ripple; the others are ordinary.
    for n in ((1 << bits) - 1, odd_number(bits), (1 << (bits - 1)) + 1):
        modulus = modulus_of(n, kernel)
        assert (modulus.bits, modulus.bytes) == (bits, (bits + 7) // 8)
        assert modulus.kernel == kernel
        numbers = samples(n, 11)
        a = batch(modulus, numbers)
        assert integers(a) == numbers
        assert integers(square_times(a, 1)) == [x * x % n for x in numbers]
        for turn in range(len(numbers)):
            other = numbers[turn:] + numbers[:turn]
            expected = [x * y % n for x, y in zip(numbers, other, strict=True)]
            assert integers(mul(a, batch(modulus, other))) == expected


@settings(max_examples=60, derandomize=True, deadline=None)
@given(st.data())
def test_kernels_agree(data):
    bits = data.draw(st.integers(64, 1200))
    n = data.draw(st.integers(1 << (bits - 1), (1 << bits) - 1)) | 1
    numbers = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=9))
    for kernel in KERNELS:
        a = batch(modulus_of(n, kernel), numbers)
        assert integers(mul(a, square_times(a, 3))) == [pow(x, 9, n) for x in numbers]


@each_kernel
@each_size
def test_inverse(bits, kernel):
    n = odd_number(bits)
    numbers = units(n, 7)
    a = batch(modulus_of(n, kernel), numbers)
    assert integers(invert(a)) == [pow(x, -1, n) for x in numbers]


@each_kernel
@settings(max_examples=100, derandomize=True, deadline=None)
@given(st.integers(1 << 63, 1 << 700), st.integers(1, 1 << 700))
def test_inverse_is_the_extended_gcd(kernel, n, x):
    n |= 1
    a = batch(modulus_of(n, kernel), [x % n])
    try:
        expected = pow(x, -1, n)
    except ValueError:
        with pytest.raises(ValueError, match="number 0 has no inverse"):
            invert(a)
    else:
        assert integers(invert(a)) == [expected]


@each_kernel
def test_inverse_names_the_number_without_one(kernel):
    n = 3 * (1 << 127) + 3
    modulus = modulus_of(n, kernel)
    for numbers, first in (([1, 2, 6, 3], 2), ([0], 0), ([1, 1, 0], 2)):
        for threads in (1, 2):
            with pytest.raises(ValueError, match=f"number {first} has no inverse"):
                invert(batch(modulus, numbers), threads)


@each_kernel
def test_broadcast_and_empty_batches(kernel):
    n = odd_number(512)
    modulus = modulus_of(n, kernel)
    numbers = samples(n, 9)
    a, one = batch(modulus, numbers), batch(modulus, [numbers[-1]])
    expected = [x * numbers[-1] % n for x in numbers]
    assert integers(mul(a, one)) == integers(mul(one, a)) == expected
    empty = modulus.from_bytes(b"")
    assert [len(x) for x in (empty, mul(empty, one), invert(empty), square_times(empty, 3))] == [
        0
    ] * 4
    assert len(horner_pack(empty, 3, 5)) == len(modulus.ones(0)) == 0
    assert integers(modulus.ones(2)) == [1, 1]
    with pytest.raises(ValueError, match="9 and 2 numbers"):
        mul(a, batch(modulus, [1, 2]))


@each_kernel
def test_square_times(kernel):
    n = odd_number(1024)
    numbers = samples(n, 9)
    a = batch(modulus_of(n, kernel), numbers)
    for k in (0, 1, 7, 100):
        assert integers(square_times(a, k)) == [pow(x, 1 << k, n) for x in numbers]
    with pytest.raises(TypeError):
        square_times(a, -1)


@each_kernel
def test_operands_stay_as_they_are(kernel):
    n = odd_number(512)
    numbers = units(n, 5)
    a = batch(modulus_of(n, kernel), numbers)
    mul(a, a), square_times(a, 2), invert(a), horner_pack(a, 2, 3)
    assert integers(a) == numbers


@each_kernel
@pytest.mark.parametrize("group", [1, 2, 3, 7, 50])
def test_horner_pack(group, kernel):
    n = odd_number(512)
    numbers = samples(n, 14)
    packed = horner_pack(batch(modulus_of(n, kernel), numbers), group, 13)
    expected = []
    for start in range(0, len(numbers), group):
        product = 1
        for j, x in enumerate(numbers[start : start + group]):
            product = product * pow(x, 1 << (13 * j), n) % n
        expected.append(product)
    assert integers(packed) == expected


def test_horner_pack_refuses_groups_of_nothing():
    with pytest.raises(ValueError, match="group of 0"):
        horner_pack(modulus_of(odd_number(64)).ones(3), 0, 1)


@each_kernel
@pytest.mark.parametrize("threads", [1, 2])
def test_any_number_of_lanes_in_use(threads, kernel):
    n = odd_number(207)
    modulus = modulus_of(n, kernel)
    for count in (*range(1, 10), 16, 17, 33):
        numbers = units(n, count, seed=count)
        a = batch(modulus, numbers, threads)
        assert integers(mul(a, a, threads)) == [x * x % n for x in numbers]
        assert integers(square_times(a, 20, threads)) == [pow(x, 1 << 20, n) for x in numbers]
        assert integers(invert(a, threads)) == [pow(x, -1, n) for x in numbers]
        pairs = [numbers[i : i + 2] for i in range(0, count, 2)]
        packed = [x * pow(math.prod(rest), 1 << 19, n) % n for x, *rest in pairs]
        assert integers(horner_pack(a, 2, 19, threads)) == packed


@each_kernel
def test_take_and_concat(kernel):
    n = odd_number(512)
    modulus = modulus_of(n, kernel)
    numbers = samples(n, 6)
    a = batch(modulus, numbers)
    assert integers(a.take(np.array([5, 0, 0, 3]))) == [numbers[i] for i in (5, 0, 0, 3)]
    assert len(a.take(np.array([], dtype=np.int64))) == 0
    joined = Residues.concat([a, modulus.from_bytes(b""), a.take(np.array([1]))])
    assert integers(joined) == [*numbers, numbers[1]]
    for bad in (-1, 6, np.iinfo(np.int64).min):
        with pytest.raises(ValueError, match="want 0 to 6 exclusive"):
            a.take(np.array([0, bad]))
    with pytest.raises(ValueError, match="no batches"):
        Residues.concat([])
    for wrong in (np.array([0.0]), np.array([0], dtype=np.int32), np.zeros((1, 1), np.int64)):
        with pytest.raises(TypeError):
            a.take(wrong)


@each_kernel
def test_two_moduli_do_not_mix(kernel):
    a, b = (modulus_of(odd_number(512, seed), kernel).ones(2) for seed in (1, 2))
    with pytest.raises(ValueError, match="two moduli"):
        mul(a, b)
    with pytest.raises(ValueError, match="two moduli"):
        Residues.concat([a, b])
    again = modulus_of(odd_number(512, 1), kernel).ones(2)
    assert integers(mul(a, again)) == [1, 1]


def test_modulus_of_a_batch_is_the_object_given():
    modulus = modulus_of(odd_number(512))
    assert modulus.ones(1).modulus is modulus


@pytest.mark.parametrize("n", [0, 1, (1 << 63) - 1, 1 << 100, (1 << 8192) + 1])
def test_unfit_moduli(n):
    with pytest.raises(ValueError, match="64 to 8192 bits"):
        Modulus(n.to_bytes(2000, "little"))
    with pytest.raises(ValueError, match="64 to 8192 bits"):
        Modulus(b"")


def test_zero_bytes_above_the_modulus_do_not_count():
    n = odd_number(96)
    assert (Modulus(n.to_bytes(500, "little")).bits, modulus_of(n).bytes) == (96, 12)


@each_kernel
@pytest.mark.parametrize("threads", [1, 3])
def test_numbers_not_below_the_modulus(threads, kernel):
    n = odd_number(512)
    modulus = modulus_of(n, kernel)
    for bad in (n, n + 1, (1 << 512) - 1):
        numbers = [n - 1] * 20
        numbers[3] = numbers[11] = bad
        with pytest.raises(ValueError, match=r"^number 3 is not below the modulus$"):
            batch(modulus, numbers, threads)
    with pytest.raises(ValueError, match="got 65 bytes; want a multiple of 64"):
        modulus.from_bytes(bytes(65))


@each_kernel
def test_bytes_like_inputs(kernel):
    n = odd_number(512)
    modulus = modulus_of(n, kernel)
    data = (n - 5).to_bytes(64, "little")
    array = np.frombuffer(data, np.uint8)
    for view in (data, bytearray(data), memoryview(data), array):
        assert integers(modulus.from_bytes(view)) == [n - 5]
    with pytest.raises(TypeError):
        modulus.from_bytes("text")
    with pytest.raises((BufferError, ValueError)):
        modulus.from_bytes(np.zeros(128, np.uint8)[::2])


@each_kernel
def test_threads_change_nothing(kernel):
    n = odd_number(512)
    modulus = modulus_of(n, kernel)
    numbers = units(n, 23)
    results = []
    for threads in (-1, 0, 1, 2, 3, 64):
        a = batch(modulus, numbers, threads)
        parts = [mul(a, a, threads), square_times(a, 4, threads), invert(a, threads)]
        parts.append(horner_pack(a, 3, 2, threads))
        results.append(b"".join(part.to_bytes(threads) for part in parts))
    assert all(x == y for x, y in itertools.pairwise(results))


def _selected(kernel: str) -> subprocess.CompletedProcess[str]:
    code = "from colonnade.native import selected_kernel; print(selected_kernel())"
    environment = {**os.environ, "COLONNADE_KERNEL": kernel}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )


def test_the_environment_names_the_kernel():
    for kernel in KERNELS:
        assert _selected(kernel).stdout.strip() == kernel
    assert _selected("").stdout.strip() == FASTEST
    assert "got kernel 'abacus'; want one this processor runs" in _selected("abacus").stderr


@pytest.mark.parametrize("count", [1 << 61, (1 << 61) + 1, (1 << 63) - 1])
def test_more_than_memory_holds(count):
    modulus = modulus_of(odd_number(512))
    with pytest.raises(MemoryError):
        modulus.ones(count)
    none = np.array([], dtype=np.int64)
    with pytest.raises(MemoryError):
        multiexp_csr_vartime(modulus.ones(0), np.zeros(9, np.int64), none, none, 1, count)


def test_batches_of_two_kernels_do_not_mix():
    a, b = (modulus_of(odd_number(512), kernel).ones(1) for kernel in ("portable", "ifma-emulated"))
    with pytest.raises(ValueError, match="two moduli"):
        mul(a, b)


def test_unknown_kernel_argument():
    with pytest.raises(ValueError, match="got kernel 'abacus'"):
        modulus_of(odd_number(64), "abacus")


def test_public_names_exist():
    assert all(hasattr(native, name) for name in native.__all__)
