"""MatMul source layer: Z = X_A W_A + X_B W_B without any party holding a weight.

Source: BlindFL, Figure 6, with momentum SGD on shares. A: feature party, B: label party.

  A                                              B
  A1  U_A, V_B <- N(0, s²/2)                      B1  U_B, V_A <- N(0, s²/2)              lines 1-2
  A2  [[V_B]]_A             --WeightsPublished-->
                            <--WeightsPublished--  B2  [[V_A]]_B                          lines 3-4
  forward, per call
                                                 B3  rows not seen before:
                                                     [[X_B V_B(0) - eps_B]]_A             line 5
                            <--ForwardCall--       (kept: eps_B at B, the rest at A)
  A3  open and keep X_B V_B(0) - eps_B                                                    line 6
  A4  [[X_A V_A - eps_A]]_B, eps_A                                                        line 5
  A5  Z'_A = X_A U_A + eps_A + s_t (X_B V_B - eps_B)                                      line 7
                            --ForwardShares-->   B4  open X_A V_A - eps_A                 line 6
                                                 B5  Z'_B; Z = Z'_A + Z'_B                lines 7-8
  backward, per call
                            <--Derivatives--     B6  [[dZ]]_B                             line 9
  A6  [[X_A^T dZ - phi]]_B, phi
                            --MaskedGradient-->  B7  open dW_A - phi; dW_B = X_B^T dZ  lines 10-11
  update
                            <--UpdateCall--      B8  step U_B, V_A; [[V_A]]_B, full width  line 12
  A7  step U_A

Differs: V_B changes only by the public decay factor s_t, so X_B V_B(0) is shared once per row and
kept (safe as `KeptProducts` says); Z'_A travels with the masked product; two round trips a step.
Cost: per step, with n ciphertexts of 2|n| bits: B sends OUT-packed V_A (IN_A) and dZ (batch), A
sends batch and IN_A rows packed across rows.

Leaks (semi-honest, at most one party corrupted):
  A receives  [[V_A]]_B, [[dZ]]_B: nothing (under B's key). X_B V_B - eps_B: 2^-64-close to uniform.
              Public: batch sizes, modes, number of updates, timing.
  B receives  Z, in every call. X_A V_A - eps_A and dW_A - phi: 2^-64-close to independent of X_A;
              Z'_A is then a function of Z and B's own pieces.
  Follows from Z (docs/security-model.md): B knows its own weight change, so Z - X_B dW_B
  estimates X_A W_A, exactly where B has no features; outputs per row at or above A's feature count
  give X_A up to a rotation; equal rows of A show as equal Z.
  Column counts, scales and declared ranges of both parties are public.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import PeerError, UsageError
from colonnade.protocol.matmul_messages import (
    Derivatives,
    DiscardCall,
    FinishCall,
    ForwardCall,
    ForwardShares,
    MaskedGradient,
    UpdateCall,
    WeightsPublished,
)
from colonnade.protocol.matmul_spec import MatMulSpec
from colonnade.protocol.matmul_steps import (
    FeatureState,
    KeptProducts,
    LabelState,
    accumulate,
    activation,
    encode_derivatives,
    feature_activation_share,
    gradient_share,
    label_activation_share,
    label_gradient,
    label_operand,
    own_product,
    rounded_kept,
    weight_operand,
)
from colonnade.protocol.product import Engine, Share
from colonnade.protocol.sgd import SharedSgd
from colonnade.ring import Z128, FixedMatrix, Streams
from colonnade.wire.channel import Channel
from colonnade.wire.messages import array_from_bytes, array_to_bytes

__all__ = ["MODES", "FeatureMatMul", "LabelMatMul", "MatMulContext"]

MODES = ("train", "evaluate", "predict")

Rows = NDArray[np.int64]
Call = ForwardCall | Derivatives | UpdateCall | DiscardCall | FinishCall


@dataclass(frozen=True)
class MatMulContext:
    """What a role needs besides its own data: passed in, never global.

    kept_rows: number of row positions whose X_B V_B shares are kept (0: nothing is kept).
    """

    channel: Channel
    engine: Engine
    spec: MatMulSpec
    sgd: SharedSgd
    streams: Streams
    kept_rows: int = 0


class FeatureMatMul:
    """Party A's role. It answers the label party's calls until `FinishCall`."""

    def __init__(self, context: MatMulContext, state: FeatureState) -> None:
        self.state = state
        self.updates = 0
        self._context = context
        self._published: Any = None
        self._pending: dict[int, FixedMatrix] = {}
        self._last_call = 0
        self._gradient: Z128 | None = None
        self._kept = KeptProducts(context.kept_rows, context.spec.outputs)

    @property
    def spec(self) -> MatMulSpec:
        """The agreed description."""
        return self._context.spec

    @property
    def decays(self) -> bool:
        """Whether weights decay."""
        return self._context.sgd.weight_decay.mantissa != 0

    def set_up(self) -> None:
        """A2 B2: exchange encrypted weight shares."""
        c = self._context
        if len(c.spec.label):
            operand = label_operand(self.state.v_b, c.spec)
            payload = c.engine.publish(operand, c.spec.label_forward)
            c.channel.send(WeightsPublished(payload=payload))
        message = c.channel.receive(WeightsPublished)
        self._published = c.engine.receive(message.payload, c.spec.forward)

    def follow(self, batch: Callable[[ForwardCall], tuple[FixedMatrix, Rows | None]]) -> None:
        """Answer calls until the label party finishes.

        batch: gives this party's rows for a call and their positions (None: keep nothing); it
        knows the agreed order of batches and may refuse by raising.
        """
        while not isinstance(self.answer(batch), FinishCall):
            pass

    def answer(self, batch: Callable[[ForwardCall], tuple[FixedMatrix, Rows | None]]) -> Call:
        """Answer one call and return it."""
        received = self._context.channel.receive(
            ForwardCall, Derivatives, UpdateCall, DiscardCall, FinishCall
        )
        call = cast(Call, received)
        if isinstance(call, ForwardCall):
            if call.call != self._last_call + 1 or call.mode not in MODES:
                raise PeerError(
                    f"got forward call {call.call} in mode {call.mode[:20]!r}; want call "
                    f"{self._last_call + 1} in one of {MODES}"
                )
            self._forward(call, *batch(call))
        elif isinstance(call, Derivatives):
            self._backward(call)
        elif isinstance(call, UpdateCall):
            self._update(call)
        elif isinstance(call, DiscardCall):
            self._take_pending(call.call)
        elif self._pending:
            raise PeerError(f"the label party finished with {len(self._pending)} calls open")
        elif call.updates != self.updates:
            raise PeerError(
                f"the label party made {call.updates} updates, this side {self.updates}"
            )
        return call

    def _forward(self, call: ForwardCall, x_a: FixedMatrix, rows: Rows | None) -> None:
        c = self._context
        if call.rows != len(x_a):
            raise PeerError(f"call {call.call} asks for {call.rows} rows; want {len(x_a)}")
        if call.mode == "train" and call.rows > c.spec.batch_rows:
            raise PeerError(f"call {call.call} has {call.rows} rows; want {c.spec.batch_rows}")
        self._last_call = call.call
        kept = self._keep(call, rows)
        computed = c.engine.multiply(x_a.csr(), self._published, c.spec.forward)  # A4
        masked, epsilon_a = c.engine.seal(computed, c.spec.forward, c.streams.masks)
        own = own_product(x_a, self.state.u_a, c.spec, c.spec.feature)
        share = feature_activation_share(own, _z64(epsilon_a), kept)  # A5
        c.channel.send(
            ForwardShares(call=call.call, masked=masked, activation_share=array_to_bytes(share))
        )
        if call.mode == "train":
            self._pending[call.call] = x_a

    def _keep(self, call: ForwardCall, rows: Rows | None) -> NDArray[np.uint64]:
        """A3: open the new rows' X_B V_B(0) - eps_B, keep it, return the batch's shares."""
        c = self._context
        if not len(c.spec.label):
            if call.new_rows or call.payload:
                raise PeerError("got a product of label features; the label party has none")
            return np.zeros((call.rows, c.spec.outputs), np.uint64)
        missing = np.arange(call.rows) if rows is None else self._kept.missing(rows)
        if call.new_rows != len(missing):
            raise PeerError(
                f"call {call.call} brings X_B V_B for {call.new_rows} rows; this side lacks "
                f"{len(missing)}: the two sides' kept shares differ"
            )
        shares = Z128.zeros((0, c.spec.outputs))
        if len(missing):
            shares = _z128(c.engine.open(call.payload, c.spec.label_forward, len(missing)))
        elif call.payload:
            raise PeerError(f"call {call.call} brings a product for no rows")
        if rows is not None:
            self._kept.store(rows[missing], shares)
            shares = self._kept.get(rows)
        if call.kept != self._kept.digest():
            raise PeerError(f"call {call.call}: the two sides keep X_B V_B of different rows")
        return rounded_kept(shares, self.state.decay)

    def _backward(self, message: Derivatives) -> None:
        c = self._context
        x_a = self._take_pending(message.call)
        product = c.spec.gradient(len(x_a))
        derivatives = c.engine.receive(message.payload, product)
        computed = c.engine.multiply(x_a.csr().T.tocsr(), derivatives, product)  # A6
        payload, phi = c.engine.seal(computed, product, c.streams.masks)
        c.channel.send(MaskedGradient(call=message.call, payload=payload))
        self._gradient = accumulate(self._gradient, gradient_share(phi, c.spec.feature))

    def _update(self, message: UpdateCall) -> None:
        c = self._context
        if self._gradient is None or self._pending:
            raise PeerError(
                "got an update before the backward of every training call; "
                f"{len(self._pending)} calls are open"
            )
        self._published = c.engine.receive(message.payload, c.spec.forward)
        self.state = self.state.stepped(c.sgd, self._gradient)  # A7
        self._gradient = None
        self.updates += 1

    def _take_pending(self, call: int) -> FixedMatrix:
        if call not in self._pending:
            raise PeerError(f"got a backward or discard for call {call}, which is not open")
        return self._pending.pop(call)


class LabelMatMul:
    """Party B's role: it drives the layer. Calls are numbered; a training forward stays open until
    its backward or discard.
    """

    def __init__(self, context: MatMulContext, state: LabelState) -> None:
        self.state = state
        self.updates = 0
        self._context = context
        self._published: Any = None
        self._pending: dict[int, FixedMatrix] = {}
        self._last_call = 0
        self._gradients: tuple[Z128, Z128] | None = None
        self._kept = KeptProducts(context.kept_rows, context.spec.outputs)

    @property
    def spec(self) -> MatMulSpec:
        """The agreed description."""
        return self._context.spec

    @property
    def open_calls(self) -> tuple[int, ...]:
        """Training forwards without backward or discard so far."""
        return tuple(self._pending)

    def set_up(self) -> None:
        """A2 B2: exchange encrypted weight shares."""
        c = self._context
        operand = weight_operand(self.state.v_a, c.spec, c.spec.feature)
        c.channel.send(WeightsPublished(payload=c.engine.publish(operand, c.spec.forward)))
        if len(c.spec.label):
            message = c.channel.receive(WeightsPublished)
            self._published = c.engine.receive(message.payload, c.spec.label_forward)

    def forward(
        self, x_b: FixedMatrix, rows: Rows | None, mode: str
    ) -> tuple[int, NDArray[np.float64]]:
        """B3-B5: one call.

        x_b: this party's rows (zero columns allowed); rows: their positions in the aligned data,
        or None to keep nothing. Returns the call's number and Z, float64 (rows, outputs).
        """
        c = self._context
        if mode not in MODES:
            raise UsageError(f"got mode {mode!r}; want one of {MODES}")
        if not len(x_b) or (mode == "train" and len(x_b) > c.spec.batch_rows):
            raise UsageError(f"got a batch of {len(x_b)} rows; want 1 .. {c.spec.batch_rows}")
        self._last_call += 1
        call = self._last_call
        kept = self._announce(call, mode, x_b, rows)
        own = own_product(x_b, self.state.u_b, c.spec, c.spec.label)  # while A works
        answer = c.channel.receive(ForwardShares)
        if answer.call != call:
            raise PeerError(f"got shares of call {answer.call}; want {call}")
        shape = (len(x_b), c.spec.outputs)
        share_a = array_from_bytes(answer.activation_share, np.uint64, shape, "Z'_A")
        opened = _z64(c.engine.open(answer.masked, c.spec.forward, len(x_b)))  # B4
        z = activation(share_a, label_activation_share(own, opened, kept), c.spec)  # B5
        if mode == "train":
            self._pending[call] = x_b
        return call, z

    def _announce(
        self, call: int, mode: str, x_b: FixedMatrix, rows: Rows | None
    ) -> NDArray[np.uint64]:
        """B3: send the call with X_B V_B(0) - eps_B for new rows; returns this side's shares."""
        c = self._context
        count, payload = len(x_b), b""
        kept = np.zeros((count, c.spec.outputs), np.uint64)
        missing = np.zeros(0, dtype=np.int64)
        if len(c.spec.label):
            missing = np.arange(count) if rows is None else self._kept.missing(rows)
            shares = Z128.zeros((0, c.spec.outputs))
            if len(missing):
                product = c.spec.label_forward
                plain = x_b.take(missing).csr()
                computed = c.engine.multiply(plain, self._published, product)
                payload, epsilon_b = c.engine.seal(computed, product, c.streams.masks)
                shares = _z128(epsilon_b)
            if rows is not None:
                self._kept.store(rows[missing], shares)
                shares = self._kept.get(rows)
            kept = rounded_kept(shares, self.state.decay)
        c.channel.send(
            ForwardCall(
                call=call,
                mode=mode,
                rows=count,
                new_rows=len(missing),
                kept=self._kept.digest(),
                payload=payload,
            )
        )
        return kept

    def backward(self, call: int, dz: NDArray[np.float64]) -> None:
        """B6-B7: add this call's gradient shares. dz: dL/dZ, float64 (rows, outputs)."""
        c = self._context
        if call not in self._pending:
            raise UsageError(f"call {call} is not open: its backward or discard already ran")
        x_b = self._pending[call]
        encoded = encode_derivatives(dz, c.spec)
        del self._pending[call]
        product = c.spec.gradient(len(x_b))
        c.channel.send(Derivatives(call=call, payload=c.engine.publish(encoded, product)))
        gradient_b = label_gradient(x_b, encoded, c.spec.label)  # while A works
        answer = c.channel.receive(MaskedGradient)
        if answer.call != call:
            raise PeerError(f"got the gradient of call {answer.call}; want {call}")
        opened = c.engine.open(answer.payload, product, len(c.spec.feature))
        gradient_a = gradient_share(opened, c.spec.feature)
        before = self._gradients or (None, None)
        self._gradients = (
            accumulate(before[0], gradient_b),
            accumulate(before[1], gradient_a),
        )

    def discard(self, call: int) -> None:
        """Drop an open training call on both sides."""
        if self._pending.pop(call, None) is None:
            raise UsageError(f"call {call} is not open: its backward or discard already ran")
        self._context.channel.send(DiscardCall(call=call))

    def update(self) -> None:
        """B8: step both sides' shares with the gradients accumulated since the last update."""
        c = self._context
        if self._pending:
            raise UsageError(
                f"calls {self.open_calls} have neither backward nor discard; run one before a step"
            )
        if self._gradients is None:
            raise UsageError("there is no gradient to step with; run a backward first")
        self.state = self.state.stepped(c.sgd, *self._gradients)
        self._gradients = None
        self.updates += 1
        operand = weight_operand(self.state.v_a, c.spec, c.spec.feature)
        c.channel.send(UpdateCall(payload=c.engine.publish(operand, c.spec.forward)))

    def finish(self) -> None:
        """Tell the feature party that this layer is done."""
        if self._pending:
            raise UsageError(f"calls {self.open_calls} have neither backward nor discard")
        self._context.channel.send(FinishCall(updates=self.updates))


def _z64(share: Share) -> NDArray[np.uint64]:
    if isinstance(share, Z128):
        raise UsageError("an activation share must be in Z_2^64")
    return share


def _z128(share: Share) -> Z128:
    if not isinstance(share, Z128):
        raise UsageError("a kept share must be in Z_2^128")
    return share
