"""Private set intersection by double masking: both parties learn the shared ids, in one order.

Source: Diffie-Hellman intersection (Meadows 1986; Huberman, Franklin, Hogg 1999) over ristretto255.
Differs: B sees the result first and can stop; the order comes from the sorted tags.
Suite `psi-ristretto255-sha512-v1`. A is the label party, B a feature party; H hashes an id to the
group under a tag that binds the context (session, parties, suite, normal form of the ids); tag(P)
is the first 16 bytes of P's encoding; every sequence of points or tags goes in chunks.

  A: distinct ids x                                  B: distinct ids y, min_intersection
  A1  a <- random scalar                             B1  b <- random scalar
      Begin(n_A)  -->                                <-- Begin(n_B)        each checks the other's
  A2  p = shuffled H(x)·a   --Points-->
                                                     B2  u = tag(p·b), all different
                                                     B3  <--Points--   q = shuffled H(y)·b
  A3  v = tag(q·a), all different  --Tags-->
                                                     B4  common = sort(v ∩ u)
                                                         <--Verdict-- |common| >= min_intersection?
                                                         if not, both stop here
                                                     B5  <--Tags--  u
  A4  common = sort(u ∩ v)
  A5  Confirm(|common|, digest)  -->                 B6  <-- Confirm(|common|, digest)
  out A, B: own rows of the shared ids in the order of the sorted tags, the digest of those tags

(H(x)·a)·b = (H(x)·b)·a, so shared ids and only they have equal tags, but for a chance below
n_A·n_B·2^-126. Whatever a peer sends is checked: counts, lengths, canonical points other than the
identity, repetitions. Scalars and orders are fresh in every call and never stored.

The digest is a function of both secret scalars. It verifies later that two tables are in the same
order, and cannot be tested against guessed ids by whoever finds it in a run folder.

Cost: per id one hash and one multiplication at its owner, one multiplication at the peer (about
20 + 50 + 50 µs of one core), 48 bytes both ways together; the parties overlap chunk by chunk.

Leaks (semi-honest parties; DDH in ristretto255, H a random oracle):
  A learns  n_B; whether the intersection reaches B's minimum; if so, the intersection.
  B learns  n_A; the intersection (its own rows in it), before A learns anything but n_B.
  Neither   learns anything about an id that only the other holds, nor the other's row order.
  Outsider  n_A, n_B, and the intersection's size where the channel does not hide it.
  Beyond the promise: a party may put in ids that it only guesses, within the size that it announces
  (`PsiLimits.max_peer_ids` bounds it); repeated runs on changed sets show which ids came or went.
  With several feature parties the label party learns every pairwise intersection.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError, UsageError
from colonnade.protocol.psi.exchange import (
    TAG_BYTES,
    PsiLimits,
    check_different,
    exchange_begin,
    exchange_confirm,
    receive_points,
    receive_tags,
    send_tags,
    tag_array,
)
from colonnade.protocol.psi.group import (
    ELEMENT_BYTES,
    hash_and_multiply_all,
    multiply_all,
    random_scalar,
)
from colonnade.protocol.psi.messages import Points, Verdict
from colonnade.wire.channel import Channel

__all__ = [
    "SUITE",
    "Alignment",
    "ChunkMap",
    "IntersectionTooSmallError",
    "align_feature",
    "align_label",
    "alignment_context",
    "domain_separation_tag",
    "mask",
    "mask_again",
    "match",
    "order_digest",
]

SUITE = "psi-ristretto255-sha512-v1"

_IN = TypeVar("_IN")
_OUT = TypeVar("_OUT")


class IntersectionTooSmallError(DataError):
    """The shared ids are fewer than the feature party's minimum; the label party learned no more.

    The message is fit for both sides. `size` is for the feature party's own operator only: the
    number of shared ids there, None at the label party.
    """

    def __init__(self, message: str, size: int | None) -> None:
        super().__init__(message)
        self.size = size


class ChunkMap(Protocol):
    """`map`, or a thread pool's `map`: applies a pure step to chunks, results in their order."""

    def __call__(self, step: Callable[[_IN], _OUT], chunks: Iterable[_IN], /) -> Iterator[_OUT]:
        """Apply `step` to each of `chunks`."""
        ...


