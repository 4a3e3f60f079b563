"""The product without secrecy: tests, and measuring what cryptography costs.

Bit-exchangeable with `PaillierEngine`: the same mask streams give the same shares and the same
masked slots. Every value it sends is readable by whoever receives it, which is why users see it as
`insecure_plain`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from colonnade.errors import PeerError
from colonnade.protocol.product import (
    Operand,
    Product,
    Share,
    check_oriented,
    draw_masks,
    mask_share,
    share_from_integers,
    signed_integers,
)
from colonnade.ring import Z128, Csprng, matmul_z128

__all__ = ["InsecurePlainEngine"]

_ENTRY_BYTES = 24


@dataclass(frozen=True)
class _PlainTensor:
    values: list[int]
    rows: int


class InsecurePlainEngine:
    """No cryptography. `modulus_bits` only fixes the slot layout, and with it the mask stream."""

    name = "insecure_plain"

    def __init__(self, modulus_bits: int = 2048) -> None:
        self._bits = modulus_bits

    def publish(self, operand: Operand, product: Product) -> bytes:
        """The operand itself, 24 bytes an entry."""
        check_oriented(operand, product)
        if product.published == "left":
            operand = operand.transpose()
            operand = operand if isinstance(operand, Z128) else operand.copy()
        return b"".join(
            v.to_bytes(_ENTRY_BYTES, "little", signed=True) for v in signed_integers(operand)
        )

    def receive(self, payload: bytes, product: Product) -> _PlainTensor:
        """Read the operand."""
        want = product.inner * product.columns * _ENTRY_BYTES
        if len(payload) != want:
            raise PeerError(f"got {len(payload)} bytes for {product.name}; want {want}")
        return _PlainTensor(_read(payload, _ENTRY_BYTES, signed=True), product.inner)

    def multiply(self, plain: Any, published: _PlainTensor, product: Product) -> _PlainTensor:
        """X @ V over the integers."""
        rows = plain.shape[0]
        shape = (product.inner, product.columns)
        if product.value_bits <= 126:
            v = Z128.from_ints(published.values, shape)
            return _PlainTensor(matmul_z128(plain, v).to_ints(), rows)
        dense = plain.toarray() if sp.issparse(plain) else plain
        wide = np.array(published.values, dtype=object).reshape(shape)
        return _PlainTensor(list((dense.astype(object) @ wide).reshape(-1)), rows)

    def seal(self, computed: _PlainTensor, product: Product, masks: Csprng) -> tuple[bytes, Share]:
        """Mask every slot exactly as the Paillier engine does, but send the slots in plain."""
        layout = product.layout(self._bits)
        drawn = draw_masks(layout, computed.rows, masks)
        share = mask_share(drawn, layout, computed.rows, product.result)
        wide = [int.from_bytes(v.tobytes(), "little") for v in drawn.reshape(-1, drawn.shape[-1])]
        step = drawn.shape[1]
        per_ct = [wide[i : i + step] for i in range(0, len(wide), step)]
        blinds = layout.rows_from_slots(per_ct, computed.rows)
        width = (layout.slot_bits + 7) // 8
        sent = b"".join(
            (v + layout.offset + r).to_bytes(width, "little")
            for v, r in zip(computed.values, blinds, strict=True)
        )
        return sent, share

    def open(self, payload: bytes, product: Product, rows: int) -> Share:
        """Take the offset off."""
        layout = product.layout(self._bits)
        width = (layout.slot_bits + 7) // 8
        want = rows * layout.columns * width
        if len(payload) != want:
            raise PeerError(f"got {len(payload)} bytes for {product.name}; want {want}")
        values = [v - layout.offset for v in _read(payload, width, signed=False)]
        return share_from_integers(values, (rows, layout.columns), product.result)


def _read(payload: bytes, width: int, *, signed: bool) -> list[int]:
    return [
        int.from_bytes(payload[i : i + width], "little", signed=signed)
        for i in range(0, len(payload), width)
    ]
