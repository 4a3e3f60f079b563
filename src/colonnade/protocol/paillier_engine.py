"""The product under Paillier: Q sends [[V]]_Q; P computes, masks and re-randomises; Q decrypts.

  Q  ct_q_v = Enc_Q(V), OUT values a plaintext         --payload-->
                                         P  ct_q_xv = X ct_q_v
                                         P  phi <- uniform, L + 1 + sigma bits, every slot
                         <--payload--    P  ct_q_m = rerandomise(pack(ct_q_xv) + 2^L + phi)
  Q  m = Dec_Q(ct_q_m) - 2^L                                          out P: -phi
  out Q: m                     (m - phi = X V in the ring of the result)

Source: BlindFL Algorithm 1 (HE2SS). Differs: packed slots, statistical masks of sigma = 64 bits,
re-randomisation uniform over Z*_n (the paper states neither).
Leaks:  Q->P: shapes.  P->Q: m is 2^-sigma-close to independent of X V; the randomness of what Q
decrypts is 2^-90-close to uniform and independent of X; shapes.
"""

from __future__ import annotations

from typing import Any

import scipy.sparse as sp

from colonnade.crypto import CipherSpace, CryptoTensor, KeyOwner, Randomisers
from colonnade.errors import UsageError
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
from colonnade.ring import Csprng

__all__ = ["PaillierEngine"]


class PaillierEngine:
    """Both sides for one pair: our key opens, the peer's key computes.

    own: our private key at work; peer: arithmetic under the peer's public key; randomisers: a safe
    source of encryptions of zero under the *peer's* key.
    """

    name = "paillier"

    def __init__(self, own: KeyOwner, peer: CipherSpace, randomisers: Randomisers) -> None:
        if own.space.key.bits != peer.key.bits:
            raise UsageError("got keys of two sizes; want one")
        self._own = own
        self._peer = peer
        self._randomisers = randomisers
        self._bits = peer.key.bits

    def publish(self, operand: Operand, product: Product) -> bytes:
        """Encrypt the rows of `operand`, `columns` values packed into one plaintext."""
        layout = product.layout(self._bits)
        check_oriented(operand, product)
        inner, columns = product.inner, product.columns
        values = signed_integers(_transposed(operand, product))
        plaintexts: list[int] = []
        for row in range(inner):
            plaintexts += layout.encode_row(values[row * columns : (row + 1) * columns])
        return self._own.encrypt(plaintexts).data

    def receive(self, payload: bytes, product: Product) -> CryptoTensor:
        """Validate the published ciphertexts."""
        layout = product.layout(self._bits)
        count = product.inner * layout.ciphertexts_per_row
        numbers = self._peer.load(payload, count, product.name)
        return CryptoTensor(self._peer, layout, product.inner, numbers)

    def multiply(self, plain: Any, published: CryptoTensor, product: Product) -> CryptoTensor:  # noqa: ARG002
        """X @ [[V]] on ciphertexts."""
        return published.left_multiply(sp.csr_matrix(plain))

    def seal(self, computed: CryptoTensor, product: Product, masks: Csprng) -> tuple[bytes, Share]:
        """HE2SS, P's half."""
        layout = computed.layout
        drawn = draw_masks(layout, computed.rows, masks)
        slots = [[int.from_bytes(v.tobytes(), "little") for v in one] for one in drawn]
        payload = computed.seal(slots, self._randomisers).data
        return payload, mask_share(drawn, layout, computed.rows, product.result)

    def open(self, payload: bytes, product: Product, rows: int) -> Share:
        """HE2SS, Q's half."""
        layout = product.layout(self._bits)
        plaintexts = self._own.decrypt(payload, layout.packed_count(rows), product.name)
        values = layout.rows_from_slots([layout.split(m) for m in plaintexts], rows)
        signed = [v - layout.offset for v in values]
        return share_from_integers(signed, (rows, layout.columns), product.result)


def _transposed(operand: Operand, product: Product) -> Operand:
    if product.published == "right":
        return operand
    return operand.transpose().copy() if not hasattr(operand, "lo") else operand.transpose()
