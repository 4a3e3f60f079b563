"""What is said first on every connection, once TLS has proved who is there.

  listener                          dialler
  GREETING(version)          -->
                             <--   OPEN(session id, resume, frames received)
  ACCEPT(frames received)    -->
  or, from either side at any time: STOP(reason)

The listener speaks first: under TLS 1.3 the dialler learns only from its first read that its
certificate was refused, and must not have anything of its own on the way then.
"""

from __future__ import annotations

import secrets
import struct
from dataclasses import dataclass

from colonnade.errors import PeerError
from colonnade.transport.frames import CONTROL_BYTES, Frame, FrameSocket, Kind

__all__ = [
    "FRAMING_VERSION",
    "Opening",
    "StoppedByPeerError",
    "accept_session",
    "hear_opening",
    "new_session_id",
    "open_session",
    "stop_frame",
    "stop_reason",
]

FRAMING_VERSION = 1
"""Changes with the frame layout or with this handshake."""

_MAGIC = b"colonnade"
_GREETING = struct.Struct(f"<{len(_MAGIC)}sH")
_SESSION_BYTES = 16
_OPENING = struct.Struct(f"<{_SESSION_BYTES}s?")


class StoppedByPeerError(PeerError):
    """The peer ended the session and said why."""


@dataclass(frozen=True)
class Opening:
    """What a dialler asks for: a new session, or to go on with one it has."""

    session: bytes
    resume: bool
    received: int


def new_session_id() -> bytes:
    """Draw a session id (16 random bytes)."""
    return secrets.token_bytes(_SESSION_BYTES)


def stop_frame(reason: str) -> bytes:
    """Encode the frame that ends a session for a reason the peer should know."""
    return Frame(Kind.STOP, reason.encode()[: CONTROL_BYTES // 2]).encode()


def stop_reason(frame: Frame) -> str:
    """Read a peer's reason, fit for a terminal."""
    text = frame.payload.decode("utf-8", errors="replace")
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def open_session(connection: FrameSocket, opening: Opening, deadline: float) -> int:
    """Dialler: greet, ask for the session; return how many frames the listener has received.

    Raises
        PeerError: another version, or refused; the reason is passed on.
        OSError: the connection is lost, or the deadline passed.
    """
    greeting = _expect(connection, Kind.GREETING, deadline).payload
    if len(greeting) != _GREETING.size or not greeting.startswith(_MAGIC):
        raise PeerError("got an unknown greeting; want that of Colonnade; check host and port")
    version = _GREETING.unpack(greeting)[1]
    if version != FRAMING_VERSION:
        reason = (
            f"the listening side speaks transport version {version}, the dialling side version "
            f"{FRAMING_VERSION}; install the same release of Colonnade on both sides"
        )
        connection.send(stop_frame(reason), deadline)
        raise PeerError(reason)
    payload = _OPENING.pack(opening.session, opening.resume)
    connection.send(Frame(Kind.OPEN, payload, sequence=opening.received).encode(), deadline)
    return _expect(connection, Kind.ACCEPT, deadline).sequence


def hear_opening(connection: FrameSocket, deadline: float) -> Opening:
    """Listener: greet and hear what the dialler wants.

    Raises
        PeerError: it refuses our version, or its opening is malformed.
        OSError: the connection is lost, or the deadline passed.
    """
    greeting = _GREETING.pack(_MAGIC, FRAMING_VERSION)
    connection.send(Frame(Kind.GREETING, greeting).encode(), deadline)
    frame = _expect(connection, Kind.OPEN, deadline)
    if len(frame.payload) != _OPENING.size:
        raise PeerError(f"got an opening of {len(frame.payload)} bytes; want {_OPENING.size}")
    session, resume = _OPENING.unpack(frame.payload)
    return Opening(session, resume, frame.sequence)


def accept_session(connection: FrameSocket, received: int, deadline: float) -> None:
    """Listener: agree, and say how many frames of this session have been received."""
    connection.send(Frame(Kind.ACCEPT, sequence=received).encode(), deadline)


def _expect(connection: FrameSocket, kind: Kind, deadline: float) -> Frame:
    frame = connection.next_frame(deadline)
    if frame.kind is Kind.STOP:
        raise StoppedByPeerError(f"the other side refused: {stop_reason(frame)}")
    if frame.kind is not kind:
        raise PeerError(f"got a {frame.kind.name} frame; want {kind.name}")
    return frame
