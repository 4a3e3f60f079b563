"""Length-prefixed frames over one TLS connection.

A frame is a header of 24 bytes and a payload (little-endian):

  kind (1) | zero (3) | payload length (4) | sequence (8) | remaining (8)

`DATA` carries one chunk of a message; `remaining` counts the message's bytes after this chunk, so
its first chunk tells the whole length before anything is allocated. Every chunk but the last has
exactly `CHUNK_BYTES`. `DATA` and `CLOSE` are numbered from 0 and delivered exactly once (see
`reliable`). In `ACK`, `OPEN` and `ACCEPT` the sequence is the count of numbered frames that the
sender of the frame has received.
"""

from __future__ import annotations

import enum
import socket
import ssl
import struct
import time
from contextlib import suppress
from dataclasses import dataclass

from colonnade.errors import PeerError

__all__ = [
    "CHUNK_BYTES",
    "CONTROL_BYTES",
    "Frame",
    "FrameParser",
    "FrameSocket",
    "Kind",
    "cause_text",
    "encode_header",
    "linger",
]

CHUNK_BYTES = 1 << 20
"""Small against any send buffer, large against a header and a TLS record (16 KiB)."""

CONTROL_BYTES = 4096
"""Longest payload of a control frame: a reason to stop is some sentences."""

_HEADER = struct.Struct("<B3sIQQ")
_READ_BYTES = 1 << 16
# Reads in one turn: enough to keep up with a fast network, few enough to write in between.
_READS_PER_TURN = 32
_LINGER_S = 1.0


class Kind(enum.IntEnum):
    """What a frame is for; `transport.handshake` describes the first four."""

    GREETING = 1
    OPEN = 2
    ACCEPT = 3
    STOP = 4
    DATA = 5
    CLOSE = 6
    ACK = 7
    PING = 8


@dataclass(frozen=True)
class Frame:
    """One decoded frame."""

    kind: Kind
    payload: bytes = b""
    sequence: int = 0
    remaining: int = 0

    def encode(self) -> bytes:
        """Header and payload."""
        return encode_header(self.kind, len(self.payload), self.sequence, self.remaining) + (
            self.payload
        )


def encode_header(kind: Kind, length: int, sequence: int, remaining: int) -> bytes:
    """Encode the header of a frame with `length` bytes of payload."""
    return _HEADER.pack(kind, b"\0\0\0", length, sequence, remaining)


class FrameParser:
    """Cuts a stream of bytes into frames; holds at most one frame and one read."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Add received bytes; return the frames they complete.

        Raises
            PeerError: a header that no correct peer sends.
        """
        self._buffer += data
        frames = []
        start = 0
        with memoryview(self._buffer) as view:
            while len(view) - start >= _HEADER.size:
                kind, length, sequence, remaining = _checked_header(view[start:])
                end = start + _HEADER.size + length
                if len(view) < end:
                    break
                payload = bytes(view[start + _HEADER.size : end])
                frames.append(Frame(kind, payload, sequence, remaining))
                start = end
        del self._buffer[:start]
        return frames


def _checked_header(view: memoryview) -> tuple[Kind, int, int, int]:
    code, zero, length, sequence, remaining = _HEADER.unpack_from(view)
    try:
        kind = Kind(code)
    except ValueError:
        raise PeerError(f"got a frame of unknown kind {code}; want one of this version") from None
    if kind is Kind.DATA:
        well_formed = length == CHUNK_BYTES if remaining else 0 < length <= CHUNK_BYTES
    elif kind in (Kind.CLOSE, Kind.ACK, Kind.PING, Kind.ACCEPT):
        well_formed = length == 0 and remaining == 0
    else:
        well_formed = length <= CONTROL_BYTES and remaining == 0
    if zero != b"\0\0\0" or not well_formed:
        raise PeerError(
            f"got a malformed {kind.name} frame header (length {length}, remaining {remaining}); "
            f"want one of this version"
        )
    return kind, length, sequence, remaining


class FrameSocket:
    """A TLS connection that speaks frames: with deadlines at first, then without blocking.

    Python's TLS objects must not be read and written by two threads at once, so a connection
    belongs to one thread at a time; only `shut_down` may be called from another.
    """

    def __init__(self, tls: ssl.SSLSocket) -> None:
        self._tls = tls
        self._parser = FrameParser()
        self._ready: list[Frame] = []
        self._failure: OSError | PeerError | None = None
        self.bytes_read = 0
        self.bytes_written = 0

    def fileno(self) -> int:
        """The descriptor, for selectors."""
        return self._tls.fileno()

    def send(self, data: bytes | memoryview, deadline: float) -> None:
        """Write all of `data` before the monotonic time `deadline`; OSError if that fails."""
        self._tls.settimeout(_left(deadline))
        self._tls.sendall(data)
        self.bytes_written += len(data)

    def next_frame(self, deadline: float) -> Frame:
        """Wait for one frame until the monotonic time `deadline`; OSError if none comes."""
        while not self._ready:
            self._tls.settimeout(_left(deadline))
            self._ready += self._parser.feed(self._receive())
        return self._ready.pop(0)

    def stop_blocking(self) -> None:
        """From here on, `read` and `write` return at once."""
        self._tls.setblocking(False)

    def read(self) -> tuple[list[Frame], bool]:
        """Return the frames that are here, and whether more may be waiting above the descriptor.

        Raises
            OSError: the connection is lost.
            PeerError: malformed frames.
        """
        if self._failure is not None:
            raise self._failure
        frames, self._ready = self._ready, []
        try:
            for _ in range(_READS_PER_TURN):
                frames += self._parser.feed(self._receive())
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return frames, False
        except (OSError, PeerError) as error:
            # What came before the failure counts: it may be the farewell.
            self._failure = error
        return frames, True

    def _receive(self) -> bytes:
        data = self._tls.recv(_READ_BYTES)
        if not data:
            raise ConnectionResetError("the other side closed the connection")
        self.bytes_read += len(data)
        return data

    def write(self, data: memoryview) -> int:
        """Write some of `data`; return how much. The rest must be offered next, unchanged."""
        try:
            count = self._tls.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0
        self.bytes_written += count
        return count

    def shut_down(self) -> None:
        """End the connection under the owning thread's feet, which then sees it as lost."""
        # Not SSLSocket.shutdown: that would drop the TLS state and let plain bytes through.
        with suppress(OSError):
            socket.socket.shutdown(self._tls, socket.SHUT_RDWR)

    def close(self, last: bytes | memoryview = b"") -> None:
        """Close; with `last`, write it first and linger until the other side has read it."""
        with suppress(OSError, ValueError):
            if last:
                self.send(last, time.monotonic() + _LINGER_S)
                linger(self._tls)
        self._tls.close()


def linger(tls: ssl.SSLSocket) -> None:
    """Say that nothing follows and wait briefly for the other side to close.

    Closing while unread bytes wait would send a reset, which may overtake our last words.
    """
    with suppress(OSError):
        socket.socket.shutdown(tls, socket.SHUT_WR)
        deadline = time.monotonic() + _LINGER_S
        while True:
            tls.settimeout(_left(deadline))
            if not socket.socket.recv(tls, _READ_BYTES):
                return


def cause_text(error: OSError) -> str:
    """Why a connection failed, in a few words."""
    if isinstance(error, ssl.SSLEOFError):
        return "the other side closed the connection"
    return error.strerror or (error.args and str(error.args[-1])) or type(error).__name__


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left
