"""What the two estimators of `colonnade.nn.logistic` say to each other, align and count.

Leaks: the messages' own lines. The alignment has its own leak table (`colonnade.protocol.psi.dh`);
its context is bound to a nonce of each side, so that nothing of one call fits another.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from colonnade.errors import PeerError, UsageError
from colonnade.protocol.psi import (
    IdType,
    align_feature,
    align_label,
    alignment_context,
    encode_ids,
    normaliser_id,
)
from colonnade.ring import FixedMatrix
from colonnade.wire.channel import Channel
from colonnade.wire.messages import Message

__all__ = [
    "AlignedRows",
    "CallNonce",
    "DeclaredFeatures",
    "FitCall",
    "OutputCount",
    "PredictCall",
    "align_rows",
    "encode_matrix",
]

_NONCE_BYTES = 32


class DeclaredFeatures(Protocol):
    """Features with declared kinds and ranges (`colonnade.data.Features`)."""

    values: Any
    names: tuple[str, ...]
    whole: tuple[bool, ...]
    max_abs: tuple[float, ...]
    source: str
    row_numbers: NDArray[np.int64]


class CallNonce(Message, frozen=True, kw_only=True):
    """Both sides, before an alignment: binds it to this call."""

    TAG: ClassVar[str] = "estimator.nonce/1"
    LEAKS: ClassVar[str] = "random bytes"

    nonce: bytes


class FitCall(Message, frozen=True, kw_only=True):
    """The label party starts a fit."""

    TAG: ClassVar[str] = "estimator.fit/1"
    LEAKS: ClassVar[str] = "number of rows, epochs, batch size and the public order of rows"

    rows: int
    epochs: int
    batch_size: int
    seed: bytes


class PredictCall(Message, frozen=True, kw_only=True):
    """The label party asks to score rows."""

    TAG: ClassVar[str] = "estimator.predict/1"
    LEAKS: ClassVar[str] = "number of rows to score"

    rows: int


@dataclass(frozen=True)
class AlignedRows:
    """The rows that take part in a call.

    matrix: their features, in the order common to both sides; kept: their positions in this side's
    own table, int64 (rows,); records: what tells the records of this side apart, one a row.
    """

    matrix: FixedMatrix = field(repr=False)
    kept: NDArray[np.int64] = field(repr=False)
    records: list[bytes] = field(repr=False)


class OutputCount:
    """Outputs that were given away per record, over all calls of one estimator object.

    Lives in memory and ends with the object; `colonnade.party.ledger` is the durable one.
    """

    def __init__(self) -> None:
        self._given: Counter[bytes] = Counter()

    @property
    def largest(self) -> int:
        """Most outputs that any record has given."""
        return max(self._given.values(), default=0)

    def add(self, records: Sequence[bytes], outputs: int, limit: int) -> None:
        """Count `outputs` more for each of `records` (rows with equal features count once).

        Raises
            PeerError: a record would pass `limit`; nothing is counted then. The text is fit for
            the peer: it does not say what was given before.
        """
        distinct = set(records)
        if max((self._given[record] for record in distinct), default=0) + outputs > limit:
            raise PeerError(
                f"got a request for {outputs} more outputs per row; this side gives {limit} in "
                "all over its fits and predictions; want fewer epochs or calls, more features, or "
                "max_outputs_per_row set at the feature party"
            )
        self._given.update(dict.fromkeys(distinct, outputs))


def encode_matrix(x: Any, max_abs: float = 64.0) -> FixedMatrix:
    """Fixed point of an array, a CSR matrix or declared features.

    Boolean and integer arrays become whole-number columns (scale 0), others real ones; `max_abs`
    is the declared range of a plain array's columns.

    Raises
        DataError: a value is not finite or out of range; names row and column.
    """
    if hasattr(x, "row_numbers"):
        return FixedMatrix.encode(x.values, x.whole, x.max_abs, x.names, x.source, x.row_numbers)
    matrix = sp.csr_matrix(x) if sp.issparse(x) else np.asarray(x)
    if matrix.ndim != 2:
        raise UsageError(f"got X of {matrix.ndim} dimensions; want (rows, columns)")
    whole = matrix.dtype.kind in "biu"
    columns = matrix.shape[1]
    return FixedMatrix.encode(
        matrix.astype(np.float64), [whole] * columns, [max_abs] * columns, where="X"
    )


def align_rows(
    channel: Channel,
    matrix: FixedMatrix,
    ids: Sequence[object] | None,
    *,
    leads: bool,
    minimum: int = 1,
) -> AlignedRows:
    """Find the common records of both sides by id; without ids, row i is one record on both.

    leads: this is the label party; minimum: fewest rows to take part with.

    Raises
        UsageError: too few rows, or ids that do not fit them.
        DataError, PeerError, IntegrityError: see `colonnade.protocol.psi`.
    """
    if len(matrix) < minimum:
        raise UsageError(f"got {len(matrix)} rows; want at least {minimum}")
    if ids is None:
        return AlignedRows(matrix, np.arange(len(matrix), dtype=np.int64), _by_features(matrix))
    if len(ids) != len(matrix):
        raise UsageError(f"got {len(ids)} ids for {len(matrix)} rows")
    whole = all(isinstance(value, int | np.integer) for value in ids)
    types = [IdType.INTEGER if whole else IdType.TEXT]
    encoded = encode_ids([ids], types, "ids")
    nonces = _exchange_nonces(channel)
    sides = list(zip(nonces, (channel.local, channel.remote), strict=True))
    (first, label), (second, feature) = sides if leads else sides[::-1]
    context = alignment_context(first + second, label, feature, normaliser_id(types))
    if leads:
        rows = align_label(channel, encoded, context).rows
    else:
        rows = align_feature(channel, encoded, context, min_intersection=minimum).rows
    return AlignedRows(matrix.take(rows), rows, [encoded[row] for row in rows])


def _exchange_nonces(channel: Channel) -> tuple[bytes, bytes]:
    """Fresh nonces, this side's first: of two honest calls no two have the same pair."""
    own = secrets.token_bytes(_NONCE_BYTES)
    channel.send(CallNonce(nonce=own))
    peer = channel.receive(CallNonce).nonce
    if len(peer) != _NONCE_BYTES:
        raise PeerError(f"got a nonce of {len(peer)} bytes; want {_NONCE_BYTES}")
    return own, peer


def _by_features(matrix: FixedMatrix) -> list[bytes]:
    """A name for each row that is equal for equal features, whatever its position."""
    rows = matrix.csr()
    columns, places = rows.indices.astype(np.int64), pairwise(rows.indptr)
    return [
        hashlib.sha256(columns[start:end].tobytes() + rows.data[start:end].tobytes()).digest()
        for start, end in places
    ]
