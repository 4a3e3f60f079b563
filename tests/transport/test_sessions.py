"""Sessions over real sockets: exactly once across lost connections, and an end to every wait."""

import collections
import contextlib
import os
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from tls_parties import HOST, QUICK, Blob, Other, Relay, together

from colonnade.errors import PeerError, TransportError, UsageError
from colonnade.transport import PinnedPeer, TransportLimits
from colonnade.transport.frames import CHUNK_BYTES, FrameParser, FrameSocket
from colonnade.transport.handshake import Opening
from colonnade.transport.reliable import Outgoing

SHORT = TransportLimits(connect_s=5, receive_s=5, reconnect_s=0.8, dead_after_s=0.8)


def blobs(label, count, size):
    """Distinct messages of about `size` bytes."""
    return [Blob(data=bytes([index, label]) * (size // 2 + index)) for index in range(count)]


def test_messages_go_both_ways_and_are_metered_as_in_memory(parties):
    with parties.session() as (dialled, accepted):
        assert (dialled.local, dialled.remote) == ("feature", "label")
        assert (accepted.local, accepted.remote) == ("label", "feature")
        dialled.send(Blob(data=b"question"))
        dialled.send(Other())
        assert accepted.receive(Blob, Other) == Blob(data=b"question")
        assert accepted.receive(Blob, Other) == Other()
        accepted.send(Blob(data=bytes(3 * CHUNK_BYTES + 1)))
        assert dialled.receive(Blob).data == bytes(3 * CHUNK_BYTES + 1)
        ours, theirs = dialled.meter, accepted.meter
        assert ours.sent_bytes == theirs.received_bytes
        assert ours.received_bytes == theirs.sent_bytes > 3 * CHUNK_BYTES
        assert (ours.rounds, theirs.rounds) == (1, 0)
        assert {tag: row.count for tag, row in ours.outbox.items()} == {
            "test.blob/1": 1,
            "test.other/1": 1,
        }
        written, read = dialled.traffic_bytes
        assert written > ours.sent_bytes
        assert read > ours.received_bytes


class Recorder:
    """Records every numbered frame handed to a connection, and breaks connections half-way."""

    def __init__(self, monkeypatch, cuts):
        self.frames = collections.defaultdict(list)  # (sender, sequence) -> bytes, each time
        self.cuts = cuts
        self._seen = collections.Counter()
        self._broken = set()
        self._lock = threading.Lock()
        take, write = Outgoing.take, FrameSocket.write

        def recording_take(outgoing, limit):
            pieces = take(outgoing, limit)
            for frame in FrameParser().feed(b"".join(pieces)):
                self.frames[outgoing, frame.sequence].append(frame.encode())
            return pieces

        def breaking_write(connection, data):
            with self._lock:
                self._seen[connection] += len(data)
                is_due = self._seen[connection] > 1_500_000 and len(data) > 500_000
                breaks = self.cuts > 0 and is_due and connection not in self._broken
                if breaks:
                    self.cuts -= 1
                    self._broken.add(connection)
            if not breaks:
                return write(connection, data)
            count = write(connection, data[: len(data) // 2])
            connection.shut_down()
            return count

        monkeypatch.setattr(Outgoing, "take", recording_take)
        monkeypatch.setattr(FrameSocket, "write", breaking_write)

    @property
    def resent(self):
        return [copies for copies in self.frames.values() if len(copies) > 1]


def test_every_message_arrives_once_across_lost_connections(parties, monkeypatch):
    recorder = Recorder(monkeypatch, cuts=6)
    there, back = blobs(1, 4, 5_000_000), blobs(2, 4, 5_000_000)
    mixed = [*there, *blobs(3, 30, 100)]

    def exchange(channel, outgoing, expected):
        for message in outgoing:
            channel.send(message)
        got = [channel.receive(Blob) for _ in expected]
        channel.close()
        return got == expected

    with parties.session() as (dialled, accepted):
        results = together(
            lambda: exchange(dialled, mixed, back), lambda: exchange(accepted, back, mixed)
        )
    assert results == [True, True]
    assert recorder.cuts == 0
    assert len(recorder.resent) >= 3
    assert all(len(set(copies)) == 1 for copies in recorder.resent)


@pytest.mark.parametrize("end", [0, 1])
def test_a_drop_while_idle_goes_unnoticed_by_the_protocol(parties, end):
    with parties.session() as channels:
        for _ in range(4):
            channels[end].drop_connection_for_tests()
            for sender, receiver in (channels, channels[::-1]):
                sender.send(Blob(data=b"x"))
                assert receiver.receive(Blob).data == b"x"


def test_a_half_open_connection_is_noticed_and_replaced(parties):
    limits = TransportLimits(connect_s=5, receive_s=8, reconnect_s=5, dead_after_s=0.6)
    with (
        parties.listen(limits) as listener,
        Relay(listener.port) as relay,
        parties.dial(relay.port, limits) as dialled,
        listener.accept() as accepted,
    ):
        time.sleep(1.2)  # heartbeats keep an idle connection alive
        assert relay.connections == 1
        relay.freeze()
        dialled.send(Blob(data=b"there"))
        accepted.send(Blob(data=b"back"))
        assert accepted.receive(Blob).data == b"there"
        assert dialled.receive(Blob).data == b"back"
        assert relay.connections >= 2


def test_a_connection_that_does_not_come_back_ends_both_sides(parties):
    with parties.listen(SHORT) as listener, Relay(listener.port) as relay:
        dialled = parties.dial(relay.port, SHORT)
        accepted = listener.accept()
        relay.accepts = False
        start = time.monotonic()
        relay.cut()
        gone = "is gone: connection lost .* not re-established within 0.8 s.*last checkpoint"
        for channel in (dialled, accepted):
            with pytest.raises(TransportError, match=f"{channel.remote!r} {gone}"):
                channel.receive(Blob)
            with pytest.raises(TransportError, match=gone):
                channel.send(Blob(data=b"x"))
            channel.close()
        assert time.monotonic() - start < 4


PEER = """
    import sys, time
    from pathlib import Path
    from typing import ClassVar
    from colonnade.transport import Identity, Listener, PinnedPeer, TransportLimits, connect
    from colonnade.wire import Message

    class Blob(Message, frozen=True, kw_only=True):
        TAG: ClassVar[str] = "test.blob/1"
        LEAKS: ClassVar[str] = "some bytes"
        data: bytes

    folder, mode, port = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    label, feature = (
        Identity(name, folder / f"{name}.crt.pem", folder / f"{name}.key.pem")
        for name in ("label", "feature")
    )
    limits = TransportLimits(connect_s=20, reconnect_s=5)
    if mode == "dial":
        pinned = PinnedPeer("label", label.certificate)
        channel = connect(("127.0.0.1", port), feature, pinned, limits)
    else:
        pinned = [PinnedPeer("feature", feature.certificate)]
        listener = Listener(("127.0.0.1", port), label, pinned, limits)
        print(listener.port, flush=True)
        channel = listener.accept()
    channel.send(Blob(data=b"ready"))
    time.sleep(60)
"""


@pytest.mark.parametrize("mode", ["dial", "listen"])
def test_a_killed_peer_is_noticed_within_seconds(parties, mode):
    limits = TransportLimits(connect_s=20, receive_s=20, reconnect_s=0.8, dead_after_s=5)
    folder = parties.label.certificate.parent
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(parties.listen(limits)) if mode == "dial" else None
        port = listener.port if listener else 0
        process = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", textwrap.dedent(PEER), str(folder), mode, str(port)],
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
        )
        try:
            if listener:
                channel = listener.accept()
            else:
                channel = parties.dial(int(process.stdout.readline()), limits)
            assert channel.receive(Blob).data == b"ready"
        finally:
            process.kill()
        start = time.monotonic()
        with pytest.raises(TransportError, match=f"{channel.remote!r} is gone: connection lost"):
            channel.receive(Blob)
        assert time.monotonic() - start < 4
        channel.close()


def test_a_restarted_listener_does_not_know_the_session(parties):
    with parties.listen() as listener:
        port = listener.port
        dialled = parties.dial(port)
        accepted = listener.accept()
    with parties.listen(port=port):
        dialled.drop_connection_for_tests()
        with pytest.raises(PeerError, match=r"does not know the session.*lost.*last checkpoint"):
            dialled.receive(Blob)
        assert "'feature' wants to resume" in parties.refused[0]
        with pytest.raises(TransportError, match="this side no longer listens"):
            accepted.receive(Blob)
        dialled.close()
        accepted.close()


def test_a_restarted_dialler_starts_a_new_session_and_the_old_one_ends(parties):
    with parties.listen(SHORT) as listener, Relay(listener.port) as relay:
        first = parties.dial(relay.port, SHORT)
        old = listener.accept()
        relay.accepts = False
        relay.cut()
        with parties.dial(listener.port) as second, listener.accept() as new:
            second.send(Blob(data=b"afresh"))
            assert new.receive(Blob).data == b"afresh"
            with pytest.raises(TransportError, match="'feature' is gone"):
                old.receive(Blob)
        first.abort("Stopped", "")
        old.close()


# Ends.


def test_close_delivers_what_is_buffered(parties):
    messages = blobs(1, 3, 3_000_000)
    with parties.session() as (dialled, accepted):

        def send():
            for message in messages:
                dialled.send(message)
            dialled.close()
            dialled.close()

        assert together(send, lambda: [accepted.receive(Blob) for _ in messages]) == [
            None,
            messages,
        ]
        with pytest.raises(PeerError, match=r"'feature' closed the session; test\.blob/1 or"):
            accepted.receive(Blob, Other)
        with pytest.raises(PeerError, match="'feature' closed the session"):
            accepted.send(Other())
        with pytest.raises(TransportError, match="channel is closed"):
            dialled.receive(Blob)


def test_close_of_one_side_ends_the_wait_of_the_other(parties):
    with parties.session() as (dialled, accepted):
        start = time.monotonic()
        wait, _ = together(lambda: dialled.receive(Blob), accepted.close)
        assert isinstance(wait, PeerError)
        assert "closed the session; test.blob/1 was expected" in str(wait)
        assert time.monotonic() - start < 2


def test_both_sides_may_close_at_once(parties):
    for _ in range(5):
        with parties.session() as (dialled, accepted):
            dialled.send(Blob(data=b"x"))
            accepted.send(Blob(data=b"y"))
            assert together(dialled.close, accepted.close) == [None, None]


def test_close_says_when_something_may_not_have_arrived(parties):
    with parties.listen(SHORT) as listener, Relay(listener.port) as relay:
        dialled = parties.dial(relay.port, SHORT)
        accepted = listener.accept()
        relay.accepts = False
        relay.freeze()
        dialled.send(Blob(data=b"lost"))
        relay.cut()
        with pytest.raises(
            TransportError, match="bytes that 'label' has not confirmed: 'label' is"
        ):
            dialled.close()
        accepted.close()  # had nothing to deliver


def test_a_lost_confirmation_of_the_farewell_is_repeated(parties):
    with parties.listen() as listener:
        dialled = parties.dial(listener.port)
        accepted = listener.accept()
        dialled.send(Blob(data=b"x"))
        assert accepted.receive(Blob).data == b"x"
        dialled.close()
        with pytest.raises(PeerError, match="closed the session"):
            accepted.receive(Blob)
        accepted.close()
        session = next(iter(listener._links))
        connection, received = parties_dialler(parties, listener.port).dial(
            Opening(session, resume=True, received=0), 2.0
        )
        connection.close()
        assert received == 2  # the message and the farewell


def parties_dialler(parties, port):
    from colonnade.transport.dial import Dialler
    from colonnade.transport.tls import load_endpoint

    label = PinnedPeer("label", parties.label.certificate)
    return Dialler((HOST, port), load_endpoint(parties.feature, [label], listens=False))


def test_a_listener_ends_sessions_that_nobody_accepted(parties):
    with parties.listen() as listener:
        dialled = parties.dial(listener.port)
    with pytest.raises(PeerError, match="'label' stopped listening"):
        dialled.receive(Blob)
    dialled.close()


def test_sessions_outlive_their_listener_but_cannot_be_resumed(parties):
    with parties.listen() as listener:
        dialled = parties.dial(listener.port, SHORT)
        accepted = listener.accept()
    dialled.send(Blob(data=b"x"))
    assert accepted.receive(Blob).data == b"x"
    accepted.drop_connection_for_tests()
    with pytest.raises(TransportError, match="no longer listens"):
        accepted.receive(Blob)
    accepted.close()
    dialled.abort("Stopped", "")


# Waits and bounds.


def test_a_missing_message_is_named(parties):
    with parties.session() as (dialled, accepted):
        with pytest.raises(TransportError, match=r"no test\.other/1 from 'label' within 0.1 s"):
            dialled.receive(Other, timeout_s=0.1)
        accepted.send(Other())  # a time-out is not the end
        assert dialled.receive(Other) == Other()


def test_an_oversized_message_is_refused_on_both_sides(parties):
    small = TransportLimits(connect_s=5, receive_s=5, max_message_bytes=1000)
    with parties.session(QUICK, small) as (dialled, accepted):
        with pytest.raises(UsageError, match=r"test\.blob/1 message of .* at most 1000"):
            accepted.send(Blob(data=bytes(1000)))
        dialled.send(Blob(data=bytes(3000)))
        with pytest.raises(PeerError, match=r"message of 30\d\d bytes; want at most 1000"):
            accepted.receive(Blob)
        with pytest.raises(PeerError, match=r"'label' ended the session: .* at most 1000"):
            dialled.receive(Blob)


def test_a_malformed_message_is_a_sticky_peer_fault(parties):
    with parties.session() as (dialled, accepted):
        dialled.send(Other())
        with pytest.raises(PeerError, match=r"got message 'test\.other/1'; want test\.blob/1"):
            accepted.receive(Blob)
        dialled.send(Blob(data=b"fine"))
        with pytest.raises(PeerError, match=r"test\.other"):
            accepted.receive(Blob)
        with pytest.raises(PeerError, match=r"test\.other"):
            accepted.send(Other())


def test_a_full_send_buffer_waits_for_the_peer_and_not_for_ever(parties):
    narrow = TransportLimits(
        connect_s=5,
        receive_s=0.5,
        dead_after_s=0.4,  # being held back is not being dead
        send_buffer_bytes=100_000,
        receive_buffer_bytes=100_000,
    )
    messages = blobs(1, 30, 1_000_000)
    with parties.session(narrow) as (dialled, accepted):
        (error,) = together(lambda: [dialled.send(message) for message in messages])
        assert isinstance(error, TransportError)
        assert "'label' took nothing more for 0.5 s" in str(error)
        sent = dialled.meter.sent_messages
        assert 1 < sent < len(messages)
        got = [accepted.receive(Blob, timeout_s=5) for _ in range(sent)]
        assert got == messages[:sent]
        dialled.send(Other())
        assert accepted.receive(Other) == Other()


def test_a_slow_line_is_not_a_missing_message(parties):
    limits = TransportLimits(connect_s=5, receive_s=0.8, reconnect_s=5, send_buffer_bytes=1000)
    message = Blob(data=bytes(4 * CHUNK_BYTES))
    with (
        parties.listen(limits) as listener,
        Relay(listener.port) as relay,
        parties.dial(relay.port, limits) as dialled,
        listener.accept() as accepted,
    ):
        relay.pause_s = 0.02
        start = time.monotonic()
        dialled.send(message)
        results = together(lambda: dialled.send(Other()), lambda: accepted.receive(Blob))
        assert results == [None, message]
        assert time.monotonic() - start > limits.receive_s
        relay.pause_s = 0


def test_a_peer_that_stops_ends_a_blocked_send_with_its_reason(parties):
    narrow = TransportLimits(
        connect_s=5, receive_s=10, send_buffer_bytes=1000, receive_buffer_bytes=1000
    )
    with parties.session(narrow, QUICK) as (dialled, accepted):

        def send_for_ever():
            while True:
                dialled.send(Blob(data=bytes(200_000)))

        def stop():
            accepted.receive(Blob)
            accepted.abort("UsageError", "the columns do not fit")

        start = time.monotonic()
        error, _ = together(send_for_ever, stop)
        assert isinstance(error, PeerError)
        assert "the other side stopped (UsageError): the columns do not fit" in str(error)
        assert time.monotonic() - start < 5
