"""What the two roles of the intersection protocol share: checked transfer of counts and chunks.

Every length is checked against what this side expects; a chunk's size is the sender's choice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError, IntegrityError, PeerError, UsageError
from colonnade.protocol.psi.group import ELEMENT_BYTES
from colonnade.protocol.psi.messages import Begin, Confirm, Points, Tags
from colonnade.wire.channel import Channel

__all__ = [
    "MAX_CHUNK_IDS",
    "TAG_BYTES",
    "PsiLimits",
    "check_different",
    "exchange_begin",
    "exchange_confirm",
    "receive_points",
    "receive_tags",
    "send_tags",
    "tag_array",
]

TAG_BYTES = 16
MAX_CHUNK_IDS = 65_536  # 2 MiB of points: more buys nothing and only costs memory


@dataclass(frozen=True)
class PsiLimits:
    """What one alignment accepts.

    Attributes
        max_peer_ids: largest set that the peer may announce.
        chunk_ids: ids per message and per unit of work, 1 … 65536.

    Raises
        UsageError: a value is out of range.
    """

    max_peer_ids: int = 10_000_000
    chunk_ids: int = 4096

    def __post_init__(self) -> None:
        if self.max_peer_ids < 1:
            raise UsageError(f"got max_peer_ids {self.max_peer_ids}; want at least 1")
        if not 1 <= self.chunk_ids <= MAX_CHUNK_IDS:
            raise UsageError(f"got chunk_ids {self.chunk_ids}; want 1 to {MAX_CHUNK_IDS}")


def exchange_begin(
    channel: Channel, suite: str, context: bytes, count: int, limits: PsiLimits
) -> int:
    """Tell the peer what this side runs and holds; check and return the peer's number of ids.

    Both sides speak before they check, so that each of them ends with its own clear message.

    Raises
        DataError: this side has no ids.
        IntegrityError: suite or context differ.
        PeerError: the peer has no ids, or more than `limits` allow.
    """
    digest = hashlib.sha256(context).digest()
    channel.send(Begin(suite=suite, context_digest=digest, count=count))
    begin = channel.receive(Begin)
    if begin.suite != suite:
        raise IntegrityError(f"got suite {begin.suite[:80]!r} from the peer; want {suite!r}")
    if begin.context_digest != digest:
        raise IntegrityError(
            "got another alignment context from the peer; want the same session, party names and"
            " types of the key columns on both sides"
        )
    if count == 0:
        raise DataError("got no ids to align; want at least one; check the table and its filters")
    if begin.count == 0:
        raise PeerError(f"{channel.remote!r} has no ids to align; want at least one")
    if begin.count > limits.max_peer_ids:
        raise PeerError(
            f"{channel.remote!r} announces {begin.count} ids; want at most {limits.max_peer_ids};"
            " raise max_peer_ids if that many are expected"
        )
    return begin.count


def receive_points(channel: Channel, count: int) -> Iterator[bytes]:
    """Yield the peer's `count` masked ids as packed chunks.

    Only lengths are checked here; multiplying checks the points, `check_different` their tags.

    Raises
        PeerError: a chunk is empty, torn, too large, or exceeds the announced count.
    """
    while count > 0:
        points = channel.receive(Points).points
        count -= _items(points, ELEMENT_BYTES, count, "points")
        yield points


def receive_tags(channel: Channel, count: int) -> bytes:
    """Receive the `count` packed tags of this side's points.

    Raises
        PeerError: a chunk of wrong length, or repeated tags.
    """
    tags = bytearray()
    while count > 0:
        chunk = channel.receive(Tags).tags
        count -= _items(chunk, TAG_BYTES, count, "tags")
        tags += chunk
    check_different(bytes(tags), "tags")
    return bytes(tags)


def send_tags(channel: Channel, tags: bytes, chunk_ids: int) -> None:
    """Send packed tags in chunks."""
    step = chunk_ids * TAG_BYTES
    for start in range(0, len(tags), step):
        channel.send(Tags(tags=tags[start : start + step]))


def exchange_confirm(channel: Channel, size: int, digest: bytes) -> None:
    """Compare size and digest of the common order with the peer's.

    Raises
        IntegrityError: they differ.
    """
    channel.send(Confirm(size=size, digest=digest))
    confirm = channel.receive(Confirm)
    if confirm.size != size or confirm.digest != digest:
        raise IntegrityError(
            f"got an intersection of {confirm.size} ids from the peer; want the {size} found here,"
            " in the same order; run the alignment again"
        )


def check_different(tags: bytes, what: str) -> None:
    """Check that packed tags are all different.

    Masking is one-to-one: repeated tags of the peer's points mean that it sent a point twice.

    Raises
        PeerError: some repeat; names `what` the peer repeated.
    """
    if len(np.unique(tag_array(tags))) * TAG_BYTES != len(tags):
        raise PeerError(f"got repeated {what} from the peer; want them all different")


def tag_array(tags: bytes) -> NDArray[np.bytes_]:
    """Packed tags as a numpy array of byte strings, to sort and match.

    Strings of one length compare as their bytes do; numpy's NUL padding cannot matter.
    """
    return np.frombuffer(tags, dtype=f"S{TAG_BYTES}")


def _items(chunk: bytes, item_bytes: int, outstanding: int, what: str) -> int:
    items, rest = divmod(len(chunk), item_bytes)
    most = min(outstanding, MAX_CHUNK_IDS)
    if rest or not 1 <= items <= most:
        raise PeerError(
            f"got a chunk of {len(chunk)} bytes of {what}; want 1 to {most} of {item_bytes} bytes"
        )
    return items
