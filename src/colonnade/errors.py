"""The error tree: what went wrong, on whose side, and what to do about it.

Every message reads "got X; want Y; do Z" and never contains a secret, an id or a data value of a
feature that the receiver of the message may not see. What a peer sent and nobody could take is
sticky: the channel raises the same `PeerError` from then on. A `PeerError` that a role raises ends
the session through `wire.runner.run_role`.
"""

__all__ = [
    "ColonnadeError",
    "DataError",
    "IntegrityError",
    "PeerAbortedError",
    "PeerError",
    "StorageError",
    "TransportError",
    "UsageError",
]


class ColonnadeError(Exception):
    """Base of everything this package raises on purpose."""


class UsageError(ColonnadeError):
    """The caller's own mistake: a wrong argument, a wrong order of calls, a bad configuration."""


class DataError(ColonnadeError):
    """A value in the caller's own data; the message names file, row and column where known."""


class PeerError(ColonnadeError):
    """The other side sent something it must not send, refused, or stopped. Ends the session."""


class PeerAbortedError(PeerError):
    """The other side said that it stops; `kind` is what it calls its reason, such as "Stopped"."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class TransportError(ColonnadeError):
    """The connection could not be made or kept: address, certificate, time-out, reset."""


class IntegrityError(ColonnadeError):
    """Stored or agreed state does not fit together: model shares, digests, run folders."""


class StorageError(IntegrityError):
    """A file of this party cannot be read or written, or is not the one it wrote.

    The message names the path, for this party's operator: it is not sent to the peer.
    """
