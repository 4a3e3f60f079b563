"""The codec: strict, versioned, without pickle; malformed bytes are a peer fault."""

from typing import ClassVar

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.errors import PeerAbortedError, PeerError, UsageError
from colonnade.wire import (
    Abort,
    Message,
    array_from_bytes,
    array_to_bytes,
    decode_frame,
    encode_frame,
    frame_tag,
)


class Sample(Message, frozen=True, kw_only=True):
    TAG: ClassVar[str] = "test.sample/2"
    LEAKS: ClassVar[str] = "a sample"

    count: int
    data: bytes


def framed(tag, body):
    return bytes([len(tag)]) + tag + msgspec.msgpack.encode(body)


def test_the_layout_is_fixed():
    frame = encode_frame(Sample(count=1, data=b"\x07"))
    assert frame == b"\x0dtest.sample/2\x82\xa5count\x01\xa4data\xc4\x01\x07"
    assert frame_tag(frame) == "test.sample/2"


@settings(max_examples=50, derandomize=True, deadline=None)
@given(st.integers(-(2**63), 2**64 - 1), st.binary(max_size=50))
def test_round_trip(count, data):
    message = Sample(count=count, data=data)
    assert decode_frame(encode_frame(message), Abort, Sample) == message


@pytest.mark.parametrize(
    ("frame", "what"),
    [
        (b"", "0 bytes; want a tagged message"),
        (b"\x05ab", "3 bytes"),
        (b"\x02\xff\xfe\x80", "not ASCII"),
        (framed(b"test.sample/1", {"count": 1, "data": b""}), "got message 'test.sample/1'"),
        (framed(b"test.sample/2", {"count": 1}), "malformed .* missing required field"),
        (framed(b"test.sample/2", {"count": "1", "data": b""}), "malformed .* Expected `int`"),
        (framed(b"test.sample/2", {"count": 1, "data": b"", "x": 0}), "malformed .* unknown fie"),
        (framed(b"test.sample/2", [1, b""]), "malformed"),
        (encode_frame(Sample(count=1, data=b"")) + b"\0", "malformed"),
        (encode_frame(Sample(count=1, data=b""))[:-1], "malformed"),
        (encode_frame(Abort(kind="K", reason="why")), r"other side stopped \(K\): why"),
    ],
)
def test_bad_frames_are_peer_faults(frame, what):
    with pytest.raises(PeerError, match=what):
        decode_frame(frame, Sample)


FORGED = "why\n2031 approved\r\x1b]0;t\x07\u202e"


def test_the_texts_of_an_abort_are_one_printable_line_each():
    made = Abort(kind="K\n" + 100 * "k", reason=FORGED + 3_000_000 * "x")
    frames = [encode_frame(made), framed(b"wire.abort/1", {"kind": "K\n", "reason": FORGED})]
    for frame in frames:
        with pytest.raises(PeerAbortedError, match=r"stopped \(K\?") as caught:
            decode_frame(frame, Sample)
        assert str(caught.value).isprintable()
        assert "why?2031 approved??]0;t??" in str(caught.value)
        assert len(str(caught.value)) < 2200
        assert caught.value.kind.startswith("K?")


def test_an_abort_beyond_its_bounds_is_not_repeated():
    frame = framed(b"wire.abort/1", {"kind": "K", "reason": 3_000_000 * "x"})
    with pytest.raises(PeerError, match=r"malformed wire\.abort/1") as caught:
        decode_frame(frame, Sample)
    assert len(str(caught.value)) < 400


def test_a_field_name_of_the_peers_making_is_shown_in_part_and_printable():
    body = {"count": 1, "data": b"", "\x1b[2J\n" + 100_000 * "f": 0}
    with pytest.raises(PeerError, match="malformed") as caught:
        decode_frame(framed(b"test.sample/2", body), Sample)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


@settings(max_examples=300, derandomize=True, deadline=None)
@given(st.binary(max_size=60), st.booleans())
def test_random_bytes_decode_or_are_refused(data, tagged):
    frame = b"\x0dtest.sample/2" + data if tagged else data
    try:
        message = decode_frame(frame, Sample)
    except PeerError:
        return
    assert isinstance(message, Sample)


def test_a_message_type_without_a_tag_cannot_be_sent():
    class Untagged(Message, frozen=True):
        pass

    with pytest.raises(UsageError, match="Untagged has no usable TAG"):
        encode_frame(Untagged())


def test_arrays_take_their_shape_from_our_state_only():
    array = np.array([[1, -2], [3, 2**62]], dtype=">i8")
    data = array_to_bytes(array)
    assert data[:8] == b"\x01" + bytes(7)
    back = array_from_bytes(data, np.int64, (2, 2), "weights")
    assert back.dtype == np.int64
    assert back.flags.writeable
    assert np.array_equal(back, array)
    with pytest.raises(PeerError, match=r"got 32 bytes for weights; want 48 \(shape \(2, 3\)\)"):
        array_from_bytes(data, np.int64, (2, 3), "weights")
