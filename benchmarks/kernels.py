"""What each kernel of this processor takes, beside gmpy2, on one core.

    python -m benchmarks.kernels --modulus-bits 4096 --rounds 9

Rounds go through all kernels in turn and the median of CPU time is shown, so that load on the
machine falls on all alike. The jobs are those of a Paillier key with half as many bits.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import time
from collections.abc import Callable

import gmpy2
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from colonnade import native

Job = Callable[[], object]

_ROWS = 128
_BATCH = 64
_RANDOMISER_BASES = 280
_SLOT_BITS = 135
_SMALL_PRIMES = math.prod(p for p in range(3, 2000, 2) if gmpy2.is_prime(p))


def odd_number(rng: random.Random, bits: int) -> int:
    """An odd number without small factors, so that random numbers have inverses."""
    while True:
        n = rng.getrandbits(bits) | 1 << (bits - 1) | 1
        if math.gcd(n, _SMALL_PRIMES) == 1:
            return n


def csr(dense: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
    matrix = sp.csr_matrix(dense)
    return tuple(x.astype(np.int64) for x in (matrix.indptr, matrix.indices, matrix.data))


def sparse_rows(rng: np.random.Generator) -> NDArray[np.int64]:
    """128 x 123 zeros and ones, 14 ones a row."""
    dense = np.zeros((_ROWS, 123), np.int64)
    for row in dense:
        row[rng.choice(123, 14, replace=False)] = 1
    return dense


class Numbers:
    """One modulus, for gmpy2 and for any kernel, and random numbers below it."""

    def __init__(self, rng: random.Random, bits: int) -> None:
        self.n = odd_number(rng, bits)
        self.plain = [rng.randrange(self.n) for _ in range(_RANDOMISER_BASES)]

    def batch(self, kernel: str, count: int) -> native.Residues:
        width = (self.n.bit_length() + 7) // 8
        modulus = native.Modulus(self.n.to_bytes(width, "little"), kernel=kernel)
        return modulus.from_bytes(b"".join(x.to_bytes(width, "little") for x in self.plain[:count]))


def jobs_of(kernel: str, full: Numbers, half: Numbers, seed: int) -> dict[str, tuple[Job, int]]:
    """Each job with how many results it gives."""
    rng = np.random.default_rng(seed)
    a, square = full.batch(kernel, _BATCH), 16
    secret = half.batch(kernel, _BATCH)
    bits = half.n.bit_length() // 2
    exponent = rng.bytes(bits // 8)
    exponents = rng.bytes(bits // 8 * _BATCH)
    table = native.FixedBaseTable(secret.modulus, half.batch(kernel, 1), bits, 6)
    bases = full.batch(kernel, _RANDOMISER_BASES)
    randomisers = native.ProductTable(a.modulus, bases, 8)
    digits = rng.integers(0, 256, (_BATCH, _RANDOMISER_BASES), dtype=np.uint8)
    packed = full.batch(kernel, _ROWS)
    slots = max(1, full.n.bit_length() // 2 // _SLOT_BITS)
    matrices = {
        "X @ c, 128 x 123, 14 ones a row": sparse_rows(rng),
        "X @ c, 128 x 28 of 16 bits, signed": rng.integers(-(1 << 15), 1 << 15, (_ROWS, 28)),
        "X @ c, 128 x 64 of 16 bits": rng.integers(0, 1 << 16, (_ROWS, 64)),
    }
    multiexp = native.multiexp_csr_vartime
    jobs: dict[str, tuple[Job, int]] = {
        "multiplication": (lambda: native.mul(a, a), _BATCH),
        "squaring": (lambda: native.square_times(a, square), _BATCH * square),
        "secret power, half the modulus": (
            lambda: native.pow_secret(secret, exponent, bits),
            _BATCH,
        ),
        "owner's fixed base, secret": (lambda: table.power_secret(exponents, bits // 8), _BATCH),
        "randomiser of 280 bases": (lambda: randomisers.products_vartime(digits), _BATCH),
        f"pack 128 in {slots}s, 135 bits each": (
            lambda: native.horner_pack(packed, slots, _SLOT_BITS),
            1,
        ),
        "invert 128": (lambda: native.invert(packed), 1),
    }
    for name, dense in matrices.items():
        columns, arrays = full.batch(kernel, dense.shape[1]), csr(dense)
        jobs[name] = (lambda c=columns, x=arrays: multiexp(c, *x), 1)  # type: ignore[misc]
    return jobs


def baselines(full: Numbers, half: Numbers) -> dict[str, tuple[Job, int]]:
    n, x, y = (gmpy2.mpz(v) for v in (full.n, *full.plain[:2]))
    p, z = gmpy2.mpz(half.n), gmpy2.mpz(half.plain[0])
    e = gmpy2.mpz(half.plain[1]) >> half.n.bit_length() // 2
    return {
        "multiplication": (lambda: [x * y % n for _ in range(_BATCH)], _BATCH),
        "squaring": (lambda: [x * x % n for _ in range(_BATCH)], _BATCH),
        "secret power, half the modulus": (lambda: gmpy2.powmod_sec(z, e, p), 1),
    }


def measure(
    contestants: dict[str, dict[str, tuple[Job, int]]], rounds: int
) -> dict[str, dict[str, float]]:
    """Median microseconds a result: contestant, then job."""
    times: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        for name, jobs in contestants.items():
            for job, (run, results) in jobs.items():
                start = time.thread_time()
                run()
                passed = time.thread_time() - start
                times.setdefault((name, job), []).append(passed / results * 1e6)
    return {
        name: {job: statistics.median(times[name, job]) for job in jobs}
        for name, jobs in contestants.items()
    }


def main(argv: list[str] | None = None) -> dict[str, dict[str, float]]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modulus-bits", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--kernels", nargs="+", default=["portable", "adx", "avx2", "ifma"])
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args(argv)
    rng = random.Random(1)
    full, half = (Numbers(rng, options.modulus_bits // k) for k in (1, 2))
    contestants = {"gmpy2": baselines(full, half)}
    for kernel in options.kernels:
        try:
            contestants[kernel] = jobs_of(kernel, full, half, seed=1)
        except ValueError as error:  # this processor does not run it
            Console(stderr=True).print(f"{kernel}: left out; {error}")
    medians = measure(contestants, options.rounds)
    table = Table(title=f"modulus of {options.modulus_bits} bits: microseconds a result, one core")
    table.add_column("job")
    for name in medians:
        table.add_column(name, justify="right")
    every_job = dict.fromkeys(job for jobs in medians.values() for job in jobs)
    for job in every_job:
        cells = [f"{jobs[job]:,.2f}" if job in jobs else "" for jobs in medians.values()]
        table.add_row(job, *cells)
    Console().print(table)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(medians, file, indent=1)
    return medians


if __name__ == "__main__":
    main()
