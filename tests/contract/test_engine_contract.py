"""What every product engine must do, and that the engines can stand in for one another bit by bit.

`_engines` is the only place that knows which engines there are: a new one joins by one line.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from colonnade.crypto import CipherSpace, DirectRandomisers, KeyOwner
from colonnade.errors import PeerError, UsageError
from colonnade.nn.plan import TrainingPlan
from colonnade.protocol.agreement import KeyChoice, LayerSettings
from colonnade.protocol.paillier_engine import PaillierEngine
from colonnade.protocol.plain_engine import InsecurePlainEngine
from colonnade.protocol.product import Engine, Product, Result
from colonnade.ring import Z128, Csprng, FixedMatrix
from colonnade.simulation import simulate
from paillier_by_hand import small_key

BITS = 512
NAMES = ("paillier", "insecure_plain")


@dataclass
class Pair:
    """Both parties' engines and P's stream of masks."""

    q: Engine
    p: Engine
    masks: Csprng

    def run(self, x: Any, v: Any, product: Product) -> tuple[Any, Any]:
        """Shares of P and Q of X V; `v` is what Q publishes, `x` what P multiplies."""
        published = self.p.receive(self.q.publish(v, product), product)
        payload, share_p = self.p.seal(self.p.multiply(x, published, product), product, self.masks)
        return share_p, self.q.open(payload, product, x.shape[0])


def _engines(name: str) -> tuple[Engine, Engine]:
    if name == "insecure_plain":
        return InsecurePlainEngine(BITS), InsecurePlainEngine(BITS)
    keys = [small_key(BITS, holder) for holder in "QP"]
    owners = [KeyOwner(key, Csprng.from_os()) for key in keys]
    spaces = [CipherSpace(key.public) for key in keys]
    sources = [DirectRandomisers(space, Csprng.from_os()) for space in spaces]
    return (
        PaillierEngine(owners[0], spaces[1], sources[1]),
        PaillierEngine(owners[1], spaces[0], sources[0]),
    )


def pair(name: str, seed: str | None = None) -> Pair:
    return Pair(*_engines(name), Csprng(seed.encode() if seed else None))


def integers(tensor: Any) -> list[int]:
    """Entries as signed Python integers, row-major."""
    if isinstance(tensor, Z128):
        return tensor.to_ints()
    return tensor.view(np.int64).reshape(-1).tolist()


def exact(x: Any, v: Any) -> list[int]:
    dense = (x.toarray() if sp.issparse(x) else x).astype(object)
    return list((dense @ np.array(integers(v), dtype=object).reshape(v.shape)).reshape(-1))


@dataclass(frozen=True)
class Ring:
    """A result type with operands that reach its declared bounds."""

    result: Result
    x_max: int
    v_max: int

    def operands(self, rows: int, inner: int, columns: int, rng: np.random.Generator):
        """X with zeros, an empty row and both extremes; V with zeros and both extremes."""
        x = rng.integers(-self.x_max, self.x_max, (rows, inner), dtype=np.int64, endpoint=True)
        x[rng.random(x.shape) < 0.3] = 0
        x[-1] = 0
        x[0] = self.x_max
        x[1] = -self.x_max
        v = [int(s) * self.v_max for s in rng.integers(-1, 1, inner * columns, endpoint=True)]
        v = [e + int(rng.integers(-9, 9)) if abs(e) != self.v_max else e for e in v]
        v[::columns] = [self.v_max] * inner  # the first column meets x[0] and x[1] at the bound
        return x, self.tensor(v, (inner, columns))

    def tensor(self, values: list[int], shape: tuple[int, int]) -> Any:
        if self.result is Result.Z128:
            return Z128.from_ints(values, shape)
        return np.array(values, dtype=np.int64).reshape(shape)

    def product(self, inner: int, columns: int, **options: Any) -> Product:
        bound = inner * self.x_max * self.v_max
        return Product("it", inner, columns, bound, self.result, **options)

    def opened(self, share_p: Any, share_q: Any) -> list[int]:
        return integers(share_p + share_q)

    def reduced(self, values: list[int]) -> list[int]:
        bits = 64 if self.result is Result.Z64 else 128
        half = 1 << (bits - 1)
        return [(value + half) % (2 * half) - half for value in values]


RINGS = [
    Ring(Result.INTEGER, (1 << 22) - 1, (1 << 33) + 7),
    Ring(Result.Z64, (1 << 22) - 1, 2**63 - 1),
    Ring(Result.Z128, (1 << 22) - 1, 2**125 - 3),
]
ring_cases = pytest.mark.parametrize("ring", RINGS, ids=lambda ring: ring.result.value)
engine_cases = pytest.mark.parametrize("name", NAMES)


@engine_cases
@ring_cases
@pytest.mark.parametrize("columns", [1, 3, 7])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix], ids=["dense", "csr"])
def test_the_shares_add_up_to_the_product(name, ring, columns, form):
    x, v = ring.operands(5, 4, columns, np.random.default_rng(columns))
    product = ring.product(4, columns)
    slots = product.layout(BITS).per_plaintext
    assert 1 < slots < 7  # so that 1, 3 and 7 columns cover shared, single and several plaintexts
    share_p, share_q = pair(name).run(form(x), v, product)
    assert share_p.shape == share_q.shape == (5, columns)
    want = exact(x, v)
    assert max(abs(e) for e in want) == product.value_bound  # the declared bound is reached
    assert ring.opened(share_p, share_q) == ring.reduced(want)


@engine_cases
@ring_cases
def test_the_left_operand_may_be_the_published_one(name, ring):
    """P holds V and Q publishes X: P computes (X V)^T = V^T X^T."""
    v, x_transposed = ring.operands(5, 4, 3, np.random.default_rng(7))
    x = x_transposed.transpose()
    x = x if isinstance(x, Z128) else np.ascontiguousarray(x)
    product = ring.product(4, 3, published="left")
    shares = pair(name).run(v, x, product)
    assert ring.opened(*shares) == ring.reduced(exact(v, x_transposed))


@engine_cases
def test_uint64_operands_are_read_as_signed(name):
    v = np.array([[2**64 - 1], [2**63]], dtype=np.uint64)
    product = Product("it", 2, 1, 2 << 63, Result.Z64)
    shares = pair(name).run(np.array([[1, 0], [0, 1], [1, 1]]), v, product)
    assert (shares[0] + shares[1]).reshape(-1).tolist() == [2**64 - 1, 2**63, 2**63 - 1]


@engine_cases
def test_one_publication_serves_many_batches_of_any_size(name):
    both, v = pair(name), np.array([[3, -4]], dtype=np.int64)
    product = Product("it", 1, 2, 1 << 12, Result.Z64)
    published = both.p.receive(both.q.publish(v, product), product)
    for rows in (0, 1, 2, 9):
        x = np.arange(rows, dtype=np.int64).reshape(rows, 1)
        payload, share = both.p.seal(both.p.multiply(x, published, product), product, both.masks)
        opened = share + both.q.open(payload, product, rows)
        np.testing.assert_array_equal(opened.view(np.int64), x @ v)


@ring_cases
def test_engines_give_identical_shares_from_the_same_masks(ring):
    both = [pair(name, "the same masks") for name in NAMES]
    for step in range(12):
        rng = np.random.default_rng(step)
        columns = int(rng.integers(1, 8))
        x, v = ring.operands(int(rng.integers(2, 7)), 3, columns, rng)
        product = ring.product(3, columns, mask_bits=int(rng.integers(40, 65)))
        paillier, plain = (one.run(x, v, product) for one in both)
        assert [integers(share) for share in paillier] == [integers(share) for share in plain]


def small_run(engine: str, seed: str) -> tuple[list[list[int]], np.ndarray]:
    """All final shares and the logits of 30 steps on mixed whole and real columns."""
    rng = np.random.default_rng(0)
    whole = rng.integers(-3, 4, (48, 2)).astype(np.float64)
    real = rng.normal(size=(48, 2))
    x_a = FixedMatrix.encode(np.hstack([whole, real]), [True, True, False, False], [8] * 4)
    x_b = FixedMatrix.encode(np.hstack([real[:, :1] ** 2, whole[:, :1]]), [False, True], [16] * 2)
    plan = TrainingPlan(48, 10, 16, b"plan", test_fraction=0.125)
    assert 10 * plan.steps_per_epoch == 30
    settings = LayerSettings(
        outputs=1, batch_rows=16, learning_rate=0.1, weight_decay=0.01, engine=engine
    )
    run = simulate(
        x_a,
        x_b,
        (rng.random(48) > 0.5).astype(np.float64),
        plan,
        settings,
        key=KeyChoice(insecure_bits=BITS),
        streams_seed=seed,
    )
    feature, label = run.feature.state, run.label.state
    shares = [feature.u_a, feature.v_b, feature.momentum_u_a, label.u_b, label.v_a]
    shares += [label.momentum_u_b, label.momentum_v_a]
    return [share.to_ints() for share in shares], run.history.test_logits


def test_whole_runs_give_identical_shares_from_the_same_streams():
    (paillier, logits), (plain, same) = (small_run(name, "whole run") for name in NAMES)
    assert paillier == plain
    np.testing.assert_array_equal(logits, same)
    other, _ = small_run("insecure_plain", "another seed")
    assert other[0] != plain[0]


@engine_cases
def test_malformed_payloads_are_refused(name):
    both, product = pair(name), Product("X_A V_A", 2, 2, 100, Result.Z64)
    published = both.q.publish(np.array([[1, 2], [3, 4]]), product)
    computed = both.p.multiply(
        np.eye(2, dtype=np.int64), both.p.receive(published, product), product
    )
    sent, _ = both.p.seal(computed, product, both.masks)
    for bad in (published[:-1], published + b"\0", b""):
        with pytest.raises(PeerError, match="X_A V_A"):
            both.p.receive(bad, product)
    for bad in (sent[:-1], sent + b"\0", b""):
        with pytest.raises(PeerError, match="X_A V_A"):
            both.q.open(bad, product, 2)


@pytest.mark.parametrize("published", ["left", "right"])
def test_operands_of_another_shape_are_not_encrypted(published):
    product = Product("it", 2, 3, 100, Result.Z64, published=published)
    with pytest.raises(UsageError, match="got an operand of shape \\(4, 4\\)"):
        pair("paillier").q.publish(np.zeros((4, 4), np.int64), product)


def test_products_with_too_little_room_are_refused():
    with pytest.raises(UsageError, match="want at least 40"):
        Product("it", 1, 1, 100, Result.Z64, mask_bits=39)
    Product("it", 1, 1, 1 << 61, Result.INTEGER)
    with pytest.raises(UsageError, match="want at most 127"):
        Product("it", 1, 1, (1 << 61) + 1, Result.INTEGER)
    with pytest.raises(UsageError, match="at least one slot"):
        pair("paillier").q.publish(np.zeros((1, 1)), Product("it", 1, 1, 1 << 500, Result.Z64))


def test_keys_of_two_sizes_cannot_be_paired():
    space = CipherSpace(small_key(256).public)
    owner = KeyOwner(small_key(BITS), Csprng.from_os())
    with pytest.raises(UsageError, match="two sizes"):
        PaillierEngine(owner, space, DirectRandomisers(space, Csprng.from_os()))