@dataclass(frozen=True, eq=False)
class Alignment:
    """The result at one party.

    Attributes
        rows: this party's row of each shared id, in the order common to both, int64.
        digest: 32 bytes, equal at both parties; names the shared records and their order.
    """

    rows: NDArray[np.int64] = field(repr=False)
    digest: bytes

    @property
    def size(self) -> int:
        """How many ids are shared."""
        return len(self.rows)


def alignment_context(
    session_id: bytes, label_party: str, feature_party: str, normaliser: str
) -> bytes:
    """Join everything that an alignment is bound to, each part preceded by its length."""
    parts = (session_id, label_party.encode(), feature_party.encode(), normaliser.encode())
    return b"".join(len(part).to_bytes(8, "little") + part for part in parts)


def align_label(
    channel: Channel,
    ids: Sequence[bytes],
    context: bytes,
    *,
    limits: PsiLimits | None = None,
    progress: Callable[[int, int], None] | None = None,
    map_: ChunkMap = map,
    insecure_scalar_for_tests: bytes | None = None,
) -> Alignment:
    """Run the label party's side (A) with encoded, distinct `ids`, one per row.

    `progress(done, total)` counts masked ids of both sets. Steps on chunks go through `map_`; pass
    the `map` of a thread pool to use several cores.

    Raises
        DataError: there are no ids; `IntersectionTooSmallError` if too few are shared.
        IntegrityError: the parties differ in suite, context or result.
        PeerError: the feature party broke the protocol, or holds no or too many ids.
        UsageError: ids repeat (see `apply_duplicate_policy`).
    """
    limits = limits or PsiLimits()
    _check_distinct(ids)
    scalar = insecure_scalar_for_tests or random_scalar()  # A1
    n_peer = exchange_begin(channel, SUITE, context, len(ids), limits)
    count = partial(_count_ids, total=len(ids) + n_peer, progress=progress)

    order = _secret_order(len(ids))  # A2
    masked = map_(partial(mask, scalar, context), _chunks(ids, order, limits.chunk_ids))
    for points in count(masked, ELEMENT_BYTES, 0):
        channel.send(Points(points=points))

    received = receive_points(channel, n_peer)  # A3
    peer_tags = b"".join(count(map_(partial(mask_again, scalar), received), TAG_BYTES, len(ids)))
    check_different(peer_tags, "points")
    send_tags(channel, peer_tags, limits.chunk_ids)

    if not channel.receive(Verdict).proceed:
        raise _too_small(None)
    own_tags = receive_tags(channel, len(ids))  # A4
    rows, common = match(own_tags, peer_tags, order)
    digest = order_digest(common, context)  # A5
    exchange_confirm(channel, len(rows), digest)
    return Alignment(rows, digest)


