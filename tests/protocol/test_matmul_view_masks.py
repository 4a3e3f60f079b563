"""Masks and ciphertexts in both views of a MatMul layer: rows of the leak table, with controls.

What a side opens is uniform, no mask serves twice, ciphertexts have fresh randomness, and sizes do
not depend on the data. `test_matmul_views.py` says how these tests are made.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from colonnade.crypto import KeyOwner, SealedTensor
from colonnade.protocol import agreement, paillier_engine, plain_engine
from colonnade.protocol.matmul_messages import (
    Derivatives,
    ForwardCall,
    ForwardShares,
    MaskedGradient,
    UpdateCall,
    WeightsPublished,
)
from colonnade.protocol.plain_engine import InsecurePlainEngine
from colonnade.protocol.product import Product, Result, draw_masks
from colonnade.ring import Csprng, FixedMatrix
from colonnade.wire.messages import Message
from matmul_runs import (
    RARE,
    Game,
    Played,
    play,
    repeat_masks,
    small_game,
    whole_columns,
)
from paillier_by_hand import decrypt, from_bytes, randomness, symbol

# -- both: masks -----------------------------------------------------------------------------------


def opened_slots(run: Played) -> list[tuple[Product, list[int]]]:
    """Every slot of every masked product a side opened, used or not, with its product."""
    spec, rows_of = run.label.spec, {i: len(c.rows) for i, c in enumerate(run.calls, start=1)}
    forward = run.received(run.label_view, ForwardShares)
    gradients = run.received(run.label_view, MaskedGradient)
    at_a = run.received(run.feature_view, ForwardCall)
    return [
        (
            spec.forward,
            [s for m in forward for s in _slots(run, run.label, m.masked, spec.forward)],
        ),
        (
            spec.gradient(1),
            [
                s
                for m in gradients
                for s in _slots(run, run.label, m.payload, spec.gradient(rows_of[m.call]))
            ],
        ),
        (
            spec.label_forward,
            [s for m in at_a for s in _slots(run, run.feature, m.payload, spec.label_forward)],
        ),
    ]


def _slots(run: Played, layer: Any, payload: bytes, product: Product) -> list[int]:
    if run.game.settings.engine == "paillier":
        key = run.key_of(layer)
        layout = product.layout(key.public.bits)
        return [s for c in from_bytes(key, payload) for s in layout.split(decrypt(key, c))]
    width = (product.layout(layer._context.engine._bits).slot_bits + 7) // 8
    return [int.from_bytes(payload[i : i + width], "little") for i in range(0, len(payload), width)]


def check_opened_slots(run: Played) -> None:
    """What a side decrypts is uniform over the mask's range, whatever the values are."""
    for product, slots in opened_slots(run):
        assert len(slots) >= 40
        unit = np.array([s / 2.0 ** product.layout(512).mask_width_bits for s in slots])
        assert stats.kstest(unit, "uniform").pvalue > RARE


def check_no_mask_serves_twice(run: Played) -> None:
    """Two slots under one mask would lie closer to each other than two values can."""
    for product, slots in opened_slots(run):
        gaps = np.diff(np.array(sorted(slots), dtype=object))
        assert min(gaps) > 4 * product.layout(512).offset


@pytest.mark.parametrize("engine", agreement.ENGINES)
def test_opened_slots_are_uniform_and_never_repeat(engine):
    run = play(small_game(engine=engine, epochs=4))
    check_opened_slots(run)
    check_no_mask_serves_twice(run)


def mask_off(layout: Any, rows: int, rng: Csprng) -> np.ndarray:
    return np.zeros_like(draw_masks(layout, rows, rng))


def mask_of_eight_bits(layout: Any, rows: int, rng: Csprng) -> np.ndarray:
    drawn = draw_masks(layout, rows, rng)
    keep = (layout.value_bits + 1 + 8 + 7) // 8  # eight bits above the value, in whole bytes
    drawn[..., keep:] = 0
    return drawn


def mask_without_unused_slots(layout: Any, rows: int, rng: Csprng) -> np.ndarray:
    drawn = draw_masks(layout, rows, rng)
    flat = drawn.reshape(-1, drawn.shape[-1])
    flat[rows * layout.columns :] = 0
    return drawn


BROKEN_MASKS: dict[str, Callable[..., np.ndarray]] = {
    "off": mask_off,
    "eight bits": mask_of_eight_bits,
}


@pytest.mark.parametrize("engine", agreement.ENGINES)
@pytest.mark.parametrize("case", BROKEN_MASKS)
def test_control_narrow_masks_show(case, engine, monkeypatch):
    for module in (plain_engine, paillier_engine):
        monkeypatch.setattr(module, "draw_masks", BROKEN_MASKS[case])
    run = play(small_game(engine=engine, epochs=4))
    with pytest.raises(AssertionError):
        check_opened_slots(run)


