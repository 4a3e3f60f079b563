"""The books of exactly-once delivery, driven by hand."""

import random

import pytest

from colonnade.errors import PeerError
from colonnade.transport.frames import CHUNK_BYTES, Frame, FrameParser, Kind
from colonnade.transport.reliable import Incoming, Outgoing

LIMIT = 10 * CHUNK_BYTES


def frames_of(outgoing, limit=1 << 40):
    return FrameParser().feed(b"".join(outgoing.take(limit)))


def test_messages_are_cut_and_joined():
    outgoing, incoming = Outgoing(), Incoming(LIMIT)
    sent = [b"a", b"b" * CHUNK_BYTES, b"c" * (2 * CHUNK_BYTES + 5)]
    for message in sent:
        outgoing.push_message(message)
    outgoing.push_close()
    frames = frames_of(outgoing)
    assert [frame.sequence for frame in frames] == list(range(6))
    got = [message for frame in frames if (message := incoming.accept(frame)) is not None]
    assert got == sent
    assert incoming.is_closed
    assert not outgoing.is_empty
    outgoing.confirm(incoming.received)
    assert outgoing.is_empty
    assert outgoing.buffered_bytes == 0


def test_after_a_loss_exactly_the_missing_frames_are_resent_byte_for_byte():
    rng = random.Random(8)
    outgoing, incoming = Outgoing(), Incoming(LIMIT)
    sent, got, first_bytes, resent = [], [], {}, 0
    for _ in range(200):
        message = rng.randbytes(rng.choice([1, 30, CHUNK_BYTES + 9]))
        sent.append(message)
        outgoing.push_message(message)
        frames = frames_of(outgoing, rng.choice([1, 1 << 21]))
        lost = rng.random() < 0.3
        for frame in frames[: rng.randint(0, len(frames)) if lost else None]:
            resent += frame.sequence in first_bytes
            assert first_bytes.setdefault(frame.sequence, frame) == frame
            if (done := incoming.accept(frame)) is not None:
                got.append(done)
        for frame in frames:
            assert first_bytes.setdefault(frame.sequence, frame) == frame
        if lost:
            outgoing.resume(incoming.received)
        elif rng.random() < 0.5:
            outgoing.confirm(incoming.received)
    for frame in frames_of(outgoing):
        if (done := incoming.accept(frame)) is not None:
            got.append(done)
    assert got == sent
    assert resent > 10


@pytest.mark.parametrize("received", [0, 3, 2**63])
def test_impossible_confirmations_are_refused(received):
    outgoing = Outgoing()
    outgoing.push_message(b"x")
    outgoing.push_message(b"y")
    outgoing.push_message(b"z")
    outgoing.take(30)  # two frames of 25 bytes
    outgoing.confirm(1)
    with pytest.raises(PeerError, match="want one between 1 and 2"):
        outgoing.confirm(received)
    with pytest.raises(PeerError, match="want one between 1 and 2"):
        outgoing.resume(received)


DATA = Frame(Kind.DATA, b"x", sequence=0)
FIRST = Frame(Kind.DATA, b"x" * CHUNK_BYTES, sequence=0, remaining=5)


@pytest.mark.parametrize(
    ("frames", "what"),
    [
        ([Frame(Kind.DATA, b"x", sequence=1)], "frame number 1; want number 0"),
        ([DATA, DATA], "frame number 0; want number 1"),
        ([Frame(Kind.CLOSE), Frame(Kind.DATA, b"x", sequence=1)], "after the farewell"),
        ([FIRST, Frame(Kind.CLOSE, sequence=1)], "CLOSE frame with 0 bytes to go in the middle"),
        ([FIRST, Frame(Kind.DATA, b"1234", sequence=1)], "4 bytes to go .* want DATA with 5"),
        ([Frame(Kind.DATA, b"x" * CHUNK_BYTES, remaining=LIMIT)], "message of .* want at most"),
        ([Frame(Kind.DATA, b"x" * CHUNK_BYTES, remaining=2**64 - 1)], "message limit"),
    ],
)
def test_what_a_correct_peer_never_sends_is_refused(frames, what):
    incoming = Incoming(LIMIT)
    for frame in frames[:-1]:
        incoming.accept(frame)
    with pytest.raises(PeerError, match=what):
        incoming.accept(frames[-1])
