"""Products of powers along sparse rows against Python's pow."""

import random
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numbers_modulo import batch, each_kernel, integers, modulus_of, odd_number, units

from colonnade.native import multiexp_csr_vartime

N = odd_number(512)
LOW, HIGH = -(1 << 63), (1 << 63) - 1


def csr(rows: list[dict[int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    indptr = np.cumsum([0, *(len(row) for row in rows)], dtype=np.int64)
    columns = np.array([column for row in rows for column in row], dtype=np.int64)
    values = np.array([value for row in rows for value in row.values()], dtype=np.int64)
    return indptr, columns, values


def expected_of(numbers: list[int], rows: list[dict[int, int]], groups: int, n: int) -> list[int]:
    result = []
    for row in rows:
        for group in range(groups):
            product = 1
            for column, value in row.items():
                product = product * pow(numbers[column * groups + group], value, n) % n
            result.append(product)
    return result


scalars = st.one_of(
    st.sampled_from([0, 1, -1, 2, -2, 3, LOW, LOW + 1, HIGH]),
    st.integers(-(1 << 16), 1 << 16),
    st.integers(LOW, HIGH),
)


@each_kernel
@settings(max_examples=80, derandomize=True, deadline=None)
@given(
    st.lists(st.dictionaries(st.integers(0, 4), scalars, max_size=5), max_size=5),
    st.integers(1, 3),
    st.sampled_from([1, 2, 3]),
)
def test_any_matrix(kernel, rows, groups, threads):
    numbers = units(N, 5 * groups)
    bases = batch(modulus_of(N, kernel), numbers)
    result = multiexp_csr_vartime(bases, *csr(rows), threads, groups)
    assert integers(result) == expected_of(numbers, rows, groups, N)


@each_kernel
@pytest.mark.parametrize("bits", [2048, 4096])
def test_real_sizes(bits, kernel):
    n = odd_number(bits)
    numbers = units(n, 4)
    rows = [{0: 1, 1: 1, 2: 1}, {}, {3: -70_000, 1: 41}, {2: HIGH, 0: LOW}, {1: -1}]
    result = multiexp_csr_vartime(batch(modulus_of(n, kernel), numbers), *csr(rows))
    assert integers(result) == expected_of(numbers, rows, 1, n)


@each_kernel
@pytest.mark.parametrize("sign", ["positive", "mixed"])
def test_many_rows_share_wide_windows(sign, kernel):
    rng = np.random.default_rng(3)
    dense = rng.integers(-(1 << 20) if sign == "mixed" else 0, 1 << 20, (60, 6))
    dense[rng.random(dense.shape) < 0.3] = 0
    numbers = units(N, 12)
    matrix = sp.csr_matrix(dense)
    rows = [{j: int(v) for j, v in enumerate(row) if v} for row in dense]
    outcomes = {
        multiexp_csr_vartime(
            batch(modulus_of(N, kernel), numbers),
            matrix.indptr.astype(np.int64),
            matrix.indices.astype(np.int64),
            matrix.data.astype(np.int64),
            threads,
            2,
        ).to_bytes()
        for threads in (1, 2, 3)
    }
    assert len(outcomes) == 1
    width = (N.bit_length() + 7) // 8
    want = b"".join(x.to_bytes(width, "little") for x in expected_of(numbers, rows, 2, N))
    assert outcomes == {want}


@each_kernel
@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_one_long_row_is_cut_between_threads(threads, kernel):
    numbers = units(N, 101)
    row = {j: (-1) ** j * j * 1000 for j in range(101)}
    result = multiexp_csr_vartime(batch(modulus_of(N, kernel), numbers), *csr([row]), threads)
    assert integers(result) == expected_of(numbers, [row], 1, N)


@each_kernel
@pytest.mark.parametrize("outputs", [1, 3, 9, 23])
def test_rows_of_uneven_lengths_and_sizes(outputs, kernel):
    rng = random.Random(outputs)
    numbers = units(N, 12)
    rows = [
        {j: rng.randrange(-(1 << i), 1 << i) for j in range(12) if rng.random() < i / outputs}
        for i in range(outputs)
    ]
    result = multiexp_csr_vartime(batch(modulus_of(N, kernel), numbers), *csr(rows), 2)
    assert integers(result) == expected_of(numbers, rows, 1, N)


@each_kernel
def test_more_steps_than_are_planned_at_once(kernel):
    n = odd_number(64)
    numbers = units(n, 200)
    rows = [{j: (1 << 62) - i - j for j in range(200)} for i in range(16)]
    result = multiexp_csr_vartime(batch(modulus_of(n, kernel), numbers), *csr(rows), 2)
    assert integers(result) == expected_of(numbers, rows, 1, n)


@each_kernel
def test_a_column_may_repeat_in_a_row(kernel):
    numbers = units(N, 3)
    indptr, columns = np.array([0, 3]), np.array([2, 2, 2])
    result = multiexp_csr_vartime(
        batch(modulus_of(N, kernel), numbers), indptr, columns, np.array([5, -3, 1])
    )
    assert integers(result) == [pow(numbers[2], 3, N)]


@each_kernel
@pytest.mark.parametrize("table_bytes", [0, 64 * 8, 64 * 50, 1 << 40])
def test_room_for_tables_changes_no_result(table_bytes, kernel):
    numbers = units(N, 5)
    rows = [{j: (-3) ** (j + i) for j in range(5)} for i in range(30)]
    bases = batch(modulus_of(N, kernel), numbers)
    result = multiexp_csr_vartime(bases, *csr(rows), table_bytes=table_bytes)
    assert integers(result) == expected_of(numbers, rows, 1, N)


# 75 entries of 63 bits pay for 128 powers of each of 10,000 bases: 39 MiB, were there room.
WIDE_JOB = """
import resource
import numpy as np
from colonnade.native import Modulus, multiexp_csr_vartime
n, columns, groups, rows, value = 2**64 - 59, 2000, 5, 75, 2**63 - 1
modulus = Modulus(n.to_bytes(8, "little"))
bases = modulus.from_bytes((3).to_bytes(8, "little") * (columns * groups))
indptr = np.arange(rows + 1) * columns
indices = np.tile(np.arange(columns), rows)
values = np.full(rows * columns, value)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
result = multiexp_csr_vartime(bases, indptr, indices, values, 2, groups, table_bytes=8 << 20)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert result.to_bytes() == pow(3, columns * value, n).to_bytes(8, "little") * (rows * groups)
print((after - before) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts the peak memory in KiB")
def test_tables_stay_within_their_room():
    run = subprocess.run(
        [sys.executable, "-c", WIDE_JOB], capture_output=True, text=True, check=True
    )
    assert int(run.stdout) < 24


@each_kernel
def test_bases_without_inverse(kernel):
    n = 3 * ((1 << 127) + 1)
    bases = batch(modulus_of(n, kernel), [3, 0, 5])
    positive = [{0: 7, 1: 1}, {0: HIGH, 2: 2}, {2: -1}]
    result = integers(multiexp_csr_vartime(bases, *csr(positive)))
    assert result == [0, pow(3, HIGH, n) * 25 % n, pow(5, -1, n)]
    with pytest.raises(ValueError, match="negative power of a base that has no inverse"):
        multiexp_csr_vartime(bases, *csr([{2: 1}, {0: -1}]))


@each_kernel
def test_empty_matrices(kernel):
    modulus = modulus_of(N, kernel)
    none = np.array([], dtype=np.int64)
    bases = modulus.ones(2)
    assert len(multiexp_csr_vartime(bases, np.array([0]), none, none)) == 0
    assert integers(multiexp_csr_vartime(bases, np.zeros(4, np.int64), none, none, 2)) == [1, 1, 1]
    nothing = multiexp_csr_vartime(modulus.ones(0), np.zeros(2, np.int64), none, none, 1, 3)
    assert integers(nothing) == [1, 1, 1]


@pytest.mark.parametrize(
    ("indptr", "columns", "values", "groups", "text"),
    [
        ([], [], [], 1, "malformed"),
        ([1, 1], [0], [1], 1, "malformed"),
        ([0, 2], [0], [1], 1, "malformed"),
        ([0, 1], [0], [1, 2], 1, "malformed"),
        ([0, 2, 1, 2], [0, 1], [1, 1], 1, "malformed"),
        ([0, -1, 1], [0], [1], 1, "malformed"),
        ([0, 1], [4], [1], 1, "got column 4; want 0 to 4"),
        ([0, 1], [-1], [1], 1, "got column -1"),
        ([0, 1], [2], [1], 2, "got column 2; want 0 to 2"),
        ([0, 1], [0], [1], 3, "4 bases in groups of 3"),
        ([0, 1], [0], [1], 0, "4 bases in groups of 0"),
    ],
)
def test_refused(indptr, columns, values, groups, text):
    arrays = (np.array(x, dtype=np.int64) for x in (indptr, columns, values))
    with pytest.raises(ValueError, match=text):
        multiexp_csr_vartime(modulus_of(N).ones(4), *arrays, 1, groups)
