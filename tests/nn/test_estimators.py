"""Both sides' estimators over a memory pair."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from colonnade.errors import DataError, PeerError, UsageError
from colonnade.nn.logistic import FeatureContributor, VerticalLogisticRegression, encode_matrix
from colonnade.ring import WEIGHT_BITS
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
    options = {"engine": "insecure_plain"}
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
    for made, x in ((label_party(), X_B), (feature_party(), X_A)):
        with pytest.raises(UsageError, match="not fitted"):
            made.predict_proba(x, channel=None)


@pytest.mark.parametrize(
    "labels", [Y[:-1], np.zeros(ROWS), RNG.integers(0, 3, ROWS)], ids=["short", "one", "three"]
)
def test_labels_that_are_not_two_classes_are_refused(labels):
    with pytest.raises(DataError, match="with two"):
        label_party().fit(X_B, labels, channel=None)


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
