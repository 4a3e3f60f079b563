"""The source layer as a torch module: the autograd contract, and gradients through a top model."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from colonnade.errors import DataError, PeerError, UsageError
from colonnade.nn.plan import TrainingPlan
from colonnade.nn.source import FeatureSource, LabelSource
from colonnade.protocol.agreement import agree_feature, agree_label
from colonnade.ring import WEIGHT_BITS, FixedMatrix
from matmul_runs import Side, mixed_columns, resources, run_sides, settings, whole_columns

ROWS = 12
RNG = np.random.default_rng(2)
X_A, X_B = whole_columns(ROWS, 3, RNG), mixed_columns(ROWS, RNG)
PLAN = TrainingPlan(ROWS, 1, 6, b"source", test_fraction=0.0)
ONE, TWO = np.arange(6), np.arange(6, 12)
# A gradient's two pieces and an update's are rounded to 2^-40 each; operands to 2^-24.
CLOSE = 1e-6


def meet(
    label: Callable[[LabelSource], Any],
    feature: Callable[[FeatureSource], None] | None = None,
    *,
    batches: tuple[np.ndarray, ...] = (ONE, TWO),
    **options: Any,
) -> tuple[Side, Side]:
    """`label` at one end; the other answers its calls with the given batches, in turn."""

    def label_role(channel: Any) -> Any:
        made = settings(PLAN, momentum=0.0, **options)
        layer = agree_label(
            channel, X_B, made, resources("label", "s", 256), kept_rows=ROWS, expected_calls=4
        )
        source = LabelSource(layer)
        before = layer.state
        result = label(source)
        return result, before, layer.state

    def feature_role(channel: Any) -> Any:
        layer = agree_feature(
            channel,
            X_A,
            resources("feature", "s", 256),
            kept_rows=ROWS,
            engine="insecure_plain",
            max_outputs=3,
        )
        before, source = layer.state, FeatureSource(layer)
        if feature is not None:
            feature(source)
            return layer, before, layer.state

        def supply(call: Any) -> tuple[FixedMatrix, np.ndarray]:
            rows = batches[(call.call - 1) % len(batches)]
            return X_A.take(rows), rows

        source.follow(supply)
        return layer, before, layer.state

    return run_sides(label_role, feature_role)


def weights(label: Side, feature: Side) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Opened W_A and W_B before and after."""
    assert (label.error, feature.error) == (None, None)
    return tuple(
        [
            (f.u_a + b.v_a).to_float(WEIGHT_BITS),
            (b.u_b + f.v_b).to_float(WEIGHT_BITS),
        ]
        for b, f in zip(label.result[1:], feature.result[1:], strict=True)
    )


def forward(source: LabelSource, rows: np.ndarray) -> torch.Tensor:
    return source(X_B.take(rows), rows)


def gradient_of_sum(rows: np.ndarray) -> list[np.ndarray]:
    """dL/dW of L = sum(Z) / 10 over the given rows, at A and at B."""
    return [x.decode()[rows].sum(axis=0)[:, None] / 10 for x in (X_A, X_B)]


def check_one_step(label: Side, feature: Side, *batches: np.ndarray) -> None:
    before, after = weights(label, feature)
    for i, (old, new) in enumerate(zip(before, after, strict=True)):
        moved = sum(gradient_of_sum(rows)[i] for rows in batches)
        assert np.abs(moved).max() > 0.1
        np.testing.assert_allclose(old - new, 0.1 * moved, atol=CLOSE, rtol=0)


def test_a_backward_and_a_step_move_both_sides_weights():
    def label(source: LabelSource) -> None:
        z = forward(source, ONE)
        assert (z.shape, z.dtype, z.requires_grad) == ((6, 1), torch.float64, True)
        (z.sum() / 10).backward()
        source.step()
        source.finish()

    check_one_step(*meet(label), ONE)


def test_backwards_before_a_step_add_up():
    def label(source: LabelSource) -> None:
        for rows in (ONE, TWO):
            (forward(source, rows).sum() / 10).backward()
        source.step()
        source.finish()

    check_one_step(*meet(label), ONE, TWO)


def test_two_forwards_may_come_before_one_backward():
    def label(source: LabelSource) -> None:
        z = torch.cat([forward(source, ONE), forward(source, TWO)])
        assert source.layer.open_calls == (1, 2)
        (z.sum() / 10).backward()
        assert source.layer.open_calls == ()
        source.step()
        source.finish()

    check_one_step(*meet(label), ONE, TWO)


def test_a_step_forgets_the_gradients_before_it():
    def label(source: LabelSource) -> None:
        for rows in (ONE, TWO):
            (forward(source, rows).sum() / 10).backward()
            source.step()
        source.finish()

    check_one_step(*meet(label), ONE, TWO)


def test_evaluations_have_no_gradient_and_stay_closed():
    def label(source: LabelSource) -> list[torch.Tensor]:
        with torch.no_grad():
            first = forward(source, ONE)
        second = forward(source.eval(), ONE)
        third = source.train()(X_B.take(ONE), ONE, predict=True)
        for z in (first, second, third):
            assert not z.requires_grad
        assert source.layer.open_calls == ()
        source.finish()
        return [first, second, third]

    modes: list[str] = []

    def feature(source: FeatureSource) -> None:
        source.follow(lambda call: (modes.append(call.mode) or X_A.take(ONE), ONE))

    label_side, feature_side = meet(label, feature)
    assert modes == ["evaluate", "evaluate", "predict"]
    z = label_side.result[0]
    assert torch.equal(z[0], z[1])
    assert torch.equal(z[0], z[2])
    before, _ = weights(label_side, feature_side)
    exact = X_A.decode()[ONE] @ before[0] + X_B.decode()[ONE] @ before[1]
    np.testing.assert_allclose(z[0].numpy(), exact, atol=CLOSE, rtol=0)


