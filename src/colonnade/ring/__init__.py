"""Fixed point, the rings Z_2^64 and Z_2^128, exact products and secret randomness."""

from colonnade.ring.csprng import Csprng, Streams
from colonnade.ring.fixed import (
    DERIVATIVE_BITS,
    FEATURE_BITS,
    OPERAND_BITS,
    WEIGHT_BITS,
    FixedMatrix,
    PublicConstant,
    decode_z64,
    encode_int64,
    encode_z128,
    round_shift_z64_copy,
)
from colonnade.ring.product import matmul_z64, matmul_z128
from colonnade.ring.z128 import Z128

__all__ = [
    "DERIVATIVE_BITS",
    "FEATURE_BITS",
    "OPERAND_BITS",
    "WEIGHT_BITS",
    "Z128",
    "Csprng",
    "FixedMatrix",
    "PublicConstant",
    "Streams",
    "decode_z64",
    "encode_int64",
    "encode_z128",
    "matmul_z64",
    "matmul_z128",
    "round_shift_z64_copy",
]
