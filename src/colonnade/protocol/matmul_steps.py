"""Local steps of the MatMul layer: pure functions of one party's own state. No channel, no network.

Names follow BlindFL §5: U_P lives at P, V_P at the other party, W_P = U_P + V_P. Weights, momentum
buffers and gradients are shares in Z_2^128 at scale 40; activations are shares in Z_2^64.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError, IntegrityError, PeerError, UsageError
from colonnade.protocol.matmul_spec import Columns, MatMulSpec
from colonnade.protocol.product import Share
from colonnade.protocol.sgd import DecayFactor, SharedSgd
from colonnade.ring import (
    DERIVATIVE_BITS,
    OPERAND_BITS,
    WEIGHT_BITS,
    Z128,
    Csprng,
    FixedMatrix,
    decode_z64,
    encode_int64,
    matmul_z64,
    matmul_z128,
    round_shift_z64_copy,
)

__all__ = [
    "FeatureState",
    "KeptProducts",
    "LabelState",
    "accumulate",
    "activation",
    "encode_derivatives",
    "feature_activation_share",
    "gradient_share",
    "initial_feature_state",
    "initial_label_state",
    "label_activation_share",
    "label_gradient",
    "label_operand",
    "own_product",
    "rounded_kept",
    "weight_operand",
]

U64 = NDArray[np.uint64]


@dataclass(frozen=True)
class FeatureState:
    """Party A's shares: U_A with its momentum, V_B (which only decays)."""

    u_a: Z128
    v_b: Z128
    momentum_u_a: Z128
    decay: DecayFactor = field(default_factory=DecayFactor)

    def stepped(self, sgd: SharedSgd, gradient: Z128) -> FeatureState:
        """Lines 11-12 at A: U_A moves by its piece of the gradient."""
        u_a, momentum = sgd.step(self.u_a, self.momentum_u_a, gradient)
        return replace(self, u_a=u_a, momentum_u_a=momentum, decay=self.decay.step(sgd))

    def tensors(self) -> dict[str, U64]:
        """What is saved (uint64 limbs); V_B with its decay applied."""
        return {"u_a": self.u_a.to_limbs(), "v_b": self.decay.apply(self.v_b).to_limbs()}


@dataclass(frozen=True)
class LabelState:
    """Party B's shares: U_B and V_A with their momentum."""

    u_b: Z128
    v_a: Z128
    momentum_u_b: Z128
    momentum_v_a: Z128
    decay: DecayFactor = field(default_factory=DecayFactor)

    def stepped(self, sgd: SharedSgd, gradient_b: Z128, gradient_a: Z128) -> LabelState:
        """Lines 11-12 at B: U_B by all of its gradient, V_A by B's piece of A's."""
        u_b, momentum_u_b = sgd.step(self.u_b, self.momentum_u_b, gradient_b)
        v_a, momentum_v_a = sgd.step(self.v_a, self.momentum_v_a, gradient_a)
        return LabelState(u_b, v_a, momentum_u_b, momentum_v_a, self.decay.step(sgd))

    def tensors(self) -> dict[str, U64]:
        """What is saved (uint64 limbs)."""
        return {"u_b": self.u_b.to_limbs(), "v_a": self.v_a.to_limbs()}


def initial_feature_state(spec: MatMulSpec, rng: Csprng, scale: float) -> FeatureState:
    """A1 (lines 1-2): U_A and V_B, each N(0, scale²/2), so that W has deviation `scale`."""
    shape_a, shape_b = (len(spec.feature), spec.outputs), (len(spec.label), spec.outputs)
    half = scale / math.sqrt(2.0)
    return FeatureState(
        rng.normal_z128(shape_a, half, WEIGHT_BITS),
        rng.normal_z128(shape_b, half, WEIGHT_BITS),
        Z128.zeros(shape_a),
    )


def initial_label_state(spec: MatMulSpec, rng: Csprng, scale: float) -> LabelState:
    """B1 (lines 1-2): U_B and V_A."""
    shape_a, shape_b = (len(spec.feature), spec.outputs), (len(spec.label), spec.outputs)
    half = scale / math.sqrt(2.0)
    return LabelState(
        rng.normal_z128(shape_b, half, WEIGHT_BITS),
        rng.normal_z128(shape_a, half, WEIGHT_BITS),
        Z128.zeros(shape_b),
        Z128.zeros(shape_a),
    )


