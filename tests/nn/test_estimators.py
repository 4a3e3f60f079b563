"""Both sides' estimators over a memory pair."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from colonnade.errors import DataError, PeerError, UsageError
from colonnade.nn import estimator_calls
from colonnade.nn.estimator_calls import CallNonce, FitCall, OutputCount
from colonnade.nn.logistic import FeatureContributor, VerticalLogisticRegression, encode_matrix
from colonnade.nn.plain import sigmoid
from colonnade.protocol.agreement import LayerSettings
from colonnade.protocol.psi import alignment_context
from colonnade.protocol.psi.messages import Points
from colonnade.ring import WEIGHT_BITS
from colonnade.simulation import run_pair
from colonnade.wire.channel import Channel
from matmul_runs import Side, run_sides

RNG = np.random.default_rng(9)
ROWS = 90
X_A, X_B = RNG.normal(size=(ROWS, 4)).clip(-8, 8), RNG.normal(size=(ROWS, 3)).clip(-8, 8)
SCORE = X_A @ [2.0, -1.0, 1.0, 0.5] + X_B @ [1.0, 1.0, -2.0]
Y = np.where(SCORE > 0.2, "good", "bad")
NEW_A, NEW_B = (RNG.normal(size=(20, k)).clip(-8, 8) for k in (4, 3))


def label_party(**changes: Any) -> VerticalLogisticRegression:
    options = {"epochs": 6, "batch_size": 16, "learning_rate": 0.2, "engine": "insecure_plain"}
    return VerticalLogisticRegression(insecure_key_bits=512, **(options | changes))


def feature_party(**changes: Any) -> FeatureContributor:
    # Four features and six epochs: more outputs per row than the default allows.
    options = {"engine": "insecure_plain", "max_outputs_per_row": 100}
    return FeatureContributor(insecure_key_bits=512, **(options | changes))


def succeeded(sides: tuple[Side, Side]) -> tuple[Any, Any]:
    label, feature = sides
    assert (label.error, feature.error) == (None, None)
    return label.result, feature.result


def fitted(
    engine: str = "insecure_plain", **changes: Any
) -> tuple[VerticalLogisticRegression, FeatureContributor]:
    return succeeded(
        run_sides(
            lambda channel: label_party(engine=engine, **changes).fit(X_B, Y, channel=channel),
            lambda channel: feature_party(engine=engine).fit(X_A, channel=channel),
        )
    )


def opened(label: VerticalLogisticRegression, feature: FeatureContributor) -> list[np.ndarray]:
    w_a = feature.state_.u_a + label.state_.v_a
    w_b = label.state_.u_b + feature.state_.decay.apply(feature.state_.v_b)
    return [w.to_float(WEIGHT_BITS) for w in (w_a, w_b)]


@pytest.mark.parametrize("engine", ["insecure_plain", "paillier"])
def test_fit_predict_and_score(engine):
    label, feature = fitted(engine=engine, weight_decay=0.001)
    assert label.classes_.tolist() == ["bad", "good"]
    assert (label.n_features_in_, feature.n_features_in_) == (3, 4)
    assert len(label.history_.epoch_loss) == 6
    assert label.history_.epoch_loss[-1] < label.history_.epoch_loss[0]

    def scored(channel: Any) -> tuple[Any, ...]:
        return (
            label.decision_function(NEW_B, channel=channel),
            label.predict_proba(NEW_B, channel=channel),
            label.predict(NEW_B, channel=channel),
            label.score(X_B, Y, channel=channel),
        )

    def contributing(channel: Any) -> None:
        for _ in range(2):
            assert feature.predict_proba(NEW_A, channel=channel) is None
        feature.predict(NEW_A, channel=channel)
        feature.score(X_A, channel=channel)

    (logits, probabilities, classes, accuracy), _ = succeeded(run_sides(scored, contributing))
    w_a, w_b = opened(label, feature)
    bias = label.top_.bias.detach().numpy()
    np.testing.assert_allclose(logits, (NEW_A @ w_a + NEW_B @ w_b + bias)[:, 0], atol=1e-3, rtol=0)
    np.testing.assert_allclose(probabilities[:, 1], 1 / (1 + np.exp(-logits)))
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert classes.tolist() == ["good" if z > 0 else "bad" for z in logits]
    joined = np.hstack([X_A, X_B])
    assert accuracy >= LogisticRegression().fit(joined, Y).score(joined, Y) - 0.05


def test_records_are_aligned_by_ids_first():
    label_ids = [f"p{i}" for i in range(ROWS)]
    order = np.random.default_rng(1).permutation(ROWS)[:70]  # the other side lacks twenty rows
    feature_ids = [f"p{i}" for i in order] + ["q1", "q2"]
    x_a = np.vstack([X_A[order], np.zeros((2, 4))])

    def label_role(channel: Any) -> tuple[Any, float]:
        made = label_party().fit(X_B, Y, channel=channel, ids=label_ids)
        rows = made.aligned_rows_
        return made, rows, made.score(X_B, Y, channel=channel, ids=label_ids)

    def feature_role(channel: Any) -> Any:
        made = feature_party().fit(x_a, channel=channel, ids=feature_ids)
        rows = made.aligned_rows_
        made.score(x_a, channel=channel, ids=feature_ids)
        return made, rows

    (label, rows, accuracy), (_, their_rows) = succeeded(run_sides(label_role, feature_role))
    assert [label_ids[r] for r in rows] == [feature_ids[r] for r in their_rows]
    assert sorted(rows) == sorted(order)
    assert accuracy > 0.85
    assert len(label.aligned_rows_) == 70


def test_a_seed_fixes_the_public_order_but_never_the_weights():
    (one, _), (other, _) = (fitted(seed=b"order", epochs=1) for _ in range(2))
    assert one.state_.u_b.to_ints() != other.state_.u_b.to_ints()
    assert one.history_.batch_loss[0] != other.history_.batch_loss[0]


def test_clone_and_parameters_follow_scikit_learn():
    made = label_party(seed=b"s", weight_decay=0.5)
    assert clone(made).get_params() == made.get_params()
    assert made.get_params()["weight_decay"] == 0.5
    assert made.set_params(epochs=2).epochs == 2
    assert not hasattr(clone(made), "state_")
    contributor = feature_party(max_epochs=3)
    assert clone(contributor).get_params() == contributor.get_params()
    assert VerticalLogisticRegression().get_params()["engine"] == "paillier"
    assert FeatureContributor().get_params()["key_bits"] == 2048


def test_an_estimator_must_be_fitted_before_it_predicts():
    sides = (
        run_sides(
            lambda channel: label_party().predict_proba(NEW_B, channel=channel),
            lambda channel: channel.receive(FitCall),
        )[0],
        run_sides(
            lambda channel: channel.receive(FitCall),
            lambda channel: feature_party().predict_proba(NEW_A, channel=channel),
        )[1],
    )
    for side in sides:
        assert isinstance(side.error, UsageError)
        assert "not fitted" in str(side.error)


@pytest.mark.parametrize(
    "labels", [Y[:-1], np.zeros(ROWS), RNG.integers(0, 3, ROWS)], ids=["short", "one", "three"]
)
def test_labels_that_are_not_two_classes_are_refused(labels):
    label, feature = run_sides(
        lambda channel: label_party().fit(X_B, labels, channel=channel),
        lambda channel: feature_party().fit(X_A, channel=channel),
    )
    assert isinstance(label.error, DataError)
    assert "with two" in str(label.error)
    # The other side is told at once that there was an error, and no more than that.
    assert isinstance(feature.error, PeerError)
    assert "found an error in its data" in str(feature.error)
    assert "classes" not in str(feature.error)


def test_ids_that_do_not_fit_the_rows_are_refused():
    label, _ = run_sides(
        lambda channel: label_party().fit(X_B, Y, channel=channel, ids=["a"]), lambda channel: None
    )
    assert isinstance(label.error, UsageError)
    assert "got 1 ids for 90 rows" in str(label.error)


def refused(label: VerticalLogisticRegression, feature: FeatureContributor, x: Any = X_A) -> str:
    label_side, feature_side = run_sides(
        lambda channel: label.fit(X_B, Y, channel=channel),
        lambda channel: feature.fit(x, channel=channel),
    )
    assert isinstance(feature_side.error, PeerError)
    assert isinstance(label_side.error, PeerError)
    return str(feature_side.error)


def test_the_feature_party_refuses_what_it_did_not_allow():
    assert "got 6 epochs; this side allows 1 .. 5" in refused(
        label_party(), feature_party(max_epochs=5)
    )
    assert "got a fit over 90 rows; want 89" in refused(label_party(), feature_party(), X_A[:-1])
    assert "a key of 512 bits; want 256" in refused(
        label_party(engine="paillier"), FeatureContributor(insecure_key_bits=256)
    )


def test_the_label_party_alone_cannot_lower_the_protection():
    contributor = FeatureContributor(insecure_key_bits=512)
    assert contributor.engine == "paillier"
    assert "this side wants 'paillier'" in refused(label_party(), contributor)


class HostileLabelParty(VerticalLogisticRegression):
    """A label party that proposes a layer of its own choice."""

    changes: dict[str, Any]

    def _settings(self, batch_rows: int) -> LayerSettings:
        return replace(super()._settings(batch_rows), **self.changes)


def hostile(**changes: Any) -> HostileLabelParty:
    made = HostileLabelParty(**label_party().get_params())
    made.changes = changes
    return made


def test_a_hostile_label_party_gets_no_more_than_was_allowed():
    assert "got 3 outputs; this side allows 1" in refused(hostile(outputs=3), feature_party())
    assert "got masks of 40 bits; this side wants 64" in refused(
        hostile(mask_bits=40), feature_party()
    )
    # Control: the same party, asking for nothing unusual, is served.
    made = hostile()
    succeeded(
        run_sides(
            lambda channel: made.fit(X_B, Y, channel=channel),
            lambda channel: feature_party().fit(X_A, channel=channel),
        )
    )


def test_a_hostile_label_party_cannot_ask_for_more_when_it_predicts():
    label, feature = fitted(epochs=1)
    other = hostile(mask_bits=40)
    other.state_, other.top_, other.classes_ = label.state_, label.top_, label.classes_
    _, side = run_sides(
        lambda channel: other.predict(NEW_B, channel=channel),
        lambda channel: feature.predict(NEW_A, channel=channel),
    )
    assert "got masks of 40 bits" in str(side.error)


def test_a_label_party_without_features_must_be_allowed_by_name():
    nothing = np.zeros((ROWS, 0))

    def run(contributor: FeatureContributor) -> tuple[Side, Side]:
        return run_sides(
            lambda channel: label_party().fit(nothing, Y, channel=channel),
            lambda channel: contributor.fit(X_A, channel=channel),
        )

    assert "wants at least 1" in str(run(feature_party())[1].error)
    succeeded(run(feature_party(allow_label_party_without_features=True)))


def test_small_batches_can_be_refused():
    assert "got batches of 16 rows; want at least 32" in refused(
        label_party(), feature_party(min_batch_size=32)
    )


def test_outputs_per_row_are_refused_from_the_number_of_features_on():
    options = {"max_outputs_per_row": None}
    assert "4 more outputs per row; this side gives 3 in all" in refused(
        label_party(epochs=4), feature_party(**options)
    )
    contributor = feature_party(**options)
    run_sides(
        lambda channel: label_party(epochs=3).fit(X_B, Y, channel=channel),
        lambda channel: contributor.fit(X_A, channel=channel),
    )
    assert contributor.outputs_.largest == 3


def test_outputs_are_counted_over_fits_and_predictions():
    contributor, label = feature_party(max_outputs_per_row=4), label_party(epochs=2)

    def both(label_call: str, feature_call: str, x_b: Any, x_a: Any, *y: Any) -> tuple[Side, Side]:
        return run_sides(
            lambda channel: getattr(label, label_call)(x_b, *y, channel=channel),
            lambda channel: getattr(contributor, feature_call)(x_a, channel=channel),
        )

    succeeded(both("fit", "fit", X_B, X_A, Y))
    succeeded(both("predict", "predict", X_B, X_A))
    succeeded(both("predict", "predict", NEW_B, NEW_A))  # other records count on their own
    order = np.arange(ROWS)[::-1]
    succeeded(both("predict", "predict", X_B[order], X_A[order]))  # the same in another order
    assert contributor.outputs_.largest == 4
    for calls in (("predict", "predict", X_B[:5], X_A[:5]), ("fit", "fit", X_B, X_A, Y)):
        _, side = both(*calls)
        assert "this side gives 4 in all" in str(side.error)
    succeeded(both("predict", "predict", NEW_B, NEW_A))


def test_a_refused_request_is_not_counted_and_equal_records_count_once():
    count = OutputCount()
    count.add([b"a", b"b", b"a"], 2, 3)
    assert count.largest == 2
    with pytest.raises(PeerError, match="2 more outputs"):
        count.add([b"c", b"a"], 2, 3)
    count.add([b"c"], 3, 3)
    count.add([b"a"], 1, 3)
    assert count.largest == 3


def test_the_bias_learns_with_the_rounded_constants(monkeypatch):
    seen: list[dict[str, float]] = []

    class RecordedSgd(torch.optim.SGD):
        def __init__(self, parameters: Any, **constants: float) -> None:
            seen.append(constants)
            super().__init__(parameters, **constants)

    monkeypatch.setattr(torch.optim, "SGD", RecordedSgd)
    exact = {"learning_rate": 0.1, "momentum": 0.7, "weight_decay": 0.003}
    label, _ = fitted(epochs=1, **exact)
    sgd = label._settings(16).sgd()
    assert seen == [
        {
            "lr": sgd.learning_rate.value,
            "momentum": sgd.momentum.value,
            "weight_decay": sgd.weight_decay.value,
        }
    ]
    assert not set(seen[0].values()) & set(exact.values())


def test_an_alignment_is_bound_to_fresh_nonces_of_both_sides(monkeypatch):
    ids = [f"p{i}" for i in range(ROWS)]
    views, bound = [], []

    def recorded(session_id: bytes, *parts: str) -> bytes:
        bound.append(session_id)
        return alignment_context(session_id, *parts)

    monkeypatch.setattr(estimator_calls, "alignment_context", recorded)
    for _ in range(2):
        _, _, label_end, feature_end = run_pair(
            lambda channel: label_party(epochs=1).fit(X_B, Y, channel=channel, ids=ids),
            lambda channel: feature_party().fit(X_A, channel=channel, ids=ids),
            timeout_s=20,
        )
        views += [label_end.view, feature_end.view]
    nonces = [m.nonce for view in views for m in view if isinstance(m, CallNonce)]
    assert len(set(nonces)) == 4
    # Views hold what was received: the feature party's nonces are in the label party's view.
    sessions = [nonces[1] + nonces[0], nonces[3] + nonces[2]]
    assert sorted(bound) == sorted(sessions * 2)
    for view in views:  # before anything of the alignment
        kinds = [type(message) for message in view]
        assert kinds.index(CallNonce) == 0 < kinds.index(Points)


def test_a_short_nonce_is_refused():
    def label_role(channel: Channel) -> None:
        channel.send(CallNonce(nonce=b"short"))
        channel.receive(FitCall)

    _, feature = run_sides(
        label_role, lambda channel: feature_party().fit(X_A, channel=channel, ids=list(range(ROWS)))
    )
    assert "got a nonce of 5 bytes; want 32" in str(feature.error)


def test_the_sigmoid_is_exact_at_both_ends_and_never_warns():
    z = np.array([-65_536.0, -800.0, -40.0, 0.0, 40.0, 65_536.0])
    np.testing.assert_allclose(sigmoid(z), [0, 0, np.exp(-40), 0.5, 1, 1], rtol=1e-15)
    np.testing.assert_allclose(sigmoid(z) + sigmoid(-z), 1)


def test_too_few_rows_are_refused_with_and_without_ids():
    label, feature = run_sides(
        lambda channel: label_party().fit(X_B, Y, channel=channel),
        lambda channel: feature_party(min_rows=91).fit(X_A, channel=channel),
    )
    assert isinstance(feature.error, UsageError)
    assert "got 90 rows; want at least 91" in str(feature.error)
    assert isinstance(label.error, PeerError)


def test_rows_to_score_must_agree():
    label, feature = fitted(epochs=1)
    _, feature_side = run_sides(
        lambda channel: label.predict(NEW_B, channel=channel),
        lambda channel: feature.predict(NEW_A[:5], channel=channel),
    )
    assert isinstance(feature_side.error, PeerError)
    assert "got 20 rows to score; want 5" in str(feature_side.error)


def test_arrays_and_sparse_matrices_are_encoded_by_their_kind():
    whole, real = np.array([[1, 0], [2, 3]]), np.array([[1.5], [-2.0]])
    assert encode_matrix(whole).scale_bits.tolist() == [0, 0]
    assert encode_matrix(whole.astype(bool)).scale_bits.tolist() == [0, 0]
    assert encode_matrix(real).scale_bits.tolist() == [16]
    sparse = encode_matrix(sp.coo_matrix(whole))
    np.testing.assert_array_equal(sparse.values.toarray(), whole)
    assert encode_matrix(real, 4.0).bounds.tolist() == [4 << 16]
    with pytest.raises(DataError, match="X, row 2, column '0': got -2; want a finite number"):
        encode_matrix(real, 1.5)
    with pytest.raises(UsageError, match="1 dimensions"):
        encode_matrix(real[:, 0])
