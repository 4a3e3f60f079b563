"""Paillier: keys, encrypted tensors, slot packing and safe sources of randomness."""

from colonnade.crypto.keys import (
    SECURE_KEY_BITS,
    PrivateKey,
    PublicKey,
    generate_key,
    insecure_generate_key,
)
from colonnade.crypto.owner import KeyOwner
from colonnade.crypto.packing import SlotLayout
from colonnade.crypto.randomisers import (
    DirectRandomisers,
    ManyBaseRandomisers,
    randomisers_for,
)
from colonnade.crypto.space import CipherSpace, Randomisers, SealedTensor
from colonnade.crypto.tensor import CryptoTensor, PackedTensor, concatenate

__all__ = [
    "SECURE_KEY_BITS",
    "CipherSpace",
    "CryptoTensor",
    "DirectRandomisers",
    "KeyOwner",
    "ManyBaseRandomisers",
    "PackedTensor",
    "PrivateKey",
    "PublicKey",
    "Randomisers",
    "SealedTensor",
    "SlotLayout",
    "concatenate",
    "generate_key",
    "insecure_generate_key",
    "randomisers_for",
]
