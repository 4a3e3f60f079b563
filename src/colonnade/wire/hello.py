"""The first exchange of a session: both sides state what they run and refuse what differs.

  both: Hello(fields)  -->  <--  Hello(fields)
  both compare; a difference is a PeerError on both sides, naming every differing field

Leaks: the fields, each way. They are configuration (versions, names, sizes, fingerprints of
certificates, the terms of a job), never data.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import ClassVar

from colonnade.errors import PeerError, UsageError
from colonnade.wire.channel import Channel
from colonnade.wire.messages import Message

__all__ = ["ANY", "PROTOCOL_VERSION", "Hello", "exchange_hello"]

PROTOCOL_VERSION = "1"
"""Changes whenever two releases could not finish a job together."""

# Far above what any release sends, far below what could fill a screen or a log.
_MOST_FIELDS = 64
_LONGEST_KEY = 64
_LONGEST_VALUE = 1024
_LONGEST_SHOWN = 120
_ABSENT = "(not stated)"

ANY = "(any)"
"""Says of a negotiable field that this side has agreed on nothing beforehand."""

# Fields that the peer states about us: each is the mirror image of one of our own.
_MIRROR = {
    "party": "peer",
    "peer": "party",
    "certificate": "peer_certificate",
    "peer_certificate": "certificate",
}


class Hello(Message, frozen=True, kw_only=True):
    """What one side runs and whom it wants to talk to, as text fields."""

    TAG: ClassVar[str] = "wire.hello/1"
    LEAKS: ClassVar[str] = (
        "versions, names, key size, certificate fingerprints, the terms of the agreed job"
    )

    fields: dict[str, str]


def exchange_hello(
    channel: Channel,
    fields: Mapping[str, str],
    informational: Collection[str] = ("software",),
    negotiable: Collection[str] = ("job",),
) -> dict[str, str]:
    """Tell the peer what we run, learn what it runs, and refuse what does not fit.

    `protocol`, `party` (our name) and `peer` (the name we want) are filled in where `fields` is
    silent. Our `party` must be the peer's `peer` and the other way round, and so must `certificate`
    and `peer_certificate`; `role` must differ; everything else must be equal, except the
    `informational` fields, which are only shown. A `negotiable` field, and those whose names begin
    with it and a dot, are not compared where either side states it as `ANY`.

    Returns: the peer's fields.

    Raises
        PeerError: fields differ (all of them are named, with both values) or are malformed.
        UsageError: our own fields are not short text.
    """
    stated = {
        "protocol": PROTOCOL_VERSION,
        "party": channel.local,
        "peer": channel.remote,
        **fields,
    }
    fault = _malformed(stated)
    if fault:
        raise UsageError(f"cannot send this hello: {fault}")
    channel.send(Hello(fields=stated))
    received = channel.receive(Hello).fields
    fault = _malformed(received)
    if fault:
        raise PeerError(f"{channel.remote!r} sent a malformed hello: {fault}")
    settled = {key for key in negotiable if ANY not in (stated.get(key), received.get(key))}
    left_open = set(negotiable) - settled
    ignored = {k for k in stated | received if k.partition(".")[0] in left_open}
    differences = _differences(stated, received, ignored.union(informational))
    if differences:
        raise PeerError(
            f"{channel.local!r} and {channel.remote!r} do not fit together: "
            + "; ".join(differences)
            + "; agree on these with the other side, then start again on both sides"
        )
    return received


def _malformed(fields: Mapping[str, str]) -> str:
    """Say what is wrong with `fields`, or return an empty string."""
    if len(fields) > _MOST_FIELDS:
        return f"got {len(fields)} fields; want at most {_MOST_FIELDS}"
    for key, value in fields.items():
        if not 0 < len(key) <= _LONGEST_KEY or not key.isprintable():
            return f"got the field name {key[:_LONGEST_KEY]!r}; want a short printable name"
        if len(value) > _LONGEST_VALUE:
            return f"got {len(value)} characters in field {key!r}; want at most {_LONGEST_VALUE}"
    return ""


def _differences(
    ours: Mapping[str, str], theirs: Mapping[str, str], ignored: Collection[str]
) -> list[str]:
    found = []
    for key in sorted(ours.keys() | {_MIRROR.get(key, key) for key in theirs}):
        if key in ignored:
            continue
        mine = ours.get(key, _ABSENT)
        yours = theirs.get(_MIRROR.get(key, key), _ABSENT)
        values = f"{mine[:_LONGEST_SHOWN]!r} here, {yours[:_LONGEST_SHOWN]!r} there"
        if key == "role":
            if mine == yours or _ABSENT in (mine, yours):
                found.append(f"role: {values}, which must be different roles")
        elif mine != yours:
            label = f"{key} here and {_MIRROR[key]} there" if key in _MIRROR else key
            found.append(f"{label}: {values}")
    return found
