"""What the feature party sees of labels and weights: rows of the MatMul leak table, with controls.

Every row is a function `check_...` that a correct run passes. The same function is then run on a
deliberately broken variant, on which it must fail. Thresholds of tests on fresh randomness are set
so that a correct run fails less than once in a million times. Of the whole table:

  A receives  ciphertexts under B's key          check_issued_ciphertexts_are_fresh (masks)
              X_B V_B - eps_B                    check_opened_slots,
                                                 check_no_mask_serves_twice (masks)
              everything else, and its shares    check_a_reads_nothing_of_labels,
                                                 check_a_holds_nothing_of_labels,
                                                 check_share_predicts_like_noise (BlindFL, Figure 9)
  B receives  X_A V_A - eps_A, dW_A - phi        check_opened_slots, check_no_mask_serves_twice,
                                                 check_unused_slots_are_masked, check_full_width
              ... and their randomness           check_returned_randomness (masks)
              Z'_A                               check_scoring_again_shows_only_masks (scores)
              Z, and what follows from it        check_the_residual_attack_succeeds (scores)

(masks) is test_matmul_view_masks.py, (scores) is test_matmul_view_scores.py.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

from colonnade.nn.plan import TrainingPlan
from colonnade.protocol import agreement
from colonnade.protocol.matmul_messages import (
    ForwardCall,
)
from colonnade.protocol.plain_engine import InsecurePlainEngine
from colonnade.protocol.product import Product, Result, share_from_integers
from colonnade.ring import Csprng, round_shift_z64_copy
from colonnade.simulation import simulate
from matmul_runs import (
    RARE,
    Game,
    Played,
    breast_cancer,
    linear_labels,
    play,
    real_set,
    settings,
    small_game,
    whole_columns,
)
from paillier_by_hand import decrypt, from_bytes

# -- A: labels -------------------------------------------------------------------------------------


def readable_by_a(run: Played) -> list[Any]:
    """All that A can read: clear fields, sizes, plaintexts under its own key, batch order."""
    key, product = run.key_of(run.feature), run.label.spec.label_forward
    layout, out = product.layout(key.public.bits), []
    for message in run.feature_view:
        fields = {name: getattr(message, name) for name in message.__struct_fields__}
        if isinstance(message, ForwardCall):
            fields["opened"] = [
                layout.split(decrypt(key, c)) for c in from_bytes(key, message.payload)
            ]
        under_b = {"payload", "modulus"} & fields.keys()
        fields.update({name: len(fields[name]) for name in under_b})
        out.append((message.TAG, fields))
    return [*out, [call.rows.tolist() for call in run.calls]]


def check_a_reads_nothing_of_labels(run: Played, other_labels: Played) -> None:
    assert run.z[-1].tolist() != other_labels.z[-1].tolist()  # the labels did make a difference
    assert readable_by_a(run) == readable_by_a(other_labels)


def with_other_labels(game: Game) -> Game:
    return game.with_labels(np.random.default_rng(8).permutation(game.y))


def test_a_reads_nothing_of_labels():
    game = small_game()
    check_a_reads_nothing_of_labels(*(play(g, seed="s") for g in (game, with_other_labels(game))))


@dataclass(frozen=True)
class OrderedByLabel(TrainingPlan):
    """A sampler that looks at labels: batches are filled class by class."""

    labels: tuple[float, ...] = ()

    def batches(self, epoch: int) -> list[np.ndarray]:
        rows = super().batches(epoch)
        order = np.concatenate(rows)
        order = order[np.argsort(np.array(self.labels)[order], kind="stable")]
        return np.split(order, np.cumsum([len(batch) for batch in rows])[:-1])


def test_control_labels_in_the_batch_order_are_read():
    games = [small_game(), with_other_labels(small_game())]
    plans = [
        OrderedByLabel(40, 2, 20, b"views", test_fraction=0.0, labels=tuple(g.y)) for g in games
    ]
    runs = [play(replace(g, plan=plan), seed="s") for g, plan in zip(games, plans, strict=True)]
    with pytest.raises(AssertionError):
        check_a_reads_nothing_of_labels(*runs)


def test_control_a_learning_rate_that_follows_the_loss_is_read():
    game = small_game()
    runs = [
        play(g.with_settings(learning_rate=0.1 + 0.01 * float(g.y[0])), seed="s")
        for g in (game.with_labels(game.y), game.with_labels(1.0 - game.y))
    ]
    with pytest.raises(AssertionError):
        check_a_reads_nothing_of_labels(*runs)


def check_a_holds_nothing_of_labels(run: Played, other_labels: Played) -> None:
    """A's own shares come from its own randomness alone."""
    one, other = run.feature.state, other_labels.feature.state
    for name in ("u_a", "momentum_u_a", "v_b"):
        assert getattr(one, name).to_ints() == getattr(other, name).to_ints()


