"""Agreeing on a MatMul layer with a peer that proposes or answers something else."""

from typing import Any

import pytest
from matmul_peers import BITS, PLAN, ROWS, WIDTH, agreed_feature, agreed_label, check_refused

from colonnade.errors import UsageError
from colonnade.protocol.agreement import (
    KeyChoice,
    LayerAnswer,
    LayerProposal,
    LayerSettings,
)
from colonnade.protocol.matmul_messages import (
    WeightsPublished,
)
from colonnade.protocol.matmul_steps import FeatureState
from colonnade.ring import Z128
from colonnade.wire.channel import Channel
from matmul_runs import (
    run_sides,
    settings,
)
from paillier_by_hand import small_key

APPROVED = settings(PLAN, engine="insecure_plain")
OTHER = {
    "outputs": 2,
    "batch_rows": 5,
    "learning_rate": 0.2,
    "momentum": 0.8,
    "weight_decay": 0.1,
    "engine": "paillier",
    "derivative_bound": 2.0,
    "activation_bits": 17,
    "mask_bits": 65,
    "initial_scale": 0.2,
}


@pytest.mark.parametrize("name", OTHER)
def test_a_proposal_that_differs_from_the_approved_settings_is_refused(name):
    proposed = LayerSettings(**{**vars_of(APPROVED), name: OTHER[name]})
    label, feature = run_sides(
        lambda channel: agreed_label(channel, proposed),
        lambda channel: agreed_feature(channel, want=APPROVED),
    )
    wanted = f"{name}: got {OTHER[name]}, want {getattr(APPROVED, name)}"
    check_refused(feature, f"differs from the approved job: {wanted}")
    check_refused(label, "closed the session; layer.answer/1 was expected")
    assert feature.meter.sent_bytes == 0


def vars_of(made: LayerSettings) -> dict[str, Any]:
    return {name: getattr(made, name) for name in LayerSettings.__dataclass_fields__}


def test_every_setting_is_compared():
    assert OTHER.keys() == LayerSettings.__dataclass_fields__.keys()
    assert OTHER.keys() < set(LayerProposal.__struct_fields__)


def proposal(**changes: Any) -> LayerProposal:
    columns = {"scale_bits": bytes([0, 16]), "bounds": bytes([1, 0, 0, 0, 0, 0, 1, 0])}
    fields = vars_of(settings(PLAN, engine="paillier")) | {
        "kept_rows": ROWS,
        "expected_calls": 4,
        **columns,
        "modulus": modulus(small_key(BITS).public.n),
    }
    return LayerProposal(**(fields | changes))


