"""The error tree: what went wrong, on whose side, and what to do about it.

Every message reads "got X; want Y; do Z" and never contains a secret, an id or a data value of a
feature that the receiver of the message may not see. `PeerError` is sticky: once a session saw
one, it is over.
"""

__all__ = [
    "ColonnadeError",
    "DataError",
    "IntegrityError",
    "PeerError",
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


class TransportError(ColonnadeError):
    """The connection could not be made or kept: address, certificate, time-out, reset."""


class IntegrityError(ColonnadeError):
    """Stored or agreed state does not fit together: model shares, digests, run folders."""