def align_feature(
    channel: Channel,
    ids: Sequence[bytes],
    context: bytes,
    *,
    min_intersection: int,
    limits: PsiLimits | None = None,
    progress: Callable[[int, int], None] | None = None,
    map_: ChunkMap = map,
    insecure_scalar_for_tests: bytes | None = None,
) -> Alignment:
    """Run a feature party's side (B) with encoded, distinct `ids`, one per row.

    Stops, before the label party learns anything about the intersection, where it is smaller than
    `min_intersection` (at least 1). The other arguments are those of `align_label`.

    Raises
        DataError: there are no ids; `IntersectionTooSmallError` if too few are shared.
        IntegrityError: the parties differ in suite, context or result.
        PeerError: the label party broke the protocol, or holds no or too many ids.
        UsageError: ids repeat (see `apply_duplicate_policy`), or `min_intersection` is below 1.
    """
    limits = limits or PsiLimits()
    if min_intersection < 1:
        raise UsageError(f"got min_intersection {min_intersection}; want at least 1")
    _check_distinct(ids)
    scalar = insecure_scalar_for_tests or random_scalar()  # B1
    n_peer = exchange_begin(channel, SUITE, context, len(ids), limits)
    count = partial(_count_ids, total=len(ids) + n_peer, progress=progress)

    received = receive_points(channel, n_peer)  # B2
    peer_tags = b"".join(count(map_(partial(mask_again, scalar), received), TAG_BYTES, 0))
    check_different(peer_tags, "points")

    order = _secret_order(len(ids))  # B3
    masked = map_(partial(mask, scalar, context), _chunks(ids, order, limits.chunk_ids))
    for points in count(masked, ELEMENT_BYTES, n_peer):
        channel.send(Points(points=points))

    own_tags = receive_tags(channel, len(ids))  # B4
    rows, common = match(own_tags, peer_tags, order)
    channel.send(Verdict(proceed=len(rows) >= min_intersection))
    if len(rows) < min_intersection:
        raise _too_small(len(rows))
    send_tags(channel, peer_tags, limits.chunk_ids)  # B5
    digest = order_digest(common, context)  # B6
    exchange_confirm(channel, len(rows), digest)
    return Alignment(rows, digest)


def domain_separation_tag(context: bytes) -> bytes:
    """The hash-to-group tag of one alignment: suite and digest of the context."""
    return f"colonnade:{SUITE}:".encode() + hashlib.sha512(context).digest()


def mask(scalar: bytes, context: bytes, ids: Sequence[bytes]) -> bytes:
    """A2, B3: packed H(id)·scalar."""
    return hash_and_multiply_all(scalar, domain_separation_tag(context), ids)


def mask_again(scalar: bytes, points: bytes) -> bytes:
    """A3, B2: packed tag(point·scalar) of the peer's packed points.

    Raises
        PeerError: bytes that are no usable group element.
    """
    products = np.frombuffer(multiply_all(scalar, points), dtype=np.uint8)
    return products.reshape(-1, ELEMENT_BYTES)[:, :TAG_BYTES].tobytes()


def match(
    own_tags: bytes, peer_tags: bytes, order: Sequence[int]
) -> tuple[NDArray[np.int64], bytes]:
    """A4, B4: rows of the shared ids and their packed tags, both in the order of the sorted tags.

    `order[k]` is the row of the id whose tag is `own_tags`' k-th. Tags within a side are distinct.
    """
    common, own_positions, _ = np.intersect1d(
        tag_array(own_tags), tag_array(peer_tags), assume_unique=True, return_indices=True
    )
    return np.asarray(order, dtype=np.int64)[own_positions], common.tobytes()


def order_digest(common_tags: bytes, context: bytes) -> bytes:
    """Digest (32 bytes) of the shared records in their order, bound to the context."""
    head = b"colonnade:psi:order/1:" + hashlib.sha512(context).digest()
    return hashlib.sha256(head + common_tags).digest()


def _secret_order(count: int) -> list[int]:
    order = list(range(count))
    secrets.SystemRandom().shuffle(order)
    return order


def _chunks(ids: Sequence[bytes], order: list[int], size: int) -> Iterator[list[bytes]]:
    for start in range(0, len(order), size):
        yield [ids[row] for row in order[start : start + size]]


def _count_ids(
    chunks: Iterable[bytes],
    item_bytes: int,
    done: int,
    *,
    total: int,
    progress: Callable[[int, int], None] | None,
) -> Iterator[bytes]:
    for chunk in chunks:
        done += len(chunk) // item_bytes
        if progress is not None:
            progress(done, total)
        yield chunk


def _check_distinct(ids: Sequence[bytes]) -> None:
    if len(set(ids)) != len(ids):
        raise UsageError(
            f"got {len(ids)} ids, {len(set(ids))} of them different; want distinct ids;"
            " apply a duplicate policy first"
        )


def _too_small(size: int | None) -> IntersectionTooSmallError:
    return IntersectionTooSmallError(
        "got an intersection below the feature party's minimum; want enough shared ids to train on;"
        " check that both sides chose the same key columns, id types and population",
        size,
    )
