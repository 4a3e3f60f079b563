"""Messages of the MatMul layer. The label party leads; the feature party answers."""

from __future__ import annotations

from typing import ClassVar

from colonnade.wire.messages import Message

__all__ = [
    "Derivatives",
    "DiscardCall",
    "FinishCall",
    "ForwardCall",
    "ForwardShares",
    "MaskedGradient",
    "UpdateCall",
    "WeightsPublished",
]


class WeightsPublished(Message, frozen=True, kw_only=True):
    """[[V_A]]_B to A, or [[V_B]]_A to B: lines 3-4."""

    TAG: ClassVar[str] = "matmul.weights/1"
    LEAKS: ClassVar[str] = "nothing: a weight share under the sender's own key"

    payload: bytes


class ForwardCall(Message, frozen=True, kw_only=True):
    """B asks for a forward pass over the next batch; carries [[X_B V_B - eps_B]]_A for new rows.

    kept: digest of the positions that B keeps shares of once this call's rows are stored.
    """

    TAG: ClassVar[str] = "matmul.forward_call/1"
    LEAKS: ClassVar[str] = "rows of the batch, mode, and X_B V_B under a one-time mask"

    call: int
    mode: str
    rows: int
    new_rows: int
    kept: bytes
    payload: bytes


class ForwardShares(Message, frozen=True, kw_only=True):
    """[[X_A V_A - eps_A]]_B and Z'_A mod 2^64: lines 5-8 in one message."""

    TAG: ClassVar[str] = "matmul.forward_shares/1"
    LEAKS: ClassVar[str] = "shares that add up to Z with the receiver's own: Z, nothing else"

    call: int
    masked: bytes
    activation_share: bytes


class Derivatives(Message, frozen=True, kw_only=True):
    """[[dZ]]_B: line 9."""

    TAG: ClassVar[str] = "matmul.derivatives/1"
    LEAKS: ClassVar[str] = "nothing: derivatives under the sender's own key"

    call: int
    payload: bytes


class MaskedGradient(Message, frozen=True, kw_only=True):
    """[[dW_A - phi]]_B, full width: line 10."""

    TAG: ClassVar[str] = "matmul.masked_gradient/1"
    LEAKS: ClassVar[str] = "the weight gradient under a one-time mask, all columns"

    call: int
    payload: bytes


class UpdateCall(Message, frozen=True, kw_only=True):
    """Both sides step their shares; carries the refreshed [[V_A]]_B, full width: lines 11-12."""

    TAG: ClassVar[str] = "matmul.update/1"
    LEAKS: ClassVar[str] = "that a step was made; a weight share under the sender's own key"

    payload: bytes


class DiscardCall(Message, frozen=True, kw_only=True):
    """The forward `call` will have no backward."""

    TAG: ClassVar[str] = "matmul.discard/1"
    LEAKS: ClassVar[str] = "that a training call was dropped"

    call: int


class FinishCall(Message, frozen=True, kw_only=True):
    """The label party is done with this layer."""

    TAG: ClassVar[str] = "matmul.finish/1"
    LEAKS: ClassVar[str] = "that the label party is done"

    updates: int
