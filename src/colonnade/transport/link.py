"""One session: a thread that moves frames over whichever connection the session has now.

Callers put messages in and take messages out under one lock; the thread alone touches the
connection (Python's TLS objects must not be read and written by two threads at once), so that
computing and sending overlap. When a connection is lost, the dialling side dials again and the
listening side waits to be given a new one; then both go on where they were.
"""

from __future__ import annotations

import math
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from colonnade.errors import ColonnadeError, PeerError, TransportError
from colonnade.transport.frames import Frame, FrameSocket, Kind, cause_text
from colonnade.transport.handshake import StoppedByPeerError, stop_frame, stop_reason
from colonnade.transport.limits import TransportLimits
from colonnade.transport.pump import Pump
from colonnade.transport.reliable import Incoming, Outgoing

__all__ = ["Link", "Redial"]

Redial = Callable[[int, Callable[[], bool]], tuple[FrameSocket, int]]
"""(frames received, given up?) -> (new connection, frames that the peer has received)."""

# One turn's writing: several TLS records, so that small frames share one.
_WRITE_BYTES = 256 << 10
# A confirmation waits this long for something to travel with.
_CONFIRM_AFTER_S = 0.05
# Waiting longer to confirm a chunk as long as this would keep the sender's buffer full.
_CONFIRM_AT_ONCE_BYTES = 128 << 10
# Pause before replacing a connection that broke without having brought anything.
_FUTILE_PAUSE_S = 0.1
# Bookkeeping of one waiting message, so that many tiny ones count as well.
_MESSAGE_OVERHEAD_BYTES = 64


