"""What both parties of a MatMul layer agree on in public: columns, bounds, products, budgets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import UsageError
from colonnade.protocol.product import Product, Result
from colonnade.ring import DERIVATIVE_BITS, OPERAND_BITS, WEIGHT_BITS, FixedMatrix

__all__ = ["Columns", "MatMulSpec"]

# Declared range of a weight: |W| < 2^6.
WEIGHT_RANGE_BITS = 6
_CONSTANT_BITS = 24
_MAX_FAILURE_LOG2 = -30
# Far above any model's width and any batch; bounds what a peer can make us allocate.
_MAX_OUTPUTS = 1 << 16
_MAX_BATCH_ROWS = 1 << 20


@dataclass(frozen=True)
class Columns:
    """Public description of one party's feature columns: fixed-point scales and declared bounds."""

    scale_bits: tuple[int, ...]
    bounds: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.scale_bits) != len(self.bounds):
            raise UsageError(f"got {len(self.scale_bits)} scales and {len(self.bounds)} bounds")
        for position, (scale, bound) in enumerate(zip(self.scale_bits, self.bounds, strict=True)):
            if scale not in (0, 16) or not 1 <= bound <= 1 << 31:
                raise UsageError(
                    f"column {position}: got scale {scale} and bound {bound}; want a scale of 0 or "
                    "16 bits and a bound in 1 .. 2^31"
                )

    @classmethod
    def of(cls, x: FixedMatrix) -> Columns:
        """The columns of an encoded matrix."""
        return cls(tuple(x.scale_bits.tolist()), tuple(x.bounds.tolist()))

    def __len__(self) -> int:
        return len(self.scale_bits)

    @property
    def scales(self) -> NDArray[np.int64]:
        """Scales as an array."""
        return np.array(self.scale_bits, dtype=np.int64)


