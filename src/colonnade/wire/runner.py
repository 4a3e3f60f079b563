"""Runs a protocol role and, if it fails, tells the other side why before passing the error on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Protocol, TypeVar, runtime_checkable

from colonnade.errors import ColonnadeError, DataError, StorageError, UsageError
from colonnade.wire.channel import Channel, RecordingChannel
from colonnade.wire.messages import Abort

__all__ = ["Abortable", "run_role"]

_T = TypeVar("_T")


@runtime_checkable
class Abortable(Protocol):
    """A channel that can still say why it stops after the peer broke the rules."""

    def abort(self, kind: str, reason: str) -> None:
        """Send `Abort` if the session still works, then end it. Never raises."""
        ...


def run_role(channel: Channel, role: Callable[[Channel], _T]) -> _T:
    """Return `role(channel)`; if it raises, abort the session with a reason and raise again.

    The peer gets the text of a `PeerError`, `IntegrityError` or `TransportError`, which speak of
    what both sides see. A `DataError`, `UsageError` or `StorageError` speaks to this side's own
    operator and may quote values, columns or paths: of these, and of any other exception, the peer
    learns only that there was one. On success the channel stays open.

    Raises: whatever `role` raises.
    """
    try:
        return role(channel)
    except DataError:
        _abort(channel, "DataError", f"{channel.local!r} found an error in its data; see its log")
        raise
    except UsageError:
        reason = f"{channel.local!r} stopped over its own usage or configuration; see its log"
        _abort(channel, "UsageError", reason)
        raise
    except StorageError:
        reason = f"{channel.local!r} could not use a file of its own; see its log"
        _abort(channel, "StorageError", reason)
        raise
    except ColonnadeError as error:
        _abort(channel, type(error).__name__, str(error))
        raise
    except KeyboardInterrupt:
        _abort(channel, "Stopped", f"{channel.local!r} was stopped by its operator")
        raise
    except BaseException:
        _abort(channel, "InternalError", f"internal error at {channel.local!r}; see its log")
        raise


def _abort(channel: Channel, kind: str, reason: str) -> None:
    while isinstance(channel, RecordingChannel):
        channel = channel.inner
    if isinstance(channel, Abortable):
        channel.abort(kind, reason)
        return
    # The error that made us stop matters more than one from an already broken session.
    with contextlib.suppress(ColonnadeError):
        channel.send(Abort(kind=kind, reason=reason))
    with contextlib.suppress(ColonnadeError):
        channel.close()