class KeptProducts:
    """One party's shares of X_B V_B(0) by row position, made once a row and used many times.

    Safe because B's view of Z'_A is fixed by Z as long as Z'_A is reduced mod 2^64 and eps_A is
    fresh in every call. Both sides hold the same positions or the call is refused: each
    call carries the digest. Nothing outlives the session: another run draws new masks.
    """

    def __init__(self, rows: int, outputs: int) -> None:
        self._shares = Z128.zeros((rows, outputs))
        self._present = np.zeros(rows, dtype=bool)

    def missing(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Indices into `rows` whose share is not kept yet."""
        if len(rows) and (int(rows.min()) < 0 or int(rows.max()) >= len(self._present)):
            raise UsageError(f"got a row position outside 0 .. {len(self._present) - 1}")
        return np.flatnonzero(~self._present[rows])

    def store(self, rows: NDArray[np.int64], shares: Z128) -> None:
        """Keep the shares of `rows`."""
        self._shares.lo[rows], self._shares.hi[rows] = shares.lo, shares.hi
        self._present[rows] = True

    def digest(self) -> bytes:
        """SHA-256 (32 bytes) of which positions are kept; equal on both sides or they differ."""
        packed = np.packbits(self._present).tobytes()
        return hashlib.sha256(len(self._present).to_bytes(8, "little") + packed).digest()

    def get(self, rows: NDArray[np.int64]) -> Z128:
        """The kept shares of `rows`, all of which must be present."""
        if not bool(self._present[rows].all()):
            raise IntegrityError("a kept share of X_B V_B is missing on this side")
        return self._shares[rows]


def weight_operand(weight: Z128, spec: MatMulSpec, columns: Columns) -> U64:
    """Operand copy of a weight share: scale 24, rows shifted to one scale, mod 2^64."""
    return round_shift_z64_copy(weight, spec.row_shifts(columns))


def label_operand(v_b: Z128, spec: MatMulSpec) -> Z128:
    """V_B(0) at full scale with its rows shifted to one scale, for the kept product.

    Raises
        IntegrityError: |V_B| is not below 2^6, the declared range of a weight share that decays.
    """
    if v_b.lo.size and float(np.abs(v_b.to_float(WEIGHT_BITS)).max()) >= 64.0:
        raise IntegrityError("this side's share V_B is out of its declared range of 64")
    return v_b.rescale_rows(-spec.row_shifts(spec.label), 0)


def own_product(x: FixedMatrix, weight: Z128, spec: MatMulSpec, columns: Columns) -> U64:
    """X_P U_P mod 2^64 at the activation scale, (rows, outputs)."""
    return matmul_z64(x.values, weight_operand(weight, spec, columns))


def rounded_kept(kept: Z128, decay: DecayFactor) -> U64:
    """Kept shares of X_B V_B(0) -> shares of X_B V_B at the activation scale, mod 2^64."""
    return decay.apply(kept.round_shift(WEIGHT_BITS - OPERAND_BITS)).to_z64()


def feature_activation_share(own: U64, epsilon_a: U64, kept: U64) -> U64:
    """Line 7 at A: Z'_A = X_A U_A + eps_A + (X_B V_B - eps_B), mod 2^64."""
    return own + epsilon_a + kept


def label_activation_share(own: U64, opened: U64, kept: U64) -> U64:
    """Line 7 at B: Z'_B = X_B U_B + (X_A V_A - eps_A) + eps_B, mod 2^64."""
    return own + opened + kept


def activation(share_a: U64, share_b: U64, spec: MatMulSpec) -> NDArray[np.float64]:
    """Line 8: Z = Z'_A + Z'_B, decoded.

    Raises
        PeerError: |Z| is out of the agreed range, so training diverged or the shares do not belong
        together.
    """
    z = decode_z64(share_a + share_b, spec.activation_scale)
    limit = 2.0**spec.activation_bits
    if z.size and float(np.abs(z).max()) >= limit:
        raise PeerError(
            f"an activation left its range of +-{limit:g}: training diverged (lower the learning "
            "rate) or the two model shares do not belong together"
        )
    return z


def encode_derivatives(dz: NDArray[np.float64], spec: MatMulSpec) -> NDArray[np.int64]:
    """dL/dZ at scale 32, (rows, outputs).

    Raises
        DataError: not finite, or the sum of |dL/dZ| of an output is above the agreed bound.
    """
    if not bool(np.isfinite(dz).all()):
        raise DataError("a derivative of the loss is not finite; check the loss and the labels")
    total = float(np.abs(dz).sum(axis=0).max(initial=0.0))
    if total > spec.derivative_bound * (1 + 1e-9):
        raise DataError(
            f"got derivatives that sum to {total:g} for one output; want at most "
            f"{spec.derivative_bound:g}: use a mean loss or agree on a larger derivative_bound"
        )
    encoded = encode_int64(dz, DERIVATIVE_BITS, 2 * spec.derivative_bound, "a loss derivative")
    if int(np.abs(encoded).sum(axis=0).max(initial=0)) > spec.derivative_units:
        raise DataError("the rounded derivatives sum to more than the agreed derivative_bound")
    return encoded


def label_gradient(x_b: FixedMatrix, dz: NDArray[np.int64], columns: Columns) -> Z128:
    """Line 11 at B: dW_B = X_B^T dZ, to scale 40."""
    transposed = x_b.csr().T.tocsr()
    return gradient_share(matmul_z128(transposed, Z128.from_int64(dz)), columns)


def gradient_share(share: Share, columns: Columns) -> Z128:
    """One side's integer piece of X_A^T dZ, rounded on its own to scale 40."""
    if not isinstance(share, Z128):
        raise UsageError("a gradient share must be an integer share")
    return share.rescale_rows(columns.scales + DERIVATIVE_BITS, WEIGHT_BITS)


def accumulate(total: Z128 | None, piece: Z128) -> Z128:
    """Gradient accumulation over several backward calls."""
    return piece if total is None else total + piece