def modulus(n: int) -> bytes:
    return n.to_bytes((n.bit_length() + 7) // 8, "little")


BAD_PROPOSALS = {
    "unknown engine": ({"engine": "magic"}, "the proposed layer cannot be: got engine 'magic'"),
    "no outputs": ({"outputs": 0}, "cannot be: got 0 outputs"),
    "no rows": ({"batch_rows": 0}, "batches of 0 rows"),
    "a learning rate of zero": ({"learning_rate": 0.0}, "cannot be: got learning rate 0.0"),
    "a learning rate that is no number": ({"learning_rate": float("nan")}, "learning rate nan"),
    "an infinite learning rate": ({"learning_rate": float("inf")}, "the constant inf"),
    "a momentum of one": ({"momentum": 1.0}, "momentum 1.0"),
    "a negative decay": ({"weight_decay": -0.1}, "decay -0.1"),
    "a large initial scale": ({"initial_scale": 2.0}, "initial_scale 2.0"),
    "a derivative bound of zero": ({"derivative_bound": 0.0}, "derivative bound of 0.0"),
    "masks too narrow": ({"mask_bits": 10}, "masks of 10 bits; this side wants 64"),
    "masks narrower than asked": ({"mask_bits": 63}, "masks of 63 bits; this side wants 64"),
    "as many outputs as columns": ({"outputs": 3}, "got 3 outputs; this side allows 2"),
    "masks too wide for integer shares": ({"mask_bits": 120}, "an integer share needs"),
    "outputs without end": ({"outputs": 1 << 30}, "this side allows 2"),
    "batches without end": ({"batch_rows": 1 << 40}, "want 1 .. 65536 and 1 .. 1048576"),
    "activations beyond the ring": ({"activation_bits": 100}, "they must fit Z_2^64"),
    "other rows": ({"kept_rows": ROWS + 1}, "got a layer over 9 rows; want 8"),
    "an unknown scale": ({"scale_bits": bytes([0, 5])}, "column 1: got scale 5"),
    "a bound of zero": ({"bounds": bytes(8)}, "column 0: got scale 0 and bound 0"),
    "a bound too large": ({"bounds": b"\xff" * 8}, "column 0: got scale 0 and bound 4294967295"),
    "bounds of another length": ({"bounds": bytes(4)}, "got 4 bytes for column ranges; want 8"),
    "too many columns": ({"scale_bits": bytes((1 << 20) + 1)}, "got 1048577 columns"),
    "no key": ({"modulus": b""}, "got a modulus of 0 bytes"),
    "a long key": ({"modulus": bytes(1025)}, "got a modulus of 1025 bytes"),
    "a short key": ({"modulus": modulus(small_key(256).public.n)}, "a key of 256 bits; want 512"),
    "an even key": (
        {"modulus": modulus(small_key(BITS).public.n - 1)},
        "a factor below 65536",
    ),
    "a lower protection": ({"engine": "insecure_plain"}, "this side wants 'paillier'"),
}


@pytest.mark.parametrize("case", BAD_PROPOSALS)
def test_bad_proposals_are_refused(case):
    changes, wanted = BAD_PROPOSALS[case]
    _, feature = run_sides(lambda channel: channel.send(proposal(**changes)), agreed_feature)
    check_refused(feature, wanted)


def test_a_label_party_without_features_can_be_refused():
    _, feature = run_sides(
        lambda channel: channel.send(proposal(scale_bits=b"", bounds=b"")),
        lambda channel: agreed_feature(channel, min_label_columns=1),
    )
    check_refused(feature, "has 0 feature columns; this side wants at least 1")


def test_limits_that_a_layer_cannot_have_fail_at_the_agreement_even_where_allowed():
    for changes, wanted in (
        ({"outputs": 1 << 30}, "want 1 .. 65536"),
        ({"mask_bits": 10}, "masks of 10 statistical bits"),
    ):
        _, feature = run_sides(
            lambda channel, changes=changes: channel.send(proposal(**changes)),
            lambda channel: agreed_feature(channel, max_outputs=1 << 40, min_mask_bits=0),
        )
        check_refused(feature, wanted)


def test_a_key_without_an_engine_for_it_is_refused():
    _, feature = run_sides(
        lambda channel: channel.send(proposal(engine="insecure_plain")),
        lambda channel: agreed_feature(channel, engine="insecure_plain"),
    )
    check_refused(feature, "which has none")


def test_the_label_partys_column_count_is_what_was_approved():
    _, feature = run_sides(
        lambda channel: channel.send(proposal()),
        lambda channel: agreed_feature(channel, label_columns=0),
    )
    check_refused(feature, "now has 2 feature columns; 0 were approved")


def test_our_own_key_as_the_peers_is_refused(monkeypatch):
    monkeypatch.setattr(KeyChoice, "generate", lambda self: small_key(BITS))
    _, feature = run_sides(lambda channel: channel.send(proposal()), agreed_feature)
    check_refused(feature, "got our own public key back")


def answer(**changes: Any) -> LayerAnswer:
    fields = {
        "scale_bits": bytes([0]),
        "bounds": bytes([3, 0, 0, 0]),
        "modulus": modulus(small_key(BITS).public.n),
    }
    return LayerAnswer(**(fields | changes))


BAD_ANSWERS_TO_A_PROPOSAL = {
    "no columns": ({"scale_bits": b"", "bounds": b""}, "the feature party offers no columns"),
    "an unknown scale": ({"scale_bits": bytes([7])}, "the other side's columns: column 0"),
    "a short key": ({"modulus": modulus(small_key(256).public.n)}, "a key of 256 bits; want 512"),
    "no key": ({"modulus": b""}, "got a modulus of 0 bytes"),
}


@pytest.mark.parametrize("case", BAD_ANSWERS_TO_A_PROPOSAL)
def test_bad_answers_to_a_proposal_are_refused(case):
    changes, wanted = BAD_ANSWERS_TO_A_PROPOSAL[case]

    def feature(channel: Channel) -> None:
        channel.receive(LayerProposal)
        channel.send(answer(**changes))

    label, _ = run_sides(
        lambda channel: agreed_label(channel, settings(PLAN, engine="paillier")), feature
    )
    check_refused(label, wanted)


def test_bad_published_weights_are_refused_on_both_sides():
    def label_role(channel: Channel) -> None:
        channel.send(proposal())
        channel.receive(LayerAnswer)
        channel.send(WeightsPublished(payload=b"\xff" * 3 * WIDTH))

    def feature_role(channel: Channel) -> None:
        channel.receive(LayerProposal)
        channel.send(answer())
        channel.send(WeightsPublished(payload=b"short"))

    check_refused(run_sides(label_role, agreed_feature)[1], "out of range in X_A V_A")
    label, _ = run_sides(
        lambda channel: agreed_label(channel, settings(PLAN, engine="paillier")), feature_role
    )
    check_refused(label, "got 5 bytes for X_B V_B")


def test_shares_of_another_model_are_refused():
    state = FeatureState(Z128.zeros((9, 1)), Z128.zeros((4, 1)), Z128.zeros((9, 1)))
    _, feature = run_sides(
        lambda channel: agreed_label(channel, settings(PLAN)),
        lambda channel: agreed_feature(channel, engine="insecure_plain", state=state),
    )
    check_refused(feature, "got U_A of shape (9, 1); want (3, 1)", UsageError)


def test_key_sizes_below_2048_have_to_be_asked_for_by_name():
    with pytest.raises(UsageError, match="key size of 1024"):
        KeyChoice(1024)
    assert (KeyChoice().used_bits, KeyChoice(insecure_bits=512).used_bits) == (2048, 512)
    assert "p=" not in repr(KeyChoice(insecure_bits=512))