def test_control_a_mask_used_twice_shows(monkeypatch):
    repeat_masks(monkeypatch)
    run = play(small_game(engine="insecure_plain", epochs=4))
    with pytest.raises(AssertionError):
        check_no_mask_serves_twice(run)


def check_unused_slots_are_masked(run: Played) -> None:
    """Where a batch does not fill its last ciphertext, the slots left over show no zero either."""
    key, spec = run.key_of(run.label), run.label.spec
    product = spec.gradient(len(run.calls[0].rows))
    layout = product.layout(key.public.bits)
    unused = layout.packed_count(len(spec.feature)) * layout.slots_used - len(spec.feature)
    assert unused > 0
    for message in run.received(run.label_view, MaskedGradient):
        last = layout.split(decrypt(key, from_bytes(key, message.payload)[-1]))
        # A mask this small comes once in 2^40.
        assert min(last[-unused:]) > layout.offset * 2 ** (layout.mask_bits - 40)


def game_with_unused_slots() -> Game:
    game = small_game()
    rng = np.random.default_rng(0)
    return replace(game, x_a=whole_columns(40, 5, rng))  # two columns a ciphertext


def test_unused_slots_are_masked():
    check_unused_slots_are_masked(play(game_with_unused_slots()))


def test_control_unused_slots_without_a_mask_show(monkeypatch):
    monkeypatch.setattr(paillier_engine, "draw_masks", mask_without_unused_slots)
    run = play(game_with_unused_slots())
    with pytest.raises(AssertionError):
        check_unused_slots_are_masked(run)


# -- ciphertexts -----------------------------------------------------------------------------------


def check_issued_ciphertexts_are_fresh(run: Played) -> None:
    """Nothing that B sends under its own key has randomness that is known or was used before."""
    key = run.key_of(run.label)
    kinds = (WeightsPublished, Derivatives, UpdateCall)
    payloads = [m.payload for m in run.feature_view if isinstance(m, kinds)]
    found = [randomness(key, c) for payload in payloads for c in from_bytes(key, payload)]
    assert len(found) > 100
    assert 1 not in found
    assert len(set(found)) == len(found)


def test_issued_ciphertexts_are_fresh():
    check_issued_ciphertexts_are_fresh(play(small_game()))


def test_control_ciphertexts_without_randomness_show(monkeypatch):
    """A mistake of a public library: c = 1 + m n, which anybody reads."""

    def encode_only(self: KeyOwner, plaintexts: list[int]) -> SealedTensor:
        return SealedTensor(self.space.encode(plaintexts).to_bytes(), len(plaintexts))

    monkeypatch.setattr(KeyOwner, "encrypt", encode_only)
    run = play(small_game())
    with pytest.raises(AssertionError):
        check_issued_ciphertexts_are_fresh(run)


def returned_and_predicted(run: Played) -> tuple[np.ndarray, np.ndarray]:
    """Legendre symbols mod (p, q) of the randomness that came back, and what they would be had A
    not re-randomised: the symbols B issued, to the powers that A's true rows say.

    Packing raises all but the first row of a ciphertext to an even power, which has symbol one.
    """
    key = run.key_of(run.label)
    spec, bits = run.label.spec, key.public.bits

    def symbols(payload: bytes) -> np.ndarray:
        found = [randomness(key, c) for c in from_bytes(key, payload)]
        return np.array([[symbol(r, key.p), symbol(r, key.q)] for r in found])

    def predicted(issued: np.ndarray, x: Any, product: Product) -> np.ndarray:
        odd = (x.toarray() % 2).astype(bool)[:: product.layout(bits).rows_per_ciphertext]
        return np.array([issued[row].prod(axis=0) for row in odd])

    weights, issued = np.zeros((0, 2)), {}
    for message in run.feature_view:
        if isinstance(message, WeightsPublished | UpdateCall):
            weights = symbols(message.payload)
        elif isinstance(message, ForwardCall):
            issued["forward", message.call] = weights
        elif isinstance(message, Derivatives):
            issued["backward", message.call] = symbols(message.payload)
    returned, expected = [], []
    for message in run.label_view:
        if isinstance(message, ForwardShares | MaskedGradient):
            forward = isinstance(message, ForwardShares)
            rows = run.calls[message.call - 1].rows
            x = run.game.x_a.take(rows).csr()
            product = spec.forward if forward else spec.gradient(len(rows))
            known = issued["forward" if forward else "backward", message.call]
            returned.append(symbols(message.masked if forward else message.payload))
            expected.append(predicted(known, x if forward else x.T, product))
    return np.concatenate(returned), np.concatenate(expected)


