"""What every channel promises, checked on each implementation."""

import contextlib
import threading
from typing import ClassVar

import numpy as np
import pytest

from colonnade.errors import ColonnadeError, PeerError, TransportError
from colonnade.party.certificates import make_identity
from colonnade.transport import Listener, PinnedPeer, TransportLimits, connect, memory_pair
from colonnade.wire import (
    Abort,
    Channel,
    Message,
    RecordingChannel,
    array_from_bytes,
    array_to_bytes,
)
from colonnade.wire.hello import exchange_hello
from colonnade.wire.runner import run_role


class Number(Message, frozen=True, kw_only=True):
    TAG: ClassVar[str] = "contract.number/1"
    LEAKS: ClassVar[str] = "a number"

    value: int


class Tensor(Message, frozen=True, kw_only=True):
    TAG: ClassVar[str] = "contract.tensor/1"
    LEAKS: ClassVar[str] = "a tensor"

    data: bytes


@contextlib.contextmanager
def in_memory(_):
    yield memory_pair("label", "feature", timeout_s=5)


@contextlib.contextmanager
def over_tls(folder):
    limits = TransportLimits(connect_s=5, receive_s=5, reconnect_s=2, dead_after_s=5)
    label, feature = (make_identity(name, folder) for name in ("label", "feature"))
    pinned = [PinnedPeer(one.name, one.certificate) for one in (label, feature)]
    with Listener(("127.0.0.1", 0), label, [pinned[1]], limits) as listener:
        dialled = connect(("127.0.0.1", listener.port), feature, pinned[0], limits)
        accepted = listener.accept()
        try:
            yield accepted, dialled
        finally:
            for channel in (accepted, dialled):
                channel.abort("Stopped", "the test is over")


@pytest.fixture(params=[in_memory, over_tls], ids=["memory", "tls"])
def pair(request, tmp_path):
    """(label's end, feature's end)."""
    with request.param(tmp_path) as channels:
        yield channels


def run_both(pair, first, second):
    """Run a role on each end in its own thread; return results or errors."""
    outcome = [None, None]

    def run(index, role):
        try:
            outcome[index] = run_role(pair[index], role)
        except ColonnadeError as error:
            outcome[index] = error

    threads = [threading.Thread(target=run, args=args) for args in enumerate((first, second))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcome


def test_it_is_a_channel_with_names(pair):
    label, feature = pair
    assert isinstance(label, Channel)
    assert (label.local, label.remote) == ("label", "feature")
    assert (feature.local, feature.remote) == ("feature", "label")


def test_messages_arrive_in_order_whatever_their_size(pair):
    label, feature = pair
    sent = [Tensor(data=bytes([size % 251]) * size) for size in (0, 1, 70_000, 2_100_000, 3)]
    for message in sent:
        label.send(message)
    feature.send(Number(value=1))
    assert [feature.receive(Tensor) for _ in sent] == sent
    assert label.receive(Number) == Number(value=1)


def test_both_sides_may_send_much_before_either_receives(pair):
    big = Tensor(data=bytes(5_000_000))

    def role(channel):
        for _ in range(3):
            channel.send(big)
        return all(channel.receive(Tensor) == big for _ in range(3))

    assert run_both(pair, role, role) == [True, True]


def test_the_meter_counts_message_bytes_and_rounds(pair):
    label, feature = pair
    for _ in range(3):
        label.send(Number(value=5))
        feature.receive(Number)
        feature.send(Number(value=6))
        label.receive(Number)
    size = 1 + len(Number.TAG) + len(b"\x81\xa5value\x05")
    assert (label.meter.sent_bytes, label.meter.received_bytes) == (3 * size, 3 * size)
    assert (label.meter.sent_messages, feature.meter.received_messages) == (3, 3)
    assert (label.meter.rounds, feature.meter.rounds) == (3, 2)
    row = feature.meter.outbox[Number.TAG]
    assert (row.leaks, row.count, row.bytes) == ("a number", 3, 3 * size)


def test_one_of_several_types_may_be_awaited(pair):
    label, feature = pair
    label.send(Number(value=3))
    assert feature.receive(Tensor, Number) == Number(value=3)


def test_the_wrong_type_is_a_sticky_peer_fault(pair):
    label, feature = pair
    label.send(Number(value=3))
    label.send(Tensor(data=b""))
    with pytest.raises(PeerError, match=r"got message 'contract\.number/1'; want contract\.tensor"):
        feature.receive(Tensor)
    for act in (lambda: feature.receive(Tensor), lambda: feature.send(Number(value=1))):
        with pytest.raises(PeerError, match=r"contract\.number/1"):
            act()


def test_a_missing_message_is_named_and_the_session_goes_on(pair):
    label, feature = pair
    with pytest.raises(TransportError, match=r"no contract\.number/1 from 'feature' within 0.05 s"):
        label.receive(Number, timeout_s=0.05)
    feature.send(Number(value=2))
    assert label.receive(Number).value == 2


def test_close_delivers_first_and_then_ends_the_other_sides_wait(pair):
    label, feature = pair
    label.send(Number(value=2))
    thread = threading.Thread(target=label.close)
    thread.start()
    assert feature.receive(Number).value == 2
    for _ in range(2):
        with pytest.raises(PeerError, match=r"'label' closed the session; contract\.number/1 was"):
            feature.receive(Number)
    thread.join()
    label.close()
    with pytest.raises(TransportError, match="channel is closed"):
        label.send(Number(value=1))
    feature.close()


def test_an_abort_arrives_with_its_reason(pair):
    label, feature = pair
    label.send(Abort(kind="UsageError", reason="too few rows"))
    with pytest.raises(PeerError, match=r"other side stopped \(UsageError\): too few rows"):
        feature.receive(Number)


def test_a_failing_role_tells_the_other_side_why(pair):
    def fails(channel):
        channel.receive(Number)
        raise PeerError("got 3 rows; want 4")

    def waits(channel):
        channel.send(Number(value=1))
        channel.receive(Tensor)

    mine, theirs = run_both(pair, fails, waits)
    assert str(mine) == "got 3 rows; want 4"
    assert isinstance(theirs, PeerError)
    assert "stopped (PeerError): got 3 rows; want 4" in str(theirs)


def test_hello_and_a_tensor_pass_through_a_recording_channel(pair):
    array = np.arange(12, dtype=np.int64).reshape(3, 4)

    def sends(channel):
        exchange_hello(channel, {"role": "label"})
        channel.send(Tensor(data=array_to_bytes(array)))

    def receives(channel):
        recording = RecordingChannel(channel)
        exchange_hello(recording, {"role": "feature"})
        got = array_from_bytes(recording.receive(Tensor).data, np.int64, (3, 4), "the tensor")
        return got, [type(message).TAG for message in recording.view]

    _, (got, tags) = run_both(pair, sends, receives)
    assert np.array_equal(got, array)
    assert tags == ["wire.hello/1", "contract.tensor/1"]


def test_a_mismatched_hello_ends_both_sides_with_every_field(pair):
    fields = [{"role": "label", "key_bits": "2048", "job": "a"}, {"role": "label", "job": "b"}]
    roles = [lambda channel, own=own: exchange_hello(channel, own) for own in fields]
    for error in run_both(pair, *roles):
        assert isinstance(error, ColonnadeError)
        for part in ("role", "key_bits", "job: '", "'2048'", "(not stated)"):
            assert part in str(error)
