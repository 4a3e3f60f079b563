"""The MatMul roles against peers and callers that break the protocol."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from matmul_peers import (
    PLAN,
    ROWS,
    WIDTH,
    X_A,
    X_B,
    agreed_feature,
    agreed_label,
    check_refused,
)

from colonnade.errors import ColonnadeError, DataError, UsageError
from colonnade.protocol.matmul import FeatureMatMul, LabelMatMul
from colonnade.protocol.matmul_messages import (
    Derivatives,
    DiscardCall,
    FinishCall,
    ForwardCall,
    ForwardShares,
    MaskedGradient,
    UpdateCall,
)
from colonnade.protocol.matmul_steps import KeptProducts
from colonnade.ring import Z128, FixedMatrix
from colonnade.wire.channel import Channel
from matmul_runs import (
    Side,
    run_sides,
    settings,
)

NO_COLUMNS = FixedMatrix.encode(np.zeros((ROWS, 0)), [], [])
FIRST, SECOND = np.arange(4), np.arange(4, 8)
DZ = np.full((4, 1), 0.1)


def answering(channel: Channel) -> FeatureMatMul:
    """An honest feature party that gives the rows in two batches, in turn."""
    layer = agreed_feature(channel)
    layer.follow(lambda call: (X_A.take(r := (SECOND, FIRST)[call.call % 2]), r))
    return layer


def meet(
    label: Callable[[LabelMatMul], None], *, engine: str = "paillier", x_b: FixedMatrix = X_B
) -> tuple[Side, Side]:
    """Agree honestly, then let `label` do to an honest feature party what it wants."""
    made = settings(PLAN, engine=engine)

    def label_role(channel: Channel) -> Any:
        layer = agreed_label(channel, made, x_b)
        label(layer)
        return layer

    return run_sides(label_role, answering)


def send(*messages: Any) -> Callable[[LabelMatMul], None]:
    def role(layer: LabelMatMul) -> None:
        for message in messages:
            layer._context.channel.send(message)

    return role


def call(
    number: int = 1, mode: str = "train", rows: int = 4, new_rows: int = 4, **more: Any
) -> Any:
    fields = {"kept": b"", "payload": b""} | more
    return ForwardCall(call=number, mode=mode, rows=rows, new_rows=new_rows, **fields)


# -- a label party that breaks the protocol --------------------------------------------------------

BAD_FIRST_MESSAGES = {
    "call number 2": (call(2), "got forward call 2 in mode 'train'; want call 1"),
    "call number 0": (call(0), "got forward call 0"),
    "unknown mode": (call(mode="peek"), "in mode 'peek'; want call 1 in one of"),
    "long mode": (call(mode="m" * 99), f"in mode '{'m' * 20}'"),
    "other rows": (call(rows=3), "asks for 3 rows; want 4"),
    "negative rows": (call(rows=-4), "asks for -4 rows; want 4"),
    "kept rows differ": (call(new_rows=3), "brings X_B V_B for 3 rows; this side lacks 4"),
    "short product": (call(payload=b"\1" * WIDTH), f"got {WIDTH} bytes for X_B V_B"),
    "zero ciphertexts": (call(payload=bytes(2 * WIDTH)), "not coprime"),
    "ciphertexts out of range": (call(payload=b"\xff" * 2 * WIDTH), "out of range"),
    "backward without forward": (Derivatives(call=1, payload=b""), "for call 1, which is not open"),
    "discard without forward": (DiscardCall(call=7), "for call 7, which is not open"),
    "update without gradient": (UpdateCall(payload=b""), "before the backward of every training"),
    "finish with other updates": (FinishCall(updates=1), "made 1 updates, this side 0"),
    "a message of the other side": (
        ForwardShares(call=1, masked=b"", activation_share=b""),
        "got message 'matmul.forward_shares/1'; want matmul.forward_call/1 or",
    ),
}


@pytest.mark.parametrize("case", BAD_FIRST_MESSAGES)
def test_the_feature_party_refuses(case):
    message, wanted = BAD_FIRST_MESSAGES[case]
    _, feature = meet(send(message))
    check_refused(feature, wanted)


def test_kept_shares_of_other_rows_are_refused():
    def forward_of_other_rows(layer: LabelMatMul) -> None:
        layer.forward(X_B.take(FIRST), SECOND, "train")  # as many rows, other positions

    assert len(FIRST) == len(SECOND)
    _, feature = meet(forward_of_other_rows)
    check_refused(feature, "the two sides keep X_B V_B of different rows")


def after_a_forward(*messages: Any) -> Callable[[LabelMatMul], None]:
    def role(layer: LabelMatMul) -> None:
        layer.forward(X_B.take(FIRST), FIRST, "train")
        send(*messages)(layer)

    return role


BAD_LATER_MESSAGES = {
    "call number 1 again": ([call(1)], "got forward call 1 in mode 'train'; want call 2"),
    "update with an open call": ([UpdateCall(payload=b"")], "1 calls are open"),
    "short derivatives": ([Derivatives(call=1, payload=b"\1")], "got 1 bytes for X_A^T dZ"),
    "derivatives out of range": (
        [Derivatives(call=1, payload=b"\xff" * 4 * WIDTH)],
        "out of range in X_A^T dZ",
    ),
    "zero derivatives": ([Derivatives(call=1, payload=bytes(4 * WIDTH))], "not coprime"),
    "finish with an open call": ([FinishCall(updates=0)], "finished with 1 calls open"),
    "discard twice": ([DiscardCall(call=1), DiscardCall(call=1)], "call 1, which is not open"),
}


@pytest.mark.parametrize("case", BAD_LATER_MESSAGES)
def test_after_a_forward_the_feature_party_refuses(case):
    messages, wanted = BAD_LATER_MESSAGES[case]
    _, feature = meet(after_a_forward(*messages))
    check_refused(feature, wanted)


def test_a_second_backward_and_a_bad_refresh_are_refused():
    def second_backward(layer: LabelMatMul) -> None:
        number, _ = layer.forward(X_B.take(FIRST), FIRST, "train")
        layer.backward(number, DZ)
        send(Derivatives(call=number, payload=b""))(layer)

    def bad_refresh(layer: LabelMatMul) -> None:
        number, _ = layer.forward(X_B.take(FIRST), FIRST, "train")
        layer.backward(number, DZ)
        send(UpdateCall(payload=bytes(3 * WIDTH)))(layer)

    check_refused(meet(second_backward)[1], "backward or discard for call 1, which is not open")
    check_refused(meet(bad_refresh)[1], "not a ciphertext in X_A V_A")


def test_an_update_while_another_call_is_open_is_refused():
    def role(layer: LabelMatMul) -> None:
        number, _ = layer.forward(X_B.take(FIRST), FIRST, "train")
        layer.backward(number, DZ)
        layer.forward(X_B.take(SECOND), SECOND, "train")
        send(UpdateCall(payload=b""))(layer)

    check_refused(meet(role)[1], "before the backward of every training call; 1 calls are open")


def test_a_product_for_rows_that_are_kept_already_is_refused():
    def role(layer: LabelMatMul) -> None:
        for rows in (FIRST, SECOND):
            layer.forward(X_B.take(rows), rows, "evaluate")
        send(call(3, "evaluate", new_rows=0, payload=b"\1"))(layer)

    check_refused(meet(role)[1], "brings a product for no rows")


def test_a_label_party_without_features_cannot_send_products_of_them():
    for message in (call(new_rows=4), call(new_rows=0, payload=b"\1")):
        check_refused(meet(send(message), x_b=NO_COLUMNS)[1], "the label party has none")


def test_training_batches_above_the_agreed_size_are_refused():
    def feature_role(channel: Channel) -> None:
        layer = agreed_feature(channel, engine="insecure_plain")
        layer.follow(lambda call: (X_A, None))

    def label_role(channel: Channel) -> None:
        layer = agreed_label(channel, settings(PLAN))
        send(call(rows=8, new_rows=8))(layer)

    _, feature = run_sides(label_role, feature_role)
    check_refused(feature, "call 1 has 8 rows; want 4")


# -- a feature party that breaks the protocol ------------------------------------------------------


def scripted_feature(*messages: Any) -> Callable[[Channel], None]:
    """Agrees honestly, then answers each call with the next of the given messages."""

    def role(channel: Channel) -> None:
        agreed_feature(channel)
        for message in messages:
            channel.receive(ForwardCall, Derivatives)
            channel.send(message)

    return role


def one_step(channel: Channel) -> None:
    layer = agreed_label(channel, settings(PLAN, engine="paillier"))
    number, _ = layer.forward(X_B.take(FIRST), FIRST, "train")
    layer.backward(number, DZ)


def shares(number: int = 1, masked: bytes = b"", share: bytes = bytes(32)) -> ForwardShares:
    return ForwardShares(call=number, masked=masked, activation_share=share)


BAD_ANSWERS = {
    "shares of another call": (shares(2), "got shares of call 2; want 1"),
    "short activations": (shares(share=bytes(31)), "got 31 bytes for Z'_A; want 32"),
    "long activations": (shares(share=bytes(33)), "got 33 bytes for Z'_A; want 32"),
    "short product": (shares(masked=b"\1"), "got 1 bytes for X_A V_A"),
    "zero ciphertexts": (shares(masked=bytes(2 * WIDTH)), "not coprime"),
    "ciphertexts out of range": (shares(masked=b"\xff" * 2 * WIDTH), "out of range in X_A V_A"),
    "a message of the other side": (
        DiscardCall(call=1),
        "got message 'matmul.discard/1'; want matmul.forward_shares/1",
    ),
}


@pytest.mark.parametrize("case", BAD_ANSWERS)
def test_the_label_party_refuses(case):
    message, wanted = BAD_ANSWERS[case]
    label, _ = run_sides(one_step, scripted_feature(message))
    check_refused(label, wanted)


def tampering_feature(change: Callable[[Any], Any]) -> Callable[[Channel], None]:
    """An honest feature party whose messages pass through `change`."""

    def role(channel: Channel) -> None:
        layer = agreed_feature(channel)
        honest = channel.send
        channel.send = lambda message: honest(change(message))
        layer.follow(lambda call: (X_A.take(FIRST), FIRST))

    return role


def changed(kind: type, **fields: Any) -> Callable[[Any], Any]:
    def change(message: Any) -> Any:
        if not isinstance(message, kind):
            return message
        values = {name: getattr(message, name) for name in message.__struct_fields__}
        return kind(**(values | fields))

    return change


def test_a_gradient_of_another_call_or_length_is_refused():
    for fields, wanted in (
        ({"call": 2}, "got the gradient of call 2; want 1"),
        ({"payload": b"\1"}, "got 1 bytes for X_A^T dZ"),
    ):
        label, _ = run_sides(one_step, tampering_feature(changed(MaskedGradient, **fields)))
        check_refused(label, wanted)


def test_an_activation_out_of_its_range_is_refused_without_its_value():
    far = (1 << 62).to_bytes(8, "little") * 4
    label, _ = run_sides(one_step, tampering_feature(changed(ForwardShares, activation_share=far)))
    check_refused(label, "an activation left its range of +-65536: training diverged")


def test_bits_above_the_last_slot_are_refused():
    """A ciphertext may be well formed and still hold what no honest sender makes."""

    def oversized(message: Any) -> Any:
        if not isinstance(message, ForwardShares):
            return message
        n = key["n"]
        numbers = [(1 + (n - 1) * n) % (n * n)] * (len(message.masked) // WIDTH)
        masked = b"".join(c.to_bytes(WIDTH, "little") for c in numbers)
        return changed(ForwardShares, masked=masked)(message)

    key: dict[str, int] = {}

    def label_role(channel: Channel) -> None:
        layer = agreed_label(channel, settings(PLAN, engine="paillier"))
        key["n"] = layer._context.engine._own.space.key.n
        number, _ = layer.forward(X_B.take(FIRST), FIRST, "train")
        layer.backward(number, DZ)

    label, _ = run_sides(label_role, tampering_feature(oversized))
    check_refused(label, "bits above its last slot")


# -- callers that use the label party's role wrongly -----------------------------------------------


def test_wrong_uses_at_the_label_party_are_usage_errors_and_leave_the_session_usable():
    seen: list[str] = []

    def refused(action: Callable[[], Any], kind: type[ColonnadeError], message: str) -> None:
        with pytest.raises(kind, match=message):
            action()
        seen.append(message)

    def role(layer: LabelMatMul) -> None:
        x = X_B.take(FIRST)
        refused(lambda: layer.forward(x, FIRST, "peek"), UsageError, "got mode 'peek'")
        refused(lambda: layer.forward(X_B, None, "train"), UsageError, "a batch of 8 rows")
        refused(lambda: layer.forward(X_B.take(FIRST[:0]), None, "train"), UsageError, "0 rows")
        refused(layer.update, UsageError, "no gradient to step with")
        number, _ = layer.forward(x, FIRST, "train")
        assert layer.open_calls == (number,)
        refused(layer.update, UsageError, "neither backward nor discard")
        refused(layer.finish, UsageError, "neither backward nor discard")
        refused(lambda: layer.backward(number, DZ * 9), DataError, "want at most 1")
        refused(lambda: layer.backward(number, DZ * np.nan), DataError, "not finite")
        layer.backward(number, DZ)  # still open after the bad derivatives
        refused(lambda: layer.backward(number, DZ), UsageError, "call 1 is not open")
        refused(lambda: layer.discard(number), UsageError, "call 1 is not open")
        layer.update()
        number, _ = layer.forward(X_B.take(SECOND), SECOND, "train")
        layer.discard(number)
        layer.finish()

    label, feature = meet(role)
    assert (label.error, feature.error) == (None, None)
    assert feature.result.updates == 1
    assert len(seen) == 10


def test_evaluations_and_predictions_leave_no_call_open():
    def role(layer: LabelMatMul) -> None:
        for rows, mode in ((FIRST, "evaluate"), (SECOND, "predict")):
            number, _ = layer.forward(X_B.take(rows), rows, mode)
            with pytest.raises(UsageError, match="is not open"):
                layer.backward(number, DZ)
        layer.finish()

    label, feature = meet(role)
    assert (label.error, feature.error) == (None, None)


def test_kept_products_know_their_rows():
    kept = KeptProducts(4, 1)
    rows = np.array([3, 1])
    kept.store(rows, Z128.from_ints([30, 10], (2, 1)))
    assert kept.missing(np.array([0, 1, 2, 3])).tolist() == [0, 2]
    assert kept.get(rows[::-1]).to_ints() == [10, 30]
    with pytest.raises(ColonnadeError, match="missing on this side"):
        kept.get(np.array([0]))
    for outside in (-1, 4):
        with pytest.raises(UsageError, match=r"outside 0 \.\. 3"):
            kept.missing(np.array([outside]))
