"""Exact products of a private integer matrix with ring elements, mod 2^64 and mod 2^128."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from colonnade.errors import UsageError
from colonnade.ring.z128 import Z128

__all__ = ["matmul_z64", "matmul_z128"]

_LIMB_BITS = 16
# 2^31 times a limb times 2^15 terms stays below 2^62.
_MOST_TERMS = 1 << 15


def matmul_z64(x: Any, v: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """X @ V mod 2^64. x: int64 (rows, inner) dense or CSR; v: uint64 (inner, columns)."""
    if sp.issparse(x):
        # Unsigned arithmetic wraps by definition, signed overflow would not.
        unsigned = sp.csr_matrix((x.data.view(np.uint64), x.indices, x.indptr), shape=x.shape)
        return np.asarray(unsigned @ v, dtype=np.uint64)
    return np.asarray(np.ascontiguousarray(x).view(np.uint64) @ v, dtype=np.uint64)


def matmul_z128(x: Any, v: Z128) -> Z128:
    """X @ V mod 2^128. x: int64 (rows, inner) with |x| <= 2^31, dense or CSR; v: (inner, columns).

    V is cut into 16-bit limbs and long sums into blocks, so that every partial sum is exact in
    int64.

    Raises
        UsageError: |x| > 2^31.
    """
    magnitude = x.data if sp.issparse(x) else x
    if magnitude.size and int(np.abs(magnitude).max()) > 1 << 31:
        raise UsageError("got a factor above 2^31; want a smaller feature scale or range")
    terms = int(np.diff(x.indptr).max(initial=0)) if sp.issparse(x) else x.shape[1]
    if terms > _MOST_TERMS:
        cut = x.shape[1] // 2
        left, right = (x.tocsc(), x.tocsc()) if sp.issparse(x) else (x, x)
        parts = (left[:, :cut], v[:cut]), (right[:, cut:], v[cut:])
        sums = [matmul_z128(p.tocsr() if sp.issparse(p) else p, w) for p, w in parts]
        return sums[0] + sums[1]
    total = Z128.zeros((x.shape[0], v.shape[1]))
    for position in range(0, 128, _LIMB_BITS):
        word = v.lo if position < 64 else v.hi
        limb = (word >> np.uint64(position % 64)) & np.uint64(0xFFFF)
        if not limb.any():
            continue
        partial = Z128.from_int64(np.asarray(x @ limb.astype(np.int64), dtype=np.int64))
        if position >= 64:
            partial = Z128(np.zeros_like(partial.lo), partial.lo)
        total = total + partial.shift_left(position % 64)
    return total
