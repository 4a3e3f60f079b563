"""The intersection protocol against peers that break it."""

import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from psi_roles import CONTEXT, ONE, numbered, run_pair

from colonnade.errors import IntegrityError, PeerError
from colonnade.protocol.psi import (
    SUITE,
    PsiLimits,
    align_feature,
    align_label,
    dh,
    exchange,
    group,
)
from colonnade.protocol.psi.messages import Begin, Points, Tags, Verdict
from colonnade.wire.channel import Channel


def begin(count: int, *, suite: str = SUITE, context: bytes = CONTEXT) -> Begin:
    return Begin(suite=suite, context_digest=hashlib.sha256(context).digest(), count=count)


def scripted(*messages: Any) -> Callable[[Channel], None]:
    """A peer that sends the given messages and nothing else."""

    def role(channel: Channel) -> None:
        for message in messages:
            channel.send(message)

    return role


GOOD = [group.hash_to_group(bytes([i]), b"peer") for i in range(3)]
NON_CANONICAL = b"\xed" + b"\xff" * 30 + b"\x7f"
ODD = bytes.fromhex("01" + "00" * 31)
NON_SQUARE = bytes.fromhex("26948d35ca62e643e26a83177332e6b6afeb9d08e4268b650f1f5bbd8d81d371")

BAD_POINTS = {
    "identity": ([b"".join([*GOOD[:2], bytes(32)])], "position 2"),
    "non-canonical": ([b"".join([GOOD[0], NON_CANONICAL, GOOD[1]])], "position 1"),
    "negative": ([ODD + GOOD[0] + GOOD[1]], "position 0"),
    "off the curve": ([NON_SQUARE + GOOD[0] + GOOD[1]], "position 0"),
    "repeated": ([b"".join([*GOOD[:2], GOOD[0]])], "repeated points"),
    "repeated across chunks": ([GOOD[0], GOOD[1], GOOD[0]], "repeated points"),
    "short": ([b"".join(GOOD)[:-1]], "95 bytes of points"),
    "long": ([b"".join(GOOD) + b"\0"], "97 bytes of points"),
    "one too many": ([b"".join(GOOD) + group.hash_to_group(b"x", b"peer")], "128 bytes of points"),
    "empty chunk": ([b""], "0 bytes of points"),
}


@pytest.mark.parametrize("case", BAD_POINTS)
@pytest.mark.parametrize("honest", ["label", "feature"])
def test_bad_points_are_refused(case, honest):
    chunks, message = BAD_POINTS[case]
    peer = scripted(begin(3), *(Points(points=chunk) for chunk in chunks))
    ids = numbered(1, 2)
    if honest == "label":
        side, _ = run_pair(lambda channel: align_label(channel, ids, CONTEXT), peer)
    else:
        _, side = run_pair(
            peer, lambda channel: align_feature(channel, ids, CONTEXT, min_intersection=1)
        )
    assert isinstance(side.error, PeerError)
    assert message in str(side.error)


TAGS = [bytes([i]) * 16 for i in (1, 2)]
BAD_TAGS = {
    "repeated": ([Tags(tags=TAGS[0] * 2)], "repeated tags"),
    "torn": ([Tags(tags=b"".join(TAGS)[:-1])], "31 bytes of tags"),
    "too many": ([Tags(tags=b"".join(TAGS) + bytes(16))], "48 bytes of tags"),
    "empty chunk": ([Tags(tags=b"")], "0 bytes of tags"),
    "too few": ([Tags(tags=TAGS[0]), Verdict(proceed=True)], "psi.tags/1"),
}


@pytest.mark.parametrize("case", BAD_TAGS)
@pytest.mark.parametrize("honest", ["label", "feature"])
def test_bad_tags_are_refused(case, honest):
    messages, wanted = BAD_TAGS[case]
    before = [begin(3), Points(points=b"".join(GOOD))]
    ids = numbered(1, 2)
    if honest == "label":
        peer = scripted(*before, Verdict(proceed=True), *messages)
        side, _ = run_pair(lambda channel: align_label(channel, ids, CONTEXT), peer)
    else:
        _, side = run_pair(
            scripted(*before, *messages),
            lambda channel: align_feature(channel, ids, CONTEXT, min_intersection=1),
        )
    assert isinstance(side.error, PeerError)
    assert wanted in str(side.error)


def test_points_beyond_the_announced_count_are_refused():
    peer = scripted(begin(1), Points(points=GOOD[0]), Points(points=GOOD[1]))
    _, side = run_pair(
        peer, lambda channel: align_feature(channel, numbered(1), CONTEXT, min_intersection=1)
    )
    assert isinstance(side.error, PeerError)
    assert "'psi.points/1'; want psi.tags/1" in str(side.error)


def test_too_large_sets_and_other_suites_are_refused_before_anything_is_masked():
    limits = PsiLimits(max_peer_ids=5)
    cases = [
        (begin(6), PeerError, "announces 6 ids; want at most 5"),
        (begin(3, suite="psi-p256/0"), IntegrityError, "got suite 'psi-p256/0'"),
    ]
    for message, kind, wanted in cases:
        side, _ = run_pair(
            lambda channel: align_label(channel, numbered(1), CONTEXT, limits=limits),
            scripted(message),
        )
        assert isinstance(side.error, kind)
        assert wanted in str(side.error)
        assert side.meter.outbox.keys() == {Begin.TAG}


def test_a_negative_count_is_malformed():
    side, _ = run_pair(
        lambda channel: align_label(channel, numbered(1), CONTEXT), scripted(begin(-1))
    )
    assert isinstance(side.error, PeerError)
    assert "malformed psi.begin/1" in str(side.error)


def test_a_peer_that_vanishes_ends_in_an_error_and_not_in_a_hang():
    for messages in ([], [begin(3)], [begin(3), Points(points=GOOD[0])]):
        side, _ = run_pair(
            lambda channel: align_label(channel, numbered(1), CONTEXT), scripted(*messages)
        )
        assert isinstance(side.error, PeerError)
        assert "closed the session" in str(side.error)


def test_a_different_result_at_the_peer_is_an_integrity_error():
    def forging_label(channel: Channel) -> None:
        """Follows the protocol, but returns one wrong tag."""
        channel.send(begin(2))
        channel.receive(Begin)
        channel.send(Points(points=dh.mask(ONE, CONTEXT, numbered(1, 2))))
        tags = dh.mask_again(ONE, channel.receive(Points).points)
        channel.send(Tags(tags=tags[:16] + bytes(16)))
        channel.receive(Verdict)
        own = exchange.receive_tags(channel, 2)
        _, common = dh.match(own, tags, [0, 1])
        exchange.exchange_confirm(channel, 2, dh.order_digest(common, CONTEXT))

    label, feature = run_pair(
        forging_label,
        lambda channel: align_feature(channel, numbered(1, 2), CONTEXT, min_intersection=1),
    )
    assert isinstance(label.error, IntegrityError)
    assert isinstance(feature.error, IntegrityError)
    assert "2 ids from the peer" in str(feature.error)
