"""Frozen, versioned message types and their strict binary codec.

A frame is `tag length (1 byte) | tag | MessagePack body`. The tag names the type and its version
(`matmul.forward/1`); the body is decoded into exactly that type, unknown or missing fields are
refused. Nothing is ever unpickled. Tensors travel as raw little-endian bytes and are given a shape
by *our* state (`array_from_bytes`), never by the peer's word.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, TypeVar

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from colonnade.errors import PeerAbortedError, PeerError, UsageError

__all__ = [
    "Abort",
    "Message",
    "array_from_bytes",
    "array_to_bytes",
    "decode_frame",
    "encode_frame",
    "frame_tag",
    "one_line",
]

# A text for people; what is longer has something in it that should not be there.
_LONGEST_TEXT = 2000
_LONGEST_KIND = 60
_LONGEST_FAULT = 300

_T = TypeVar("_T", bound="Message")


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of all messages.

    Subclasses set `TAG` ("family.name/version") and `LEAKS`: one sentence for the sender's outbox
    that says what this message shows to its receiver (the row of the leak table).
    """

    TAG: ClassVar[str] = ""
    LEAKS: ClassVar[str] = ""


def one_line(text: str, limit: int = _LONGEST_TEXT) -> str:
    """`text` as at most `limit` printable characters: it may be, or quote, what a peer wrote.

    Line ends and control characters become "?", so that nobody writes lines into another's log.
    """
    shown = text if len(text) <= limit else f"{text[: limit - 3]}..."
    return "".join(letter if letter.isprintable() else "?" for letter in shown)


class Abort(Message, frozen=True, kw_only=True):
    """The sender stops; `reason` is fit to be shown to the other side's operator.

    Made here or received, its texts are one printable line each.
    """

    TAG: ClassVar[str] = "wire.abort/1"
    LEAKS: ClassVar[str] = "why this side stopped"

    kind: Annotated[str, Meta(max_length=_LONGEST_KIND)]
    reason: Annotated[str, Meta(max_length=_LONGEST_TEXT)]

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "kind", one_line(self.kind, _LONGEST_KIND))
        msgspec.structs.force_setattr(self, "reason", one_line(self.reason))


def encode_frame(message: Message) -> bytes:
    """Encode `message` to one frame."""
    tag = type(message).TAG.encode()
    if not 0 < len(tag) < 256:
        raise UsageError(f"message type {type(message).__name__} has no usable TAG")
    return bytes([len(tag)]) + tag + msgspec.msgpack.encode(message)


def frame_tag(frame: bytes | memoryview) -> str:
    """Return the tag of a frame.

    Raises
        PeerError: the frame is shorter than its tag or the tag is not ASCII.
    """
    if len(frame) < 2 or len(frame) < 1 + frame[0]:
        raise PeerError(f"got a frame of {len(frame)} bytes; want a tagged message")
    try:
        return bytes(frame[1 : 1 + frame[0]]).decode("ascii")
    except UnicodeDecodeError:
        raise PeerError("got a frame whose type tag is not ASCII") from None


def decode_frame(frame: bytes | memoryview, *types: type[_T]) -> _T:
    """Decode `frame` as one of `types`.

    Raises
        PeerError: another type arrived, or the body is malformed.
        PeerAbortedError: the peer stopped; with its reason.
    """
    tag = frame_tag(frame)
    body = memoryview(frame)[1 + frame[0] :]
    for kind in types:
        if tag == kind.TAG:
            return _decode_body(body, kind)
    if tag == Abort.TAG:
        abort = _decode_body(body, Abort)
        raise PeerAbortedError(f"the other side stopped ({abort.kind}): {abort.reason}", abort.kind)
    wanted = " or ".join(kind.TAG for kind in types)
    raise PeerError(f"got message {tag[:80]!r}; want {wanted}")


def _decode_body(body: memoryview, kind: type[_T]) -> _T:
    try:
        return msgspec.msgpack.decode(body, type=kind, strict=True)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        # The decoder's text may quote the peer's own field names.
        text = one_line(str(error), _LONGEST_FAULT)
        raise PeerError(f"got a malformed {kind.TAG} message: {text}") from None


def array_to_bytes(array: NDArray[Any]) -> bytes:
    """Raw little-endian bytes of a contiguous copy of `array`."""
    return np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def array_from_bytes(
    data: bytes, dtype: np.dtype[Any] | type[np.generic], shape: tuple[int, ...], what: str
) -> NDArray[Any]:
    """Give received bytes the dtype and shape that *our* state expects.

    Raises
        PeerError: the length does not fit; names `what`.
    """
    kind = np.dtype(dtype).newbyteorder("<")
    want = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    if len(data) != want:
        raise PeerError(f"got {len(data)} bytes for {what}; want {want} (shape {shape})")
    return np.frombuffer(data, dtype=kind).reshape(shape).astype(np.dtype(dtype), copy=True)
