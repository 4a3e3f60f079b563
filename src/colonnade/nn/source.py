"""The MatMul source layer as a torch module: `loss.backward()` at the label party drives both.

Autograd contract. Each forward has a call id and a mode. A training forward is
followed by its backward or by `discard`. Several forwards before their backwards, gradient
accumulation (several backwards before a `step`) and an exception in between (then `discard`) work;
a second backward of one call, a `step` with open calls or without gradients is a `UsageError` here,
and the feature party learns why the run ended.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.errors import PeerError
from colonnade.protocol.matmul import FeatureMatMul, LabelMatMul
from colonnade.protocol.matmul_messages import FinishCall, ForwardCall
from colonnade.ring import FixedMatrix

__all__ = ["FeatureSource", "LabelSource"]

Rows = NDArray[np.int64]


class _Call(torch.autograd.Function):
    """One training forward; its backward runs the protocol's backward."""

    @staticmethod
    def forward(
        ctx: Any, anchor: torch.Tensor, z: torch.Tensor, layer: LabelMatMul, call: int
    ) -> torch.Tensor:
        ctx.layer, ctx.call = layer, call
        return z + anchor

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[None, None, None, None]:
        dz = gradients[0].detach().to("cpu", torch.float64).numpy()
        ctx.layer.backward(ctx.call, dz)
        return None, None, None, None


class LabelSource(torch.nn.Module):
    """The label party's end. `forward(x, rows)` gives Z, float64 (rows, outputs).

    In training mode with gradients enabled Z requires grad and the call stays open; otherwise it
    is an evaluation. The weights live as shares at both parties and are not torch parameters:
    `step` updates them with the constants agreed for the layer.
    """

    def __init__(self, layer: LabelMatMul) -> None:
        super().__init__()
        self.layer = layer
        self._anchor = torch.zeros((), dtype=torch.float64, requires_grad=True)

    def forward(
        self, x: FixedMatrix, rows: Rows | None = None, *, predict: bool = False
    ) -> torch.Tensor:
        """Run one call.

        x: this party's rows in fixed point; rows: their positions in the aligned data (their
        X_B V_B shares are then kept), or None; predict: mark the call as a prediction.
        """
        training = self.training and torch.is_grad_enabled() and not predict
        mode = "predict" if predict else "train" if training else "evaluate"
        call, z = self.layer.forward(x, rows, mode)
        tensor = torch.from_numpy(z)
        if not training:
            return tensor
        result: torch.Tensor = _Call.apply(self._anchor, tensor, self.layer, call)  # type: ignore[no-untyped-call]
        return result

    def discard(self) -> None:
        """Drop all open training calls on both sides (after an exception, or unused outputs)."""
        for call in self.layer.open_calls:
            self.layer.discard(call)

    def step(self) -> None:
        """Update the shares on both sides with the gradients accumulated since the last step."""
        self.layer.update()

    def finish(self) -> None:
        """End the layer on both sides; open calls are discarded."""
        self.discard()
        self.layer.finish()


class FeatureSource(torch.nn.Module):
    """The feature party's end: the same loop over the same batches, without a result.

    `forward(x, rows)` first answers what is left of earlier calls (backward, discard, step), then
    takes part in one forward; `finish` answers the rest until the label party is done.
    """

    def __init__(self, layer: FeatureMatMul) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: FixedMatrix, rows: Rows | None = None, *, mode: str | None = None) -> None:
        """Take part in the next forward call with these rows.

        mode: "train", "evaluate" or "predict" if this side insists on one.

        Raises
            PeerError: the label party finished instead, or asks for other rows or another mode.
        """

        def supply(call: ForwardCall) -> tuple[FixedMatrix, Rows | None]:
            if mode is not None and call.mode != mode:
                raise PeerError(f"call {call.call} is in mode {call.mode!r}; want {mode!r}")
            return x, rows

        while True:
            call = self.layer.answer(supply)
            if isinstance(call, FinishCall):
                raise PeerError("the label party finished; another forward call was expected")
            if isinstance(call, ForwardCall):
                return

    def finish(self) -> None:
        """Answer backwards, discards and steps until the label party is done."""

        def refuse(call: ForwardCall) -> tuple[FixedMatrix, Rows | None]:
            raise PeerError(f"call {call.call} was not expected; the label party should be done")

        self.layer.follow(refuse)

    def follow(self, supply: Callable[[ForwardCall], tuple[FixedMatrix, Rows | None]]) -> None:
        """Answer every call until the label party is done, taking rows from `supply`."""
        self.layer.follow(supply)
