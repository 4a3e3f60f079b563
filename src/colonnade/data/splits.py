"""Who is in which part, and which rows form a batch: functions of public randomness alone.

Both parties compute these from the agreed seed and from row positions in the common order, and
must get the same rows for ever, on every platform. Nothing here sees a label or a feature.

    order(n, seed, purpose):  S = SHAKE-256("colonnade-order/1" | len(purpose) | purpose
                                            | len(seed) | seed | n),  lengths and n as 8 bytes LE
                              tag_i = bytes 16 i .. 16 i + 15 of S, big-endian
                              positions 0 .. n-1 in ascending order of (tag_i, i)
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError, UsageError

__all__ = ["Split", "batch_schedule", "largest_batch", "public_order", "split_rows"]

_DOMAIN = b"colonnade-order/1"


@dataclass(frozen=True, eq=False)
class Split:
    """Row positions of each part, int64, ascending; together every position once."""

    train: NDArray[np.int64] = field(repr=False)
    validation: NDArray[np.int64] = field(repr=False)
    test: NDArray[np.int64] = field(repr=False)


def public_order(n: int, seed: bytes, purpose: bytes) -> NDArray[np.int64]:
    """Return a public pseudo-random order of 0 .. n-1, int64 (n,); see the module docstring."""
    if n < 0:
        raise UsageError(f"got {n} rows; want 0 or more")
    parts = [_DOMAIN, _length(len(purpose)), purpose, _length(len(seed)), seed, _length(n)]
    stream = hashlib.shake_256(b"".join(parts)).digest(16 * n)
    tags = np.frombuffer(stream, dtype=">u8").reshape(n, 2).astype(np.uint64)
    # lexsort is stable and takes its last key first, so equal tags keep their positions' order.
    return np.lexsort((tags[:, 1], tags[:, 0])).astype(np.int64)


def split_rows(n: int, test_fraction: float, validation_fraction: float, seed: bytes) -> Split:
    """Split rows 0 .. n-1; each fraction of n is rounded to the nearest whole number of rows.

    Raises
        UsageError: a fraction is negative, or nothing is left for training.
    """
    for name, value in (("test", test_fraction), ("validation", validation_fraction)):
        if not 0.0 <= value < 1.0:
            raise UsageError(f"got {name}_fraction {value}; want 0 or more, below 1")
    test = int(n * test_fraction + 0.5)
    validation = int(n * validation_fraction + 0.5)
    if test + validation >= n:
        raise UsageError(
            f"got {n} rows, {test} for testing and {validation} for validation; want at least one "
            "for training; lower the fractions or align more rows"
        )
    order = public_order(n, seed, b"split")
    return Split(
        test=np.sort(order[:test]),
        validation=np.sort(order[test : test + validation]),
        train=np.sort(order[test + validation :]),
    )


def batch_schedule(
    rows: NDArray[np.int64], batch_size: int, epoch: int, seed: bytes, min_batch: int = 2
) -> list[NDArray[np.int64]]:
    """Cut `rows` into the batches of one epoch, in an order that is new for each epoch.

    A last batch of fewer than `min_batch` rows joins the one before it: a batch of one row would
    show that row's output and derivative alone. So a batch has up to `largest_batch` rows.

    Raises
        DataError: fewer than `min_batch` rows in all.
        UsageError: `batch_size` below `min_batch`, or a negative epoch.
    """
    if not 1 <= min_batch <= batch_size or epoch < 0:
        got = f"batch_size {batch_size}, min_batch {min_batch}, epoch {epoch}"
        raise UsageError(f"got {got}; want 1 <= min_batch <= batch_size, epoch from 0")
    if len(rows) < min_batch:
        raise DataError(f"got {len(rows)} rows to train on; want at least {min_batch}")
    order = np.asarray(rows, np.int64)[public_order(len(rows), seed, b"epoch" + _length(epoch))]
    starts = list(range(0, len(order), batch_size))
    if len(order) - starts[-1] < min_batch:
        starts.pop()
    return np.split(order, starts[1:])


def largest_batch(n_rows: int, batch_size: int, min_batch: int = 2) -> int:
    """Return the size of the largest batch that `batch_schedule` makes of `n_rows` rows."""
    remainder = n_rows % batch_size
    joined = remainder if 0 < remainder < min_batch else 0
    return min(n_rows, batch_size + joined)


def _length(number: int) -> bytes:
    return number.to_bytes(8, "little")