class Link:
    """Both directions of one session with one peer."""

    def __init__(
        self,
        names: tuple[str, str],
        limits: TransportLimits,
        connection: FrameSocket,
        redial: Redial | None,
    ) -> None:
        """Start the thread.

        names: this party's and the peer's. redial: on the dialling side only.
        """
        self.local, self.remote = names
        self._limits = limits
        self._redial = redial
        self._state = threading.Condition()
        self._outgoing = Outgoing()
        self._incoming = Incoming(limits.max_message_bytes)
        self._inbox: deque[bytes] = deque()
        self._inbox_bytes = 0
        self._confirmed = 0  # frames received that the peer knows we have
        self._confirm_at: float | None = None
        self._connection: FrameSocket | None = connection
        self._epoch = 0  # counts connections; what an older one still delivers is ignored
        self._offer: tuple[FrameSocket, int] | None = (connection, 0)
        self._lost_at: float | None = None  # when the last frame's connection broke
        self._resumable = True
        self._closing = False
        self._given_up = False
        self._ended = False
        self._fault: ColonnadeError | None = None
        self._written = self._read = 0  # bytes on connections that have ended
        self._alarm, self._bell = socket.socketpair()
        self._alarm.setblocking(False)
        self._bell.setblocking(False)
        self._thread = threading.Thread(
            target=self._run, daemon=True, name=f"colonnade session {self.local} - {self.remote}"
        )
        self._thread.start()

    # What a channel does.

    def send(self, message: bytes, timeout_s: float) -> None:
        """Buffer one message; wait while the buffer is full.

        Raises
            PeerError: the session ended by the peer's fault, or the peer closed it.
            TransportError: the connection is gone for good, or the buffer stayed full.
        """

        def has_room() -> bool:
            buffered = self._outgoing.buffered_bytes
            return not buffered or buffered + len(message) <= self._limits.send_buffer_bytes

        with self._state:
            self._wait(
                lambda: self._is_down() or self._incoming.is_closed or has_room(),
                timeout_s,
                lambda: self._outgoing.buffered_bytes,
            )
            if self._incoming.is_closed:
                raise PeerError(f"{self.remote!r} closed the session; nothing more can be sent")
            self._check_alive()
            if not has_room():
                raise TransportError(
                    f"{self.remote!r} took nothing more for {timeout_s:g} s and "
                    f"{self._outgoing.buffered_bytes} bytes wait to be sent; check whether it is "
                    f"still working, or raise the receive time-out"
                )
            self._outgoing.push_message(message)
        self._ring()

    def receive(self, wanted: str, timeout_s: float) -> bytes:
        """Wait for the next message; `wanted` names it in errors.

        Raises
            PeerError: as `send`, once everything that came before has been taken.
            TransportError: the connection is gone for good, or nothing came in time.
        """
        with self._state:
            self._wait(
                lambda: bool(self._inbox) or self._is_down() or self._incoming.is_closed,
                timeout_s,
                lambda: self._incoming.received,
            )
            if self._inbox:
                message = self._inbox.popleft()
                was_full = self._is_full()
                self._inbox_bytes -= len(message) + _MESSAGE_OVERHEAD_BYTES
                if was_full:
                    self._ring()
                return message
            if self._incoming.is_closed:
                raise PeerError(f"{self.remote!r} closed the session; {wanted} was expected")
            self._check_alive()
            line = "up" if self._connection else "down and being re-established"
        raise TransportError(
            f"no {wanted} from {self.remote!r} within {timeout_s:g} s (the connection is {line}); "
            f"check whether it is still working, or raise the receive time-out"
        )

    def close(self, timeout_s: float) -> int:
        """Deliver what is buffered and end; return the bytes that may not have arrived."""
        with self._state:
            if not self._closing and not self._ended and not self._incoming.is_closed:
                self._outgoing.push_close()
            self._closing = True
            self._state.notify_all()
            self._ring()
            self._wait(lambda: self._ended, timeout_s, lambda: self._outgoing.buffered_bytes)
            self._given_up = True
            self._state.notify_all()
            self._ring()
        self._thread.join()
        with self._state:
            self._inbox.clear()
            return 0 if self._incoming.is_closed else self._outgoing.buffered_bytes

    def _wait(
        self, ready: Callable[[], bool], timeout_s: float, progress: Callable[[], int]
    ) -> None:
        """Wait until `ready`, or until `progress` has stood still for `timeout_s`.

        One message may take longer than that on a slow line, chunk by chunk.
        """
        while True:
            before = progress()
            if self._state.wait_for(ready, timeout_s) or progress() == before:
                return

    def pending_farewell(self) -> bytes | None:
        """Return the last message that waits, if the peer sent nothing after it and closed."""
        with self._state:
            return self._inbox[-1] if self._inbox and self._incoming.is_closed else None

    @property
    def fault(self) -> ColonnadeError | None:
        """What ended the session, unless it was closed."""
        return self._fault

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes written and read on all connections so far: messages, headers and heartbeats."""
        current = self._connection
        if current is None:
            return self._written, self._read
        return self._written + current.bytes_written, self._read + current.bytes_read

    def drop_connection_for_tests(self) -> None:
        """Break the connection as a failing network would."""
        with self._state:
            if self._connection is not None:
                self._connection.shut_down()

    # What a listener does.

    def begin_resume(self) -> tuple[int, int] | None:
        """Let go of the old connection; return the new one's number and the frames received.

        None if the session is over.
        """
        with self._state:
            if self._ended:
                return None
            self._epoch += 1
            self._withdraw_offer()
            self._ring()
            return self._epoch, self._incoming.received

    def attach(self, epoch: int, connection: FrameSocket, received: int) -> None:
        """Go on over `connection` to a peer that has received `received` of our frames."""
        with self._state:
            if epoch == self._epoch and not self._ended:
                self._offer = (connection, received)
                self._state.notify_all()
                return
        connection.close()

    def forbid_resuming(self) -> None:
        """Say that no new connection can come: the listener is closed."""
        with self._state:
            self._resumable = False
            self._state.notify_all()

    @property
    def is_over(self) -> bool:
        """Whether the thread has ended."""
        return self._ended

    @property
    def is_closed_by_peer(self) -> bool:
        """Whether the peer has said that nothing follows."""
        return self._incoming.is_closed

    @property
    def received(self) -> int:
        """Numbered frames received so far."""
        return self._incoming.received

    # The thread.

    def _run(self) -> None:
        try:
            lost = ""
            while (found := self._next_connection(lost)) is not None:
                lost = self._use(*found)
        except ColonnadeError as error:
            self._fault = error
        finally:
            with self._state:
                self._ended = True
                self._withdraw_offer()
                self._alarm.close()
                self._bell.close()
                self._state.notify_all()

    def _withdraw_offer(self) -> None:
        if self._offer is not None:
            self._offer[0].close()
            self._offer = None

    def _next_connection(self, lost: str) -> tuple[FrameSocket, int, int] | None:
        """Return connection, its number and the frames the peer received; None at the end."""
        limits = self._limits
        if lost and not self._is_settled():
            self._bound_futile_connections(lost)
        if lost and self._redial is not None and not self._is_settled():
            try:
                connection, received = self._redial(self._incoming.received, self._must_give_up)
            except TransportError as error:
                raise self._gone(lost, str(error)) from None
            with self._state:
                self._epoch += 1
                self._offer = (connection, received)
        with self._state:
            self._state.wait_for(
                lambda: self._offer or self._is_settled() or not self._resumable,
                limits.reconnect_s,
            )
            if self._offer is not None and not self._given_up:
                connection, received = self._offer
                self._offer = None
                self._connection = connection
                self._confirmed, self._confirm_at = self._incoming.received, None
                return connection, self._epoch, received
            if self._is_settled():
                return None
        raise self._gone(lost, "" if self._resumable else "this side no longer listens")

    def _bound_futile_connections(self, lost: str) -> None:
        """Give up when connections come and go for `reconnect_s` without bringing one frame."""
        now = time.monotonic()
        with self._state:
            if self._lost_at is None:
                self._lost_at = now
            elif now - self._lost_at > self._limits.reconnect_s:
                raise self._gone(lost, "connections are made and break at once")
            else:
                self._state.wait_for(self._is_settled, _FUTILE_PAUSE_S)

    def _gone(self, lost: str, cause: str) -> TransportError:
        return TransportError(
            f"{self.remote!r} is gone: connection lost ({lost}) and not re-established within "
            f"{self._limits.reconnect_s:g} s{f' ({cause})' if cause else ''}; ask its operator, "
            f"then start again from the last checkpoint on both sides"
        )

    def _is_settled(self) -> bool:
        """Whether losing the connection now loses nothing."""
        done = self._closing and self._outgoing.is_empty
        return self._given_up or self._incoming.is_closed or done

    def _must_give_up(self) -> bool:
        return self._given_up

    def _use(self, connection: FrameSocket, epoch: int, received: int) -> str:
        """Move frames until the connection ends; return why it did ("" when all is done)."""
        last_words = b""
        pump = Pump(connection, self._bell, self._limits)
        try:
            with self._state:
                self._outgoing.resume(received)
                self._state.notify_all()
            return self._converse(pump, epoch)
        except StoppedByPeerError as error:
            raise PeerError(f"{self.remote!r} ended the session: {error}") from None
        except PeerError as error:
            last_words = bytes(pump.unwritten) + stop_frame(str(error))
            fault = PeerError(f"{self.remote!r} broke the transport's rules: {error}")
            with self._state:
                self._fault = fault  # nobody needs to wait until the last words are out
                self._state.notify_all()
            raise fault from None
        except OSError as error:
            return cause_text(error)
        finally:
            pump.close()
            with self._state:
                self._connection = None
            connection.close(last_words)
            self._written += connection.bytes_written
            self._read += connection.bytes_read

    def _converse(self, pump: Pump, epoch: int) -> str:
        while True:
            with self._state:
                if self._epoch != epoch:
                    return "the peer opened another connection"
                if not pump.unwritten:
                    pump.unwritten = self._compose(heartbeat=pump.heartbeat_is_due())
                if self._given_up or (not pump.unwritten and self._is_finished()):
                    return ""
                hold_back = self._is_full()
                until = self._confirm_at or math.inf
            if pump.unwritten:
                pump.write()
                until = 0.0  # there may be more to write, or this may have been the end
            pump.wait(until, hold_back=hold_back)
            if not hold_back:
                self._take(pump.read(), epoch)

    def _compose(self, *, heartbeat: bool) -> memoryview:
        """Collect what is to be written next."""
        pieces = self._outgoing.take(_WRITE_BYTES)
        owed = self._incoming.received - self._confirmed
        urgent = bool(pieces) or self._closing or self._incoming.is_closed
        if owed and (urgent or time.monotonic() >= (self._confirm_at or 0.0)):
            # Before the data: a farewell must not overtake the confirmation of what it answers.
            pieces.insert(0, Frame(Kind.ACK, sequence=self._incoming.received).encode())
            self._confirmed, self._confirm_at = self._incoming.received, None
        if not pieces and heartbeat:
            pieces.append(Frame(Kind.PING).encode())
        return memoryview(b"".join(pieces))

    def _is_finished(self) -> bool:
        return self._closing and (self._outgoing.is_empty or self._incoming.is_closed)

    def _is_full(self) -> bool:
        return self._inbox_bytes >= self._limits.receive_buffer_bytes

    def _take(self, frames: list[Frame], epoch: int) -> None:
        for frame in frames:
            with self._state:
                if self._epoch != epoch:
                    return  # the new connection started from what had been taken before
                self._lost_at = None
                self._take_one(frame)
                self._state.notify_all()

    def _take_one(self, frame: Frame) -> None:
        if frame.kind in (Kind.DATA, Kind.CLOSE):
            message = self._incoming.accept(frame)
            if message is not None:
                self._inbox.append(message)
                self._inbox_bytes += len(message) + _MESSAGE_OVERHEAD_BYTES
            if self._confirm_at is None:
                self._confirm_at = time.monotonic() + _CONFIRM_AFTER_S
            if len(frame.payload) >= _CONFIRM_AT_ONCE_BYTES:
                self._confirm_at = time.monotonic()
        elif frame.kind is Kind.ACK:
            self._outgoing.confirm(frame.sequence)
        elif frame.kind is Kind.STOP:
            raise StoppedByPeerError(stop_reason(frame))
        elif frame.kind is not Kind.PING:
            raise PeerError(f"got a {frame.kind.name} frame in a running session; want none")

    def _is_down(self) -> bool:
        return self._ended or self._fault is not None

    def _check_alive(self) -> None:
        if self._fault is not None:
            raise type(self._fault)(str(self._fault))
        if self._ended:
            raise TransportError(f"the session with {self.remote!r} is over; start a new one")

    def _ring(self) -> None:
        with self._state, suppress(BlockingIOError):
            if not self._ended:
                self._alarm.send(b"!")
