"""The product functionality that every federated layer is built on, and what an engine must do.

> Product(X at P, V at Q): P holds a plain matrix X (private), Q holds V (private). They end with
> additive shares of X·V. Neither learns anything else; shapes and declared bounds are public.

An engine offers both sides as pure local steps; the roles of a layer put them in messages:

  Q   publish(V) -> payload        P   receive(payload) -> published
  P   multiply(X, published) -> computed
  P   seal(computed, masks) -> payload, share of P        (masked and re-randomised in one step)
  Q   open(payload) -> share of Q

Q may publish V once and let P multiply many batches against it (a weight), or publish an operand
for one use (a batch of derivatives). Either operand may be the published one: with
`published="left"` P holds V in plain and Q publishes X; P then computes X·V as (Vᵀ·Xᵀ)ᵀ.
Source: BlindFL §5, Algorithm 1 for the last two steps; docs/protocol.md, "The product".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from colonnade.crypto import SlotLayout
from colonnade.errors import UsageError
from colonnade.ring import Z128, Csprng

__all__ = [
    "Engine",
    "Operand",
    "Product",
    "Result",
    "Share",
    "check_oriented",
    "draw_masks",
    "mask_share",
    "share_from_integers",
    "signed_integers",
]

Operand = NDArray[np.uint64] | NDArray[np.int64] | Z128
Share = NDArray[np.uint64] | Z128


class Result(Enum):
    """What the two shares of a product add up to."""

    INTEGER = "integer"
    """The integer itself (value + mask, no wrap): each side can round its own piece exactly."""
    Z64 = "z64"
    """The product mod 2^64."""
    Z128 = "z128"
    """The product mod 2^128."""


@dataclass(frozen=True)
class Product:
    """Public description of one product; both sides derive the slot layout from it.

    inner, columns: the published operand is (inner, columns) as P multiplies it.
    value_bound: declared bound of |value| of every result over the integers: what column ranges,
        batch size and column count imply, never read off the data.
    """

    name: str
    inner: int
    columns: int
    value_bound: int
    result: Result
    mask_bits: int = 64
    published: Literal["left", "right"] = "right"

    def __post_init__(self) -> None:
        if self.mask_bits < 40:
            raise UsageError(f"got masks of {self.mask_bits} statistical bits; want at least 40")
        if self.result is Result.INTEGER and self.value_bits + self.mask_bits + 2 > 127:
            raise UsageError(
                f"product {self.name!r}: an integer share needs {self.value_bits} + "
                f"{self.mask_bits} + 2 bits; want at most 127: declare smaller ranges"
            )

    @property
    def value_bits(self) -> int:
        """L: |value| <= 2^L for every value of the result, over the integers."""
        return max(1, (self.value_bound - 1).bit_length())

    def layout(self, modulus_bits: int) -> SlotLayout:
        """Slots under a key of `modulus_bits`."""
        return SlotLayout(self.value_bits, self.mask_bits, self.columns, modulus_bits)


class Engine(Protocol):
    """Both sides of the product functionality for one pair of parties."""

    @property
    def name(self) -> str:
        """`paillier` or `insecure_plain`."""
        ...

    def publish(self, operand: Operand, product: Product) -> bytes:
        """Q: the payload that lets P compute on `operand` (inner, columns), or its transpose."""
        ...

    def receive(self, payload: bytes, product: Product) -> Any:
        """P: validate a published operand.

        Raises
            PeerError: wrong length or a number that is not a ciphertext.
        """
        ...

    def multiply(self, plain: Any, published: Any, product: Product) -> Any:
        """P: the product, still encrypted. `plain`: int64 dense or CSR (rows, inner)."""
        ...

    def seal(self, computed: Any, product: Product, masks: Csprng) -> tuple[bytes, Share]:
        """P: mask and re-randomise; returns the payload for Q and P's share (rows, columns)."""
        ...

    def open(self, payload: bytes, product: Product, rows: int) -> Share:
        """Q: decrypt and take the offset off; Q's share (rows, columns)."""
        ...


def draw_masks(layout: SlotLayout, rows: int, rng: Csprng) -> NDArray[np.uint8]:
    """Fresh masks for all slots of `rows` packed rows.

    Returns
        uint8 (packed ciphertexts, slots_used, bytes), uniform below 2^(L+1+sigma).
    """
    count = layout.packed_count(rows)
    drawn = rng.uniform_bits(count * layout.slots_used, layout.mask_width_bits)
    return drawn.reshape(count, layout.slots_used, drawn.shape[1])


def mask_share(
    masks: NDArray[np.uint8], layout: SlotLayout, rows: int, result: Result, sign: int = -1
) -> Share:
    """P's share: minus the mask of each value, in the ring of the result (rows, columns)."""
    per_row = layout.ciphertexts_per_row
    width = masks.shape[-1]
    flat = masks.reshape(-1, width)
    if per_row == 1:
        flat = flat[: rows * layout.columns]
    else:
        flat = masks.reshape(rows, -1, width)[:, : layout.columns].reshape(-1, width)
    raw = np.zeros((len(flat), 16), np.uint8)
    raw[:, : min(16, width)] = flat[:, :16]
    positive = Z128.from_bytes(raw.tobytes(), (rows, layout.columns))
    share = -positive if sign < 0 else positive
    return share.to_z64() if result is Result.Z64 else share


def signed_integers(operand: Operand) -> list[int]:
    """The entries of an operand as signed Python integers, row-major."""
    if isinstance(operand, Z128):
        return operand.to_ints()
    values: list[int] = operand.view(np.int64).reshape(-1).tolist()
    return values


def share_from_integers(values: list[int], shape: tuple[int, int], result: Result) -> Share:
    """Q's share from signed integers, in the ring of the result."""
    share = Z128.from_ints(values, shape)
    return share.to_z64() if result is Result.Z64 else share


def check_oriented(operand: Operand, product: Product) -> None:
    """Check that the published operand is (inner, columns), or its transpose for "left".

    Raises
        UsageError: another shape.
    """
    want = (product.inner, product.columns)
    if product.published == "left":
        want = want[::-1]
    if tuple(operand.shape) != want:
        raise UsageError(
            f"product {product.name!r}: got an operand of shape {tuple(operand.shape)}; want {want}"
        )