def check_returned_randomness(run: Played) -> None:
    """The key owner learns nothing from the randomness of what comes back.

    The quotient of returned and predicted symbols, mod p and mod q together, is uniform over the
    four classes. Without re-randomising it is constant. With powers g^a of a single base it takes
    two of the four values at most, whatever the symbols of g are: one of the three characters
    (mod p, mod q, their product) stays a known function of A's rows.
    """
    returned, predicted = returned_and_predicted(run)
    assert len(returned) > 200
    for symbols in (returned, returned * predicted):
        classes = (symbols[:, 0] > 0) * 2 + (symbols[:, 1] > 0)
        assert stats.chisquare(np.bincount(classes, minlength=4)).pvalue > RARE


def test_returned_randomness_is_independent_of_the_rows():
    check_returned_randomness(play(small_game(epochs=5)))


class NoRandomness:
    def __init__(self, space: Any, rng: Csprng, expected: int) -> None:
        self._modulus = space.modulus

    def draw(self, count: int) -> Any:
        return self._modulus.ones(count)


class SingleBase:
    """Powers of one secret base with full-length exponents (Damgard, Jurik and Nielsen)."""

    def __init__(self, space: Any, rng: Csprng, expected: int) -> None:
        self._space, self._rng = space, rng
        self._base = 1 + rng.integers_below(space.key.n - 1, 1)[0]

    def draw(self, count: int) -> Any:
        n, square = self._space.key.n, self._space.key.n_squared
        width = self._space.ciphertext_bytes
        powers = [pow(self._base, e * n, square) for e in self._rng.integers_below(n, count)]
        raw = b"".join(c.to_bytes(width, "little") for c in powers)
        return self._space.modulus.from_bytes(raw)


@pytest.mark.parametrize("source", [NoRandomness, SingleBase])
def test_control_unsafe_randomisers_show_the_rows(source, monkeypatch):
    monkeypatch.setattr(agreement, "randomisers_for", source)
    run = play(small_game(epochs=5))
    with pytest.raises(AssertionError):
        check_returned_randomness(run)


def test_without_randomness_the_prediction_is_exact(monkeypatch):
    """The attack is real: what the check compares with is what the key owner would see."""
    monkeypatch.setattr(agreement, "randomisers_for", NoRandomness)
    returned, predicted = returned_and_predicted(play(small_game(epochs=1)))
    np.testing.assert_array_equal(returned, predicted)
    assert len(returned) > 40


# -- B: which columns are non-zero -----------------------------------------------------------------


def shape_of_view(view: list[Message]) -> list[tuple[str, list[int]]]:
    return [
        (
            message.TAG,
            [
                len(value)
                for value in (getattr(message, name) for name in message.__struct_fields__)
                if isinstance(value, bytes)
            ],
        )
        for message in view
    ]


def check_full_width(run: Played, other_columns: Played) -> None:
    """Number and sizes of messages are the same whichever of A's columns the batches touch."""
    assert shape_of_view(run.label_view) == shape_of_view(other_columns.label_view)


def sparse_and_dense(engine: str) -> tuple[Game, Game]:
    game = small_game(engine=engine)
    values = game.x_a.values.copy()
    values[:, 1:] = 0
    values[:30] = 0  # at least one batch touches even less
    return game, replace(game, x_a=FixedMatrix(values, game.x_a.scale_bits, game.x_a.bounds))


@pytest.mark.parametrize("engine", agreement.ENGINES)
def test_messages_have_full_width(engine):
    check_full_width(*(play(game) for game in sparse_and_dense(engine)))


def test_control_sending_touched_rows_only_shows_them(monkeypatch):
    seal, open_slots = InsecurePlainEngine.seal, InsecurePlainEngine.open

    def seal_touched(self: Any, computed: Any, product: Product, masks: Csprng) -> Any:
        payload, share = seal(self, computed, product, masks)
        if product.result is Result.INTEGER:
            width = len(payload) // computed.rows
            touched = [i for i, value in enumerate(computed.values) if value]
            payload = b"".join(payload[i * width : (i + 1) * width] for i in touched)
        return payload, share

    def open_padded(self: Any, payload: bytes, product: Product, rows: int) -> Any:
        width = (product.layout(self._bits).slot_bits + 7) // 8
        return open_slots(self, payload.ljust(rows * width, b"\0"), product, rows)

    monkeypatch.setattr(InsecurePlainEngine, "seal", seal_touched)
    monkeypatch.setattr(InsecurePlainEngine, "open", open_padded)
    runs = [play(game) for game in sparse_and_dense("insecure_plain")]
    with pytest.raises(AssertionError):
        check_full_width(*runs)


def test_small_games_reach_real_numbers_of_messages():
    """The statistics above rest on this many samples."""
    sizes = [len(slots) for _, slots in opened_slots(play(small_game(epochs=4)))]
    assert sizes == [160, 48, 40]