@dataclass(frozen=True)
class MatMulSpec:
    """Agreed shape and bounds of one MatMul layer between one feature party and the label party.

    batch_rows: the largest batch of a training call; derivative_bound: sum over a batch of |dL/dZ|
    of one output (1 holds for every mean of losses with |dloss/dz| <= 1), checked by the label
    party at every call;
    activation_bits: |Z| < 2^activation_bits, checked by the label party at every call; momentum: of
    the optimiser, which bounds its buffers.
    """

    feature: Columns
    label: Columns
    outputs: int
    batch_rows: int
    derivative_bound: float = 1.0
    activation_bits: int = 16
    mask_bits: int = 64
    momentum: float = 0.9

    def __post_init__(self) -> None:
        if len(self.feature) < 1:
            raise UsageError("the feature party offers no columns; want at least one")
        if not 1 <= self.outputs <= _MAX_OUTPUTS or not 1 <= self.batch_rows <= _MAX_BATCH_ROWS:
            raise UsageError(
                f"got {self.outputs} outputs and batches of {self.batch_rows} rows; want 1 .. "
                f"{_MAX_OUTPUTS} and 1 .. {_MAX_BATCH_ROWS}"
            )
        if not 1 <= self.activation_bits <= 62 - self.activation_scale:
            raise UsageError(
                f"got activations below 2^{self.activation_bits} at scale {self.activation_scale}; "
                "want 1 .. 62 bits together: they must fit Z_2^64"
            )
        if not 0 <= self.momentum < 1:
            raise UsageError(f"got momentum {self.momentum}; want 0 or more, below 1")
        if not 0 < self.derivative_bound <= 2.0**20:
            raise UsageError(f"got a derivative bound of {self.derivative_bound}; want 0 .. 2^20")

    def check(self, modulus_bits: int) -> MatMulSpec:
        """Derive every product and its slots once, so that what cannot be fails at the agreement.

        Raises
            UsageError: a mask, share or slot of this layer does not fit.
        """
        products = [self.forward, self.gradient(self.batch_rows)]
        if len(self.label):
            products.append(self.label_forward)
        for product in products:
            product.layout(modulus_bits)
        return self

    @property
    def feature_bits(self) -> int:
        """The larger feature scale of both parties: 0 or 16."""
        return max((*self.feature.scale_bits, *self.label.scale_bits), default=0)

    @property
    def activation_scale(self) -> int:
        """Fixed-point scale of Z."""
        return OPERAND_BITS + self.feature_bits

    def row_shifts(self, columns: Columns) -> NDArray[np.int64]:
        """Left shift of row k of an operand, so that all columns meet at one scale."""
        return self.feature_bits - columns.scales

    @cached_property
    def forward(self) -> Product:
        """X_A at A times V_A at B, in Z_2^64 (operand copies wrap mod 2^64)."""
        return Product(
            "X_A V_A",
            inner=len(self.feature),
            columns=self.outputs,
            value_bound=sum(self.feature.bounds) << 63,
            result=Result.Z64,
            mask_bits=self.mask_bits,
        )

    @property
    def _label_weight(self) -> int:
        """Sum over B's columns of the largest |x|, at the common feature scale."""
        shifts = self.row_shifts(self.label).tolist()
        return sum(b << s for b, s in zip(self.label.bounds, shifts, strict=True))

    @cached_property
    def label_forward(self) -> Product:
        """X_B at B times V_B(0) at A: made once a row and kept, in Z_2^128 at full weight scale."""
        return Product(
            "X_B V_B",
            inner=len(self.label),
            columns=self.outputs,
            value_bound=max(1, self._label_weight) << (WEIGHT_BITS + WEIGHT_RANGE_BITS),
            result=Result.Z128,
            mask_bits=self.mask_bits,
        )

    @property
    def derivative_units(self) -> int:
        """Largest sum of |dL/dZ| of one output over a batch, as encoded.

        Rounding adds at most half a unit a row, and float sums a few units more.
        """
        return math.ceil(self.derivative_bound * 2.0**DERIVATIVE_BITS) + self.batch_rows + 8

    def gradient(self, rows: int) -> Product:
        """X_A^T at A times dL/dZ at B for a batch of `rows`, as integers."""
        return Product(
            "X_A^T dZ",
            inner=rows,
            columns=self.outputs,
            value_bound=max(self.feature.bounds) * self.derivative_units,
            result=Result.INTEGER,
            mask_bits=self.mask_bits,
        )

    # -- budgets -----------------------------------------------------------------------------

    def masked_values(self, steps: int, rows_scored: int) -> int:
        """Number of values that leave under a statistical mask in a job, at most.

        rows_scored: rows of all forward calls together; each leaves X_A V_A, and at most once
        X_B V_B.
        """
        per_step = len(self.feature) * self.outputs
        return steps * per_step + rows_scored * self.outputs * (2 if len(self.label) else 1)

    def mask_distance_log2(self, steps: int, rows_scored: int) -> float:
        """log2 of the job's total statistical distance of masks from perfect ones.

        Raises
            UsageError: the masks are narrower than 40 + log2(number of masked values) bits.
        """
        values = max(1, self.masked_values(steps, rows_scored))
        distance = math.log2(values) - self.mask_bits
        if distance > -40:
            raise UsageError(
                f"{values} masked values under {self.mask_bits}-bit masks leave a distance of "
                f"2^{distance:.1f}; want at most 2^-40: set mask_bits = "
                f"{40 + math.ceil(math.log2(values))} or more"
            )
        return distance

    def truncation_failure_log2(
        self, steps: int, rows_scored: int, *, decays: bool = False
    ) -> float:
        """log2 of the probability that any local truncation of the job goes wrong.

        decays: whether weight decay rescales the kept shares of X_B V_B.

        Raises
            UsageError: above 2^-30.
        """
        weights = len(self.feature) * self.outputs
        scaled = WEIGHT_BITS + _CONSTANT_BITS - 127
        # |dW| <= max |x| D, so a momentum buffer stays below max |x| D / (1 - momentum); |W| is
        # taken to stay below its declared range.
        columns = zip(self.feature.bounds, self.feature.scale_bits, strict=True)
        largest = max(bound * 2.0**-scale for bound, scale in columns)
        buffer = largest * self.derivative_bound / (1.0 - self.momentum)
        update = 2 * buffer * 2.0**scaled
        if decays:
            update += 2.0 ** (WEIGHT_RANGE_BITS + scaled)
        copy = 2.0 ** (WEIGHT_RANGE_BITS + WEIGHT_BITS - 127)
        total = steps * weights * (update + copy)
        if len(self.label):
            product = float(self._label_weight) * 2.0 ** (WEIGHT_RANGE_BITS - self.feature_bits)
            kept = product * 2.0 ** (self.activation_scale + WEIGHT_BITS - OPERAND_BITS - 127)
            if decays:
                kept += product * 2.0 ** (self.activation_scale + _CONSTANT_BITS - 127)
            total += rows_scored * self.outputs * kept
        failure = math.log2(total) if total else -math.inf
        if failure > _MAX_FAILURE_LOG2:
            raise UsageError(
                f"this job's truncations fail with probability 2^{failure:.1f}; want at most "
                f"2^{_MAX_FAILURE_LOG2}: fewer epochs, fewer columns or a smaller activation range"
            )
        return failure
