"""What a MatMul run will cost: ciphertexts on the wire and big multiplications, from public shapes.

Counts follow the kernels: fixed-base encryption, windowed multi-exponentiation, packing across
rows, the many-base randomiser, CRT decryption. Times come from one measured multiplication.
"""

from __future__ import annotations

from dataclasses import dataclass

from colonnade.protocol.matmul_spec import MatMulSpec
from colonnade.protocol.product import Product

__all__ = ["Cost", "run_cost", "step_cost"]

_WINDOW_BITS = 6
_FRAME_BYTES = 64


@dataclass(frozen=True)
class Cost:
    """Bytes each way and multiplications mod n² (in units of one full-size multiplication)."""

    to_feature_bytes: int
    to_label_bytes: int
    feature_multiplications: float
    label_multiplications: float

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.to_feature_bytes + other.to_feature_bytes,
            self.to_label_bytes + other.to_label_bytes,
            self.feature_multiplications + other.feature_multiplications,
            self.label_multiplications + other.label_multiplications,
        )

    def times(self, count: int) -> Cost:
        """`count` times this."""
        return Cost(
            self.to_feature_bytes * count,
            self.to_label_bytes * count,
            self.feature_multiplications * count,
            self.label_multiplications * count,
        )

    def seconds(self, multiplication_s: float, *, parallel: bool = False) -> float:
        """Both parties' work in sequence, or side by side where they overlap perfectly."""
        both = (self.feature_multiplications, self.label_multiplications)
        return multiplication_s * (max(both) if parallel else sum(both))


def _encrypt(count: int, key_bits: int) -> float:
    # Two half-size fixed-base powers of |n|/2 bits; a half-size multiplication costs a quarter.
    return count * 2 * (key_bits / 2 / _WINDOW_BITS) / 4


def _decrypt(count: int, key_bits: int) -> float:
    # Two half-size exponentiations with |n|/2-bit exponents in 5-bit windows.
    return count * 2 * (key_bits / 2) * 1.2 / 4


def _multiply(rows: int, terms: float, scalar_bits: int) -> float:
    if scalar_bits <= 1:
        return rows * terms
    return rows * (terms * (scalar_bits / 5 + 1) + scalar_bits)


def _seal(product: Product, rows: int, key_bits: int) -> float:
    layout = product.layout(key_bits)
    packing = rows * layout.slot_bits * layout.columns if layout.rows_per_ciphertext > 1 else 0
    randomiser = (key_bits + 192) / 8
    return packing + layout.packed_count(rows) * (randomiser + 3)


def step_cost(spec: MatMulSpec, rows: int, key_bits: int, density: float = 1.0) -> Cost:
    """One training step of `rows` rows; density: share of A's entries that are not zero."""
    ciphertext = key_bits // 4
    width = len(spec.feature)
    bits = max(bound.bit_length() for bound in spec.feature.bounds)
    forward, gradient = spec.forward.layout(key_bits), spec.gradient(rows).layout(key_bits)
    up = width * forward.ciphertexts_per_row + rows * gradient.ciphertexts_per_row
    down = forward.packed_count(rows) + gradient.packed_count(width)
    work_a = _multiply(rows, width * density, bits) * forward.ciphertexts_per_row
    work_a += _multiply(width, rows * density, bits) * gradient.ciphertexts_per_row
    work_a += _seal(spec.forward, rows, key_bits) + _seal(spec.gradient(rows), width, key_bits)
    work_b = _encrypt(up, key_bits) + _decrypt(down, key_bits)
    return Cost(
        up * ciphertext + 3 * _FRAME_BYTES,
        down * ciphertext + 8 * rows * spec.outputs + 2 * _FRAME_BYTES,
        work_a,
        work_b,
    )


def run_cost(
    spec: MatMulSpec, *, steps: int, batch_rows: int, all_rows: int, key_bits: int, density: float
) -> Cost:
    """A whole run: set-up, X_B V_B once per row, `steps` steps, one scoring of the other rows."""
    total = step_cost(spec, batch_rows, key_bits, density).times(steps)
    ciphertext = key_bits // 4
    if len(spec.label):
        layout = spec.label_forward.layout(key_bits)
        packed = layout.packed_count(all_rows)
        bits = max(bound.bit_length() for bound in spec.label.bounds)
        per_row = layout.ciphertexts_per_row
        work_b = _multiply(all_rows, len(spec.label), bits) * per_row
        work_b += _seal(spec.label_forward, all_rows, key_bits)
        count = len(spec.label) * per_row
        work_a = _decrypt(packed, key_bits) + _encrypt(count, key_bits)
        total += Cost(packed * ciphertext, count * ciphertext, work_a, work_b)
    return total