@pytest.mark.parametrize("engine", agreement.ENGINES)
def test_a_holds_nothing_of_labels(engine):
    game = small_game(engine=engine)
    check_a_holds_nothing_of_labels(*(play(g, seed="s") for g in (game, with_other_labels(game))))


def give_a_the_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """BlindFL's second experiment: A steps U_A with the whole of dW_A, V_A stays as it was."""
    seal = InsecurePlainEngine.seal

    def giving(self: InsecurePlainEngine, computed: Any, product: Product, masks: Csprng) -> Any:
        if product.result is not Result.INTEGER:
            return seal(self, computed, product, masks)
        layout = product.layout(self._bits)
        nothing = layout.offset.to_bytes((layout.slot_bits + 7) // 8, "little")
        shape = (computed.rows, layout.columns)
        share = share_from_integers(computed.values, shape, product.result)
        return nothing * len(computed.values), share

    monkeypatch.setattr(InsecurePlainEngine, "seal", giving)


def test_control_the_gradient_at_a_depends_on_labels(monkeypatch):
    give_a_the_gradient(monkeypatch)
    game = small_game(engine="insecure_plain")
    runs = [play(g, seed="s") for g in (game, with_other_labels(game))]
    with pytest.raises(AssertionError):
        check_a_holds_nothing_of_labels(*runs)


# -- A: Figure 9 -----------------------------------------------------------------------------------


def signed_operand(run: Played) -> np.ndarray:
    """U_A as A uses it: the operand copy at scale 24 mod 2^64, read as two's complement."""
    shifts = np.zeros(len(run.label.spec.feature), dtype=np.int64)
    return round_shift_z64_copy(run.feature.state.u_a, shifts).view(np.int64).astype(np.float64)


def auc(game: Game, weights: np.ndarray, rows: np.ndarray | slice = slice(None)) -> float:
    return float(roc_auc_score(game.y[rows], game.x_a.decode()[rows] @ weights[:, 0]))


def check_share_predicts_like_noise(runs: list[Played]) -> None:
    """X_A U_A predicts labels as well as X_A times independent uniform shares does: not at all."""
    seen = [auc(run.game, signed_operand(run)) for run in runs]
    rng, game = np.random.default_rng(1), runs[0].game
    noise = [auc(game, rng.uniform(-1, 1, (game.x_a.shape[1], 1))) for _ in range(500)]
    # Five standard errors of a mean of independent runs, and 0.03 where that is wider.
    assert abs(np.mean(seen) - 0.5) < max(0.03, 5 * np.std(noise) / math.sqrt(len(seen)))
    assert stats.ks_2samp(seen, noise).pvalue > RARE


def wide_game() -> Game:
    """100 columns at A: one random direction says little, and the mean over 100 runs still less."""
    rng = np.random.default_rng(4)
    x_a, x_b = whole_columns(120, 100, rng, top=1), whole_columns(120, 2, rng)
    plan = TrainingPlan(120, 2, 60, b"wide", test_fraction=0.0)
    return Game(x_a, x_b, linear_labels(x_a, rng), plan, settings(plan, learning_rate=0.5))


def test_a_share_of_weights_predicts_like_noise():
    game = wide_game()
    check_share_predicts_like_noise([play(game) for _ in range(100)])


def test_control_a_share_that_took_the_gradient_predicts_labels(monkeypatch):
    give_a_the_gradient(monkeypatch)
    runs = [play(wide_game()) for _ in range(10)]
    with pytest.raises(AssertionError):
        check_share_predicts_like_noise(runs)
    assert np.mean([auc(run.game, signed_operand(run)) for run in runs]) > 0.9


def test_control_the_opened_weights_predict_labels():
    """What A must not get: X_A W_A is a good predictor on rows it was not trained on."""
    run = play(breast_cancer(epochs=3))
    test = run.game.plan.split.test
    assert auc(run.game, run.w_a, test) >= 0.85


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize(("name", "epochs"), [("a9a", 1), ("w8a", 2)])
def test_figure_9_on_real_sets(name, epochs):
    game = real_set(name, epochs)
    # With a bias: without one the weights of w8a, 3 % positive, have to make up for it.
    run = simulate(game.x_a, game.x_b, game.y, game.plan, game.settings)
    assert auc(game, run.w_a, game.plan.split.test) >= 0.85
    some = np.arange(1500)
    x_a, x_b = game.x_a.take(some), game.x_b.take(some)
    plan = TrainingPlan(1500, 1, 128, b"short", test_fraction=0.0)
    short = Game(x_a, x_b, game.y[some], plan, settings(plan, learning_rate=0.05))
    check_share_predicts_like_noise([play(short) for _ in range(100)])
