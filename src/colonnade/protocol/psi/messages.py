"""The messages of the intersection protocol and what each shows to its receiver."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from colonnade.wire.messages import Message

__all__ = ["Begin", "Confirm", "Points", "Tags", "Verdict"]

_Count = Annotated[int, msgspec.Meta(ge=0)]


class Begin(Message, frozen=True, kw_only=True):
    """Opens the protocol: what must agree, and the number of ids to come."""

    TAG: ClassVar[str] = "psi.begin/1"
    LEAKS: ClassVar[str] = "how many ids the sender holds"

    suite: str
    context_digest: bytes
    count: _Count


class Points(Message, frozen=True, kw_only=True):
    """A chunk of masked ids: packed group elements of 32 bytes, in secret random order."""

    TAG: ClassVar[str] = "psi.points/1"
    LEAKS: ClassVar[str] = "nothing: every id is masked by a secret scalar, in random order"

    points: bytes


class Tags(Message, frozen=True, kw_only=True):
    """A chunk of the receiver's own masked ids, masked again: 16 bytes each, in received order."""

    TAG: ClassVar[str] = "psi.tags/1"
    LEAKS: ClassVar[str] = "which of the receiver's ids the sender holds too"

    tags: bytes


class Verdict(Message, frozen=True, kw_only=True):
    """The feature party's decision whether enough ids are shared to go on."""

    TAG: ClassVar[str] = "psi.verdict/1"
    LEAKS: ClassVar[str] = "whether the intersection reaches the feature party's minimum"

    proceed: bool


class Confirm(Message, frozen=True, kw_only=True):
    """Size and digest of the common order, for comparison."""

    TAG: ClassVar[str] = "psi.confirm/1"
    LEAKS: ClassVar[str] = "nothing beyond the intersection, which both sides know by then"

    size: _Count
    digest: bytes
