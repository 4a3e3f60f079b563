"""Every operation of the encrypted tensors and three matrix jobs, beside `phe` and `gmpy2`.

    python -m benchmarks.crypto --json crypto.json
    python -m benchmarks.crypto --quick          # small sizes, to see that it runs

All three are measured in the same run, interleaved, medians of rounds; compare ratios, machines are
noisy. `phe` uses gmpy2 where it is installed. J1: 128 x 123 of 0/1, 14 ones a row, times 123 x 1.
J2: dense 128 x 28 of signed 16 bits times 28 x 1. J3: dense 128 x 64 of 16 bits times 64 x 32,
packed here and in the gmpy2 baseline; phe's J3 is scaled up from a part of it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import gmpy2
import numpy as np
import phe
import scipy.sparse as sp
from rich.console import Console
from rich.table import Table

from colonnade.crypto import (
    CipherSpace,
    CryptoTensor,
    KeyOwner,
    ManyBaseRandomisers,
    PrivateKey,
    SlotLayout,
    generate_key,
)
from colonnade.native import cpu_features, mul, pow_vartime, selected_kernel
from colonnade.ring import Csprng

# Multiplications of 52-bit limbs a second that the IFMA port allows, per 4096-bit modular
# multiplication: measured for the prototypes.
IFMA_PORT_LIMIT_NS = 577.0


@dataclass
class Row:
    """Seconds per operation of each implementation; None: not applicable."""

    name: str
    key_bits: int
    threads: int
    ours_s: float
    phe_s: float | None = None
    gmpy2_s: float | None = None

    def ratio(self, other: float | None) -> float | None:
        """How many times faster than `other`."""
        return None if other is None else other / self.ours_s


@dataclass(frozen=True)
class Case:
    """One operation: what to time, and how many operations a call makes."""

    name: str
    ours: Callable[[], Any]
    count: int
    phe: Callable[[], Any] | None = None
    phe_count: float = 1.0
    gmpy2: Callable[[], Any] | None = None
    gmpy2_count: float = 1.0


def measure(case: Case, rounds: int) -> tuple[float, float | None, float | None]:
    """Medians of interleaved rounds, seconds per operation."""
    runs: list[tuple[Callable[[], Any] | None, float]] = [
        (case.ours, case.count),
        (case.phe, case.phe_count),
        (case.gmpy2, case.gmpy2_count),
    ]
    times: list[list[float]] = [[], [], []]
    for _ in range(rounds):
        for slot, (run, count) in enumerate(runs):
            if run is not None:
                start = time.perf_counter()
                run()
                times[slot].append((time.perf_counter() - start) / count)
    ours, other, third = (statistics.median(t) if t else None for t in times)
    return ours or 0.0, other, third


class Bench:
    """Keys, operands and baselines of one key size."""

    def __init__(self, key: PrivateKey, threads: int, batch: int) -> None:
        self.rng = Csprng.from_os()
        self.key, self.threads, self.batch = key, threads, batch
        self.space = CipherSpace(key.public, threads)
        self.owner = KeyOwner(key, self.rng, threads)
        self.randomisers = ManyBaseRandomisers(self.space, self.rng)
        self.n = gmpy2.mpz(key.public.n)
        self.square = self.n * self.n
        self.public = phe.PaillierPublicKey(int(key.public.n))
        self.private = phe.PaillierPrivateKey(self.public, int(key.p), int(key.q))
        self.numbers = np.random.default_rng(7)
        self.owner.encrypt([1])  # tables are made once, not timed

    def encrypted(self, count: int) -> tuple[Any, list[Any]]:
        """`count` random ciphertexts in both forms."""
        sealed = self.owner.encrypt(list(range(1, count + 1)))
        width = self.space.ciphertext_bytes
        data = [sealed.data[i : i + width] for i in range(0, len(sealed.data), width)]
        numbers = self.space.load(sealed.data, count, "benchmark")
        return numbers, [gmpy2.mpz(int.from_bytes(c, "little")) for c in data]

    def operations(self) -> Iterator[Case]:
        """Single operations."""
        batch, few = self.batch, max(2, self.batch // 32)
        plain = list(range(batch))
        numbers, integers = self.encrypted(batch)
        sealed = self.owner.encrypt(plain)

        def gmpy2_encrypt() -> None:
            for m in range(few):
                r = gmpy2.mpz(self.rng.integers_below(int(self.n), 1)[0])
                _ = (1 + m * self.n) * gmpy2.powmod(r, self.n, self.square) % self.square

        def phe_encrypt() -> None:
            for m in range(few):
                self.public.raw_encrypt(m)

        yield Case(
            "randomiser (non-owner)",
            lambda: self.randomisers.draw(batch),
            batch,
            phe_encrypt,
            few,
            gmpy2_encrypt,
            few,
        )
        yield Case(
            "encrypt (owner)",
            lambda: self.owner.encrypt(plain),
            batch,
            phe_encrypt,
            few,
            gmpy2_encrypt,
            few,
        )
        some = [int(c) for c in integers[:few]]
        p2, q2 = gmpy2.mpz(self.key.p) ** 2, gmpy2.mpz(self.key.q) ** 2
        yield Case(
            "decrypt",
            lambda: self.owner.decrypt(sealed.data, batch, "benchmark"),
            batch,
            lambda: [self.private.raw_decrypt(c) for c in some],
            few,
            lambda: [
                (gmpy2.powmod(c, self.key.p - 1, p2), gmpy2.powmod(c, self.key.q - 1, q2))
                for c in integers[:few]
            ],
            few,
        )
        other = numbers.take(np.arange(batch)[::-1].copy())
        ints = [int(c) for c in integers]
        square = int(self.square)
        yield Case(
            "add",
            lambda: mul(numbers, other, self.threads),
            batch,
            lambda: (
                [self.public._raw_add(a, b) for a, b in zip(ints, ints[::-1], strict=True)]
                if hasattr(self.public, "_raw_add")
                else [a * b % square for a, b in zip(ints, ints[::-1], strict=True)]
            ),
            batch,
            lambda: [a * b % self.square for a, b in zip(integers, integers[::-1], strict=True)],
            batch,
        )
        for width in (16, 64):
            top = [int(v) for v in self.numbers.integers(1 << (width - 2), 1 << (width - 1), batch)]
            scalars = [2 * v + 1 for v in top]
            raw = b"".join(v.to_bytes(width // 8, "little") for v in scalars)
            yield Case(
                f"times u{width}",
                lambda raw=raw, width=width: pow_vartime(numbers, raw, width // 8, self.threads),
                batch,
                lambda scalars=scalars: [
                    phe.util.powmod(c, v, square) for c, v in zip(ints, scalars, strict=True)
                ],
                batch,
                lambda scalars=scalars: [
                    gmpy2.powmod(c, v, self.square) for c, v in zip(integers, scalars, strict=True)
                ],
                batch,
            )

    def jobs(self, scale: float) -> Iterator[Case]:
        """The three matrix jobs; `scale` shrinks the number of rows."""
        rows = max(2, int(128 * scale))
        ones = np.zeros((rows, 123), dtype=np.int64)
        for row in ones:
            row[self.numbers.choice(123, 14, replace=False)] = 1
        yield self._job("J1 sparse 0/1", ones, 1)
        dense = self.numbers.integers(-(1 << 15), 1 << 15, (rows, 28))
        yield self._job("J2 dense 16 bit", dense, 1)
        wide = self.numbers.integers(0, 1 << 16, (rows, 64))
        yield self._job("J3 packed 16 bit", wide, 32)

    def _job(self, name: str, x: np.ndarray, columns: int) -> Case:
        layout = SlotLayout(36, 26, columns, self.key.public.bits)
        count = x.shape[1] * layout.ciphertexts_per_row
        numbers, integers = self.encrypted(count)
        tensor = CryptoTensor(self.space, layout, x.shape[1], numbers)
        csr = sp.csr_matrix(x)
        part = 2 if columns > 1 else x.shape[0]  # rows that phe is timed on
        encrypted = [phe.EncryptedNumber(self.public, int(c)) for c in integers[: x.shape[1]]]

        def phe_rows() -> None:
            for row in x[:part]:
                terms = [encrypted[k] * int(v) for k, v in enumerate(row) if v > 1 or v < 0]
                terms += [encrypted[k] for k, v in enumerate(row) if v == 1]
                total = terms[0]
                for term in terms[1:]:
                    total = total + term

        return Case(
            name,
            lambda: tensor.left_multiply(csr),
            1,
            phe_rows,
            part / (x.shape[0] * columns),
            lambda: straus(x, integers[: x.shape[1]], self.square),
            1 / layout.ciphertexts_per_row,
        )


def straus(x: np.ndarray, bases: list[Any], modulus: Any) -> list[Any]:
    """The gmpy2 baseline of a job: shared 4-bit windows over all rows, one inverse a base."""
    if int(np.abs(x).max()) == 1 and int(x.min()) >= 0:
        out = []
        for row in x:
            total = gmpy2.mpz(1)
            for k in np.flatnonzero(row):
                total = total * bases[k] % modulus
            out.append(total)
        return out
    tables = []
    for base in bases:
        inverse = gmpy2.invert(base, modulus) if int(x.min()) < 0 else None
        both = []
        for one in (base, inverse):
            table = [gmpy2.mpz(1)]
            for _ in range(15 if one is not None else 0):
                table.append(table[-1] * one % modulus)
            both.append(table)
        tables.append(both)
    out = []
    for row in x.tolist():
        total = gmpy2.mpz(1)
        for shift in (12, 8, 4, 0):
            if shift != 12:
                total = gmpy2.powmod(total, 16, modulus)
            for k, value in enumerate(row):
                digit = (abs(value) >> shift) & 15
                if digit:
                    total = total * tables[k][value < 0][digit] % modulus
        out.append(total)
    return out


def main(argv: list[str] | None = None) -> list[Row]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--bits", type=int, nargs="+", default=[2048, 3072])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="few and small: shows that it runs")
    options = parser.parse_args(argv)
    if options.quick:
        options.bits, options.threads, options.rounds = [2048], [1], 1
    rows: list[Row] = []
    for bits in options.bits:
        key = generate_key(bits)
        for threads in options.threads:
            bench = Bench(key, threads, 8 if options.quick else 128)
            cases = [*bench.operations(), *bench.jobs(0.05 if options.quick else 1.0)]
            for case in cases:
                rows.append(Row(case.name, bits, threads, *measure(case, options.rounds)))
    show(rows, Console())
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            facts = {"kernel": selected_kernel(), "cpu": cpu_features()}
            json.dump(facts | {"rows": [asdict(row) for row in rows]}, file, indent=1)
    return rows


def show(rows: list[Row], console: Console) -> None:
    """One table with ratios."""
    table = Table(title=f"kernel {selected_kernel()}; per second, and times faster than")
    for name in ("operation", "key", "threads", "ours/s", "phe/s", "gmpy2/s", "x phe", "x gmpy2"):
        table.add_column(name, justify="left" if name == "operation" else "right")
    for row in rows:
        rates = [row.ours_s, row.phe_s, row.gmpy2_s]
        cells = ["-" if s is None else f"{1 / s:,.4g}" for s in rates]
        ratios = [row.ratio(row.phe_s), row.ratio(row.gmpy2_s)]
        cells += ["-" if r is None else f"{r:.2f}" for r in ratios]
        table.add_row(row.name, str(row.key_bits), str(row.threads), *cells)
    console.print(table)
    features = ", ".join(name for name, found in cpu_features().items() if found)
    console.print(f"processor: {features}")
    console.print(
        f"AVX-512 IFMA's port limit is {IFMA_PORT_LIMIT_NS:.0f} ns per 4096-bit modular "
        "multiplication and number on a Sapphire-Rapids-class core."
    )


if __name__ == "__main__":
    main()
