"""What the label party's view shows through Z and its shares: the last rows of the leak table.

Some of these tests expect an attack to succeed: they show limits that the design states.
`test_matmul_views.py` says how these tests are made.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from colonnade.nn.plan import TrainingPlan
from colonnade.nn.source import FeatureSource, LabelSource
from colonnade.protocol import agreement
from colonnade.protocol.agreement import LayerProposal, agree_feature, agree_label
from colonnade.protocol.matmul_messages import (
    ForwardShares,
)
from colonnade.ring import FixedMatrix
from colonnade.simulation import run_pair
from matmul_runs import (
    RARE,
    Game,
    Played,
    breast_cancer,
    play,
    real_set,
    repeat_masks,
    resources,
    small_game,
)

# -- B: Z'_A ---------------------------------------------------------------------------------------


def score_again(game: Game, times: int) -> tuple[np.ndarray, np.ndarray]:
    """Z'_A as received, uint64 (times, rows, outputs), and Z, of scoring all rows many times."""
    rows = np.arange(len(game.x_a))

    def label_role(channel: Any) -> list[np.ndarray]:
        layer = agree_label(
            channel,
            game.x_b,
            game.settings,
            resources("label", None, 256),
            kept_rows=len(rows),
            expected_calls=times,
        )
        source = LabelSource(layer).eval()
        seen = [source(game.x_b, rows).numpy() for _ in range(times)]
        source.finish()
        return seen

    def feature_role(channel: Any) -> None:
        layer = agree_feature(
            channel,
            game.x_a,
            resources("feature", None, 256),
            kept_rows=len(rows),
            engine=game.settings.engine,
        )
        FeatureSource(layer).follow(lambda call: (game.x_a, rows))

    z, _, label_end, _ = run_pair(label_role, feature_role, timeout_s=60)
    shape = (times, len(rows), game.settings.outputs)
    shares = [m.activation_share for m in label_end.view if isinstance(m, ForwardShares)]
    return np.frombuffer(b"".join(shares), "<u8").reshape(shape), np.array(z)


def check_scoring_again_shows_only_masks(shares: np.ndarray, z: np.ndarray) -> None:
    """Z is the same every time and fixes Z'_A + Z'_B; Z'_A itself is uniform and new each time."""
    assert (z == z[0]).all()
    assert len(np.unique(shares)) == shares.size
    for words in (shares, np.diff(shares, axis=0)):
        assert stats.kstest(words.reshape(-1) / 2.0**64, "uniform").pvalue > RARE


@pytest.mark.parametrize("engine", agreement.ENGINES)
def test_scoring_rows_again_shows_only_masks(engine):
    check_scoring_again_shows_only_masks(*score_again(small_game(engine=engine), 8))


def test_control_a_mask_used_for_two_scorings_shows(monkeypatch):
    repeat_masks(monkeypatch)
    shares, z = score_again(small_game(engine="insecure_plain"), 8)
    with pytest.raises(AssertionError):
        check_scoring_again_shows_only_masks(shares, z)


# -- B: what follows from Z ------------------------------------------------------------------------


def residual_correlation(run: Played, z: np.ndarray) -> float:
    """Correlation of Z - X_B dW_B with X_A W_A on test rows; dW_B is B's own weight change."""
    test = run.game.plan.split.test
    x_a, x_b = (x.decode()[test] for x in (run.game.x_a, run.game.x_b))
    residual = z - x_b @ (run.w_b - run.initial_w_b)
    return float(np.corrcoef(residual[:, 0], (x_a @ run.w_a)[:, 0])[0, 1])


def check_the_residual_attack_succeeds(run: Played) -> None:
    test = [z for call, z in zip(run.calls, run.z, strict=True) if call.part == "test"]
    z = np.concatenate(test)
    found = residual_correlation(run, z)
    print(f"correlation of the residual with X_A W_A: {found:.3f}")
    assert found > 0.9
    # An attack counts only if it does better than the same attacker without the view.
    assert abs(residual_correlation(run, np.random.default_rng(0).permutation(z))) < 0.5


def test_the_residual_attack_succeeds():
    """EXPECTED to succeed: a limit of giving Z to the label party, stated in the leak table.

    B knows how its own weights changed, so Z - X_B dW_B = X_A W_A + X_B W_B(0), and the initial
    weights are small. See the design's "Who learns what", limit (a).
    """
    check_the_residual_attack_succeeds(play(breast_cancer(epochs=3)))


@pytest.mark.data
@pytest.mark.slow
def test_the_residual_attack_succeeds_on_a9a():
    check_the_residual_attack_succeeds(play(real_set("a9a", 1)))


def test_without_label_features_z_is_x_a_w_a():
    """EXPECTED: then nothing hides X_A W_A, which the feature party's approval has to say."""
    game = small_game(engine="insecure_plain")
    game = replace(game, x_b=FixedMatrix.encode(np.zeros((40, 0)), [], []))
    run = play(replace(game, plan=TrainingPlan(40, 1, 20, b"views", test_fraction=0.5)))
    exact = game.x_a.decode()[run.calls[-1].rows] @ run.w_a
    assert np.abs(run.z[-1] - exact).max() < 1e-5


def test_equal_rows_of_a_show_as_equal_z():
    """EXPECTED: limit (c). B sees which of its records A cannot tell apart."""
    game = small_game(engine="insecure_plain")
    values = game.x_a.values.copy()
    values[1] = values[0]
    x_a = FixedMatrix(values, game.x_a.scale_bits, game.x_a.bounds)
    x_b = FixedMatrix.encode(np.zeros((40, 0)), [], [])
    _, z = score_again(replace(game, x_a=x_a, x_b=x_b), 1)
    assert z[0, 0, 0] == z[0, 1, 0]
    assert len(np.unique(z[0])) == 39


def test_what_is_public_is_what_the_leak_table_says():
    """The proposal and the answer: no value, only shapes, ranges, constants and keys."""
    run = play(small_game())
    proposal = run.received(run.feature_view, LayerProposal)[0]
    assert set(proposal.__struct_fields__) == {
        "outputs", "batch_rows", "learning_rate", "momentum", "weight_decay", "engine",
        "derivative_bound", "activation_bits", "mask_bits", "initial_scale", "kept_rows",
        "expected_calls", "scale_bits", "bounds", "modulus",
    }  # fmt: skip
    kinds = {message.TAG for message in run.label_view}
    assert kinds == {
        "layer.answer/1",
        "matmul.weights/1",
        "matmul.forward_shares/1",
        "matmul.masked_gradient/1",
    }
