"""The role runner: which reason the other side gets."""

import pytest

from colonnade.errors import (
    DataError,
    IntegrityError,
    PeerAbortedError,
    PeerError,
    StorageError,
    TransportError,
    UsageError,
)
from colonnade.transport import memory_pair
from colonnade.wire import Abort, RecordingChannel
from colonnade.wire.hello import Hello
from colonnade.wire.runner import run_role


def heard(error):
    """Fail with `error` on one side; return the abort that the other side hears."""
    label, feature = memory_pair(timeout_s=5)

    def role(channel):
        raise error

    with pytest.raises(type(error)) as caught:
        run_role(RecordingChannel(label), role)
    assert caught.value is error
    return feature.receive(Abort)


def test_the_result_is_returned_and_the_channel_stays_open():
    label, feature = memory_pair(timeout_s=5)
    assert run_role(label, lambda channel: channel.remote) == "feature"
    label.send(Hello(fields={}))
    assert feature.receive(Hello).fields == {}


@pytest.mark.parametrize("kind", [IntegrityError, PeerError, TransportError])
def test_a_reason_written_to_be_shown_is_shown(kind):
    assert heard(kind("got 1; want 2")) == Abort(kind=kind.__name__, reason="got 1; want 2")


def test_the_text_of_a_data_error_stays_here():
    abort = heard(DataError("people.csv, row 7: got 'Jane Doe'; want a number"))
    assert abort.kind == "DataError"
    assert "Jane" not in abort.reason
    assert "see its log" in abort.reason


def test_the_text_of_a_usage_error_stays_here():
    abort = heard(UsageError("the job asks for 'incom'; did you mean 'income'?"))
    assert abort.kind == "UsageError"
    assert "income" not in abort.reason
    assert "see its log" in abort.reason


def test_the_text_of_a_storage_error_stays_here():
    abort = heard(StorageError("cannot read or write /home/jane/runs: disk full"))
    assert abort.kind == "StorageError"
    assert "jane" not in abort.reason
    assert "see its log" in abort.reason


def test_the_text_of_an_unexpected_error_stays_here():
    abort = heard(ValueError("secret 42"))
    assert abort == Abort(kind="InternalError", reason="internal error at 'label'; see its log")


def test_an_operator_who_stops_it_is_named_as_the_reason():
    abort = heard(KeyboardInterrupt())
    assert abort == Abort(kind="Stopped", reason="'label' was stopped by its operator")


def test_that_a_peer_stopped_is_said_again_with_its_kind():
    label, feature = memory_pair(timeout_s=5)
    feature.send(Abort(kind="Stopped", reason="enough"))
    for _ in range(2):
        with pytest.raises(PeerAbortedError, match="enough") as caught:
            label.receive(Hello)
        assert caught.value.kind == "Stopped"
    with pytest.raises(PeerAbortedError, match="enough"):
        label.send(Hello(fields={}))


def test_a_peer_that_stopped_first_is_not_answered_and_its_reason_is_raised():
    label, feature = memory_pair(timeout_s=5)
    feature.send(Abort(kind="UsageError", reason="enough"))
    with pytest.raises(PeerError, match="enough"):
        run_role(label, lambda channel: channel.receive(Hello))
    assert Abort.TAG not in label.meter.outbox
