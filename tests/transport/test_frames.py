"""Frames: cutting a stream, and refusing what no correct peer sends."""

import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.errors import PeerError
from colonnade.transport.frames import CHUNK_BYTES, CONTROL_BYTES, Frame, FrameParser, Kind

FRAMES = [
    Frame(Kind.GREETING, b"hello"),
    Frame(Kind.OPEN, b"x" * 17, sequence=3),
    Frame(Kind.ACCEPT, sequence=2**63),
    Frame(Kind.STOP, b""),
    Frame(Kind.DATA, b"d" * CHUNK_BYTES, sequence=0, remaining=1),
    Frame(Kind.DATA, b"d", sequence=1),
    Frame(Kind.CLOSE, sequence=2),
    Frame(Kind.ACK, sequence=7),
    Frame(Kind.PING),
]


def test_the_layout_is_fixed():
    assert Frame(Kind.DATA, b"ab", sequence=258, remaining=0).encode() == (
        b"\x05\0\0\0" + b"\x02\0\0\0" + b"\x02\x01\0\0\0\0\0\0" + b"\0" * 8 + b"ab"
    )


def test_frames_survive_any_cutting_of_the_stream():
    stream = b"".join(frame.encode() for frame in FRAMES)
    random.seed(5)
    cuts = sorted(random.sample(range(len(stream)), 40)) + list(
        range(len(stream) - 60, len(stream))
    )
    parser, found = FrameParser(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += parser.feed(stream[start:end])
    assert found == FRAMES


def header(kind=5, zero=b"\0\0\0", length=1, sequence=0, remaining=0):
    return struct.pack("<B3sIQQ", kind, zero, length, sequence, remaining)


@pytest.mark.parametrize(
    ("bad", "what"),
    [
        (header(kind=0), "unknown kind 0"),
        (header(kind=9), "unknown kind 9"),
        (header(zero=b"\0\1\0"), "malformed DATA"),
        (header(length=0), "malformed DATA"),
        (header(length=CHUNK_BYTES + 1), "malformed DATA"),
        (header(length=2**32 - 1), "malformed DATA"),
        (header(length=10, remaining=10), "malformed DATA"),
        (header(kind=Kind.ACK, length=1), "malformed ACK"),
        (header(kind=Kind.PING, length=0, remaining=1), "malformed PING"),
        (header(kind=Kind.STOP, length=CONTROL_BYTES + 1), "malformed STOP"),
    ],
)
def test_bad_headers_are_refused_before_their_payload_comes(bad, what):
    with pytest.raises(PeerError, match=what):
        FrameParser().feed(bad)


@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_parse_or_are_refused(data):
    parser = FrameParser()
    try:
        frames = parser.feed(data)
    except PeerError:
        return
    assert data.startswith(b"".join(frame.encode() for frame in frames))