def test_after_an_exception_the_open_call_is_discarded_and_training_goes_on():
    def label(source: LabelSource) -> None:
        z = forward(source, TWO)
        with pytest.raises(ZeroDivisionError):
            (z.sum() * (1 / 0)).backward()
        source.discard()
        assert source.layer.open_calls == ()
        (forward(source, ONE).sum() / 10).backward()
        source.step()
        source.finish()

    check_one_step(*meet(label, batches=(TWO, ONE)), ONE)


def test_derivatives_out_of_range_are_refused_and_the_call_can_be_discarded():
    def label(source: LabelSource) -> None:
        with pytest.raises(DataError, match="want at most 1"):
            (forward(source, TWO).sum() * 10).backward()
        source.discard()
        (forward(source, ONE).sum() / 10).backward()
        source.step()
        source.finish()

    check_one_step(*meet(label, batches=(TWO, ONE)), ONE)


def test_unused_outputs_are_discarded_at_the_end():
    def label(source: LabelSource) -> None:
        forward(source, ONE)
        source.finish()

    before, after = weights(*meet(label))
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new)


def test_a_second_backward_of_one_call_is_refused():
    def label(source: LabelSource) -> None:
        loss = forward(source, ONE).sum() / 10
        loss.backward(retain_graph=True)
        with pytest.raises(UsageError, match="call 1 is not open"):
            loss.backward()
        source.step()
        source.finish()

    check_one_step(*meet(label), ONE)


@pytest.mark.parametrize(
    ("open_call", "message"), [(True, "neither backward nor discard"), (False, "no gradient")]
)
def test_a_step_too_early_is_refused_and_the_feature_party_ends(open_call, message):
    def label(source: LabelSource) -> None:
        if open_call:
            forward(source, ONE)
        source.step()

    label_side, feature_side = meet(label)
    assert isinstance(label_side.error, UsageError)
    assert message in str(label_side.error)
    assert isinstance(feature_side.error, PeerError)
    assert "closed the session" in str(feature_side.error)


# -- the feature party's module --------------------------------------------------------------------


def test_the_feature_party_can_walk_call_by_call():
    def label(source: LabelSource) -> None:
        (forward(source, ONE).sum() / 10).backward()
        source.step()
        with torch.no_grad():
            forward(source, TWO)
        source.finish()

    def feature(source: FeatureSource) -> None:
        assert source(X_A.take(ONE), ONE, mode="train") is None
        source(X_A.take(TWO), TWO, mode="evaluate")
        source.finish()

    check_one_step(*meet(label, feature), ONE)


def test_the_feature_party_insists_on_a_mode():
    _, feature_side = meet(
        lambda source: forward(source, ONE),
        lambda source: source(X_A.take(ONE), ONE, mode="predict"),
    )
    assert isinstance(feature_side.error, PeerError)
    assert "call 1 is in mode 'train'; want 'predict'" in str(feature_side.error)


def test_a_label_party_that_finishes_early_or_late_is_refused():
    _, early = meet(lambda source: source.finish(), lambda source: source(X_A.take(ONE), ONE))
    assert isinstance(early.error, PeerError)
    assert "the label party finished" in str(early.error)
    _, late = meet(lambda source: forward(source, ONE), lambda source: source.finish())
    assert isinstance(late.error, PeerError)
    assert "call 1 was not expected" in str(late.error)


# -- through a top model ---------------------------------------------------------------------------


def top_model(dtype: torch.dtype) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1)).to(
        dtype
    )


Y = torch.from_numpy(RNG.normal(size=(ROWS, 1)).clip(-1, 1))


def train(
    source: Callable[..., torch.Tensor], top: torch.nn.Module, step: Callable[[], None]
) -> None:
    optimizer = torch.optim.SGD(top.parameters(), lr=0.1)
    dtype = next(top.parameters()).dtype
    for rows in (ONE, TWO) * 5:
        loss = torch.nn.functional.mse_loss(top(source(rows).to(dtype)), Y[rows].to(dtype))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step()


@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-5), (torch.float32, 1e-4)])
def test_training_through_a_network_equals_a_linear_layer_on_joined_data(dtype, close):
    """Twenty-four bits of operands and ten steps of a smooth network leave less than 1e-5."""
    tops = [top_model(dtype), top_model(dtype)]

    def label(source: LabelSource) -> None:
        train(lambda rows: forward(source, rows), tops[0], source.step)
        source.finish()

    before, after = weights(*meet(label, outputs=3, derivative_bound=4.0))
    joined = torch.nn.Linear(7, 3, bias=False, dtype=torch.float64)
    joined.weight.data = torch.from_numpy(np.vstack(before).T.copy())
    x = torch.from_numpy(np.hstack([X_A.decode(), X_B.decode()]))
    optimizer = torch.optim.SGD(joined.parameters(), lr=0.1)

    def step() -> None:
        optimizer.step()
        optimizer.zero_grad()

    train(lambda rows: joined(x[rows]), tops[1], step)
    found, want = np.vstack(after), joined.weight.detach().numpy().T
    assert np.abs(found - np.vstack(before)).max() > 0.01
    np.testing.assert_allclose(found, want, atol=close, rtol=0)
    for one, other in zip(*(top.parameters() for top in tops), strict=True):
        np.testing.assert_allclose(one.detach(), other.detach(), atol=close, rtol=0)


def test_the_modules_show_torch_no_weights():
    def label(source: LabelSource) -> None:
        assert (list(source.parameters()), source.state_dict()) == ([], {})
        source.finish()

    label_side, _ = meet(label)
    assert label_side.error is None
