"""What a run will take, told before anybody approves it: seconds and bytes, from public shapes.

Each side knows its own columns and only the number of the other's, which it takes to be real
numbers in the default range; so the two sides' estimates differ a little.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from colonnade.data.fitted import DEFAULT_RANGE
from colonnade.native import Modulus, mul
from colonnade.nn.plan import TrainingPlan
from colonnade.party.job import Job
from colonnade.protocol.cost import run_cost
from colonnade.protocol.matmul_spec import Columns, MatMulSpec
from colonnade.ring import FixedMatrix

__all__ = ["Estimate", "assumed_columns", "density_of", "estimate_prediction", "estimate_training"]

# Per id, both sides together (`protocol.psi.dh`): one hash and two multiplications, one core.
_ALIGN_S = 120e-6
_POINT_BYTES, _TAG_BYTES = 32, 16
# A real column has 16 fractional bits; the bound counts units of the last one.
_REAL_BITS = 16
_SCORING_ROWS = 1024


@dataclass(frozen=True)
class Estimate:
    """Expected seconds of computing on machines like this one, and message bytes each way."""

    seconds: float
    to_label_bytes: int
    to_feature_bytes: int

    def __str__(self) -> str:
        return f"about {_duration(self.seconds)} of computing"


def assumed_columns(count: int) -> Columns:
    """Columns of which only the number is known: real numbers in the default range."""
    bound = int(DEFAULT_RANGE) << _REAL_BITS
    return Columns((_REAL_BITS,) * count, (bound,) * count)


def density_of(matrix: FixedMatrix) -> float:
    """Share of the entries that are not zero; 1 for a matrix without entries."""
    rows, columns = matrix.shape
    return float(matrix.csr().nnz) / (rows * columns) if rows * columns else 1.0


def estimate_training(
    job: Job, feature: Columns, label: Columns, rows: tuple[int, int], density: float, threads: int
) -> Estimate:
    """Alignment and training of at most the smaller of `rows` (feature, label) records.

    density: share of the feature party's entries that are not zero.
    """
    common = max(2, min(rows))
    plan = TrainingPlan(common, job.epochs, job.batch_size, job.seed_bytes, test_fraction=0.0)
    spec = MatMulSpec(feature, label, 1, plan.largest_batch, mask_bits=job.mask_bits)
    cost = run_cost(
        spec,
        steps=plan.epochs * plan.steps_per_epoch,
        batch_rows=min(job.batch_size, common),
        all_rows=common,
        key_bits=job.modulus_bits,
        density=density,
    )
    seconds = 0.0
    if job.protection == "blindfl":
        seconds = cost.seconds(_multiplication_s(job.modulus_bits, threads))
    return _with_alignment(
        Estimate(seconds, cost.to_label_bytes, cost.to_feature_bytes), rows, threads
    )


def estimate_prediction(
    job: Job, feature: Columns, label: Columns, rows: tuple[int, int], density: float, threads: int
) -> Estimate:
    """Alignment and one scoring of at most the smaller of `rows`; the time is an upper bound."""
    common = max(2, min(rows))
    batch = min(common, _SCORING_ROWS)
    spec = MatMulSpec(feature, label, 1, batch, mask_bits=job.mask_bits)
    bits, ciphertext = job.modulus_bits, job.modulus_bits // 4
    forward, kept = spec.forward.layout(bits), spec.label_forward.layout(bits)
    to_feature = len(feature) * forward.ciphertexts_per_row * ciphertext
    to_label = forward.packed_count(common) * ciphertext + 8 * common
    if len(label):
        to_feature += kept.packed_count(common) * ciphertext
        to_label += len(label) * kept.ciphertexts_per_row * ciphertext
    seconds = 0.0
    if job.protection == "blindfl":
        steps = math.ceil(common / batch)
        cost = run_cost(
            spec, steps=steps, batch_rows=batch, all_rows=common, key_bits=bits, density=density
        )
        seconds = cost.seconds(_multiplication_s(bits, threads))
    return _with_alignment(Estimate(seconds, to_label, to_feature), rows, threads)


def _with_alignment(run: Estimate, rows: tuple[int, int], threads: int) -> Estimate:
    feature_rows, label_rows = rows
    return Estimate(
        run.seconds + _ALIGN_S * (feature_rows + label_rows) / threads,
        run.to_label_bytes + _POINT_BYTES * feature_rows + _TAG_BYTES * label_rows,
        run.to_feature_bytes + _POINT_BYTES * label_rows + _TAG_BYTES * feature_rows,
    )


def _multiplication_s(key_bits: int, threads: int) -> float:
    """Seconds of one multiplication mod a number of ciphertext size on this machine, measured."""
    modulus = Modulus(((1 << (2 * key_bits)) - 1).to_bytes(key_bits // 4, "little"))
    count = 64 * threads
    numbers = modulus.from_bytes(bytes([7]) * (modulus.bytes * count), threads)
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(8):
            mul(numbers, numbers, threads)
        best = min(best, (time.perf_counter() - start) / (8 * count))
    return best


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.1f} hours"
