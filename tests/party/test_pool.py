"""The stock of randomisers: each handed out once, bounded, gone after a fork and at the end."""

import os
import threading
import time

import pytest

from colonnade.crypto import CipherSpace, DirectRandomisers, insecure_generate_key
from colonnade.native import Residues
from colonnade.party.pool import RandomiserPool
from colonnade.ring import Csprng

SPACE = CipherSpace(insecure_generate_key(256).public)
WIDTH = SPACE.ciphertext_bytes


class Counting:
    """A source that says who drew how much; `hold` stops it."""

    def __init__(self) -> None:
        self.inner = DirectRandomisers(SPACE, Csprng.from_os())
        self.drawn: list[tuple[str, int]] = []
        self.hold = threading.Event()
        self.hold.set()

    def draw(self, count: int) -> Residues:
        self.hold.wait(10)
        self.drawn.append((threading.current_thread().name, count))
        return self.inner.draw(count)


def pieces(numbers: Residues) -> list[bytes]:
    data = numbers.to_bytes()
    return [data[i : i + WIDTH] for i in range(0, len(data), WIDTH)]


def wait_for(pool: RandomiserPool, stock: int) -> None:
    deadline = time.monotonic() + 10
    while pool.stock < stock and time.monotonic() < deadline:
        time.sleep(0.005)
    assert pool.stock >= stock


def test_no_randomiser_is_handed_out_twice():
    seen: list[bytes] = []
    with RandomiserPool(Counting(), limit=8) as pool:
        for count in (1, 3, 20, 0, 7, 8, 2):
            got = pieces(pool.draw(count))
            assert len(got) == count
            seen += got
    assert len(set(seen)) == len(seen) == 41


class Repeating(RandomiserPool):
    """The control: looks into the stock without taking."""

    def draw(self, count: int) -> Residues:
        return Residues.concat([self._stock[i] for i in range(count)])


def test_control_a_stock_that_is_not_emptied_repeats():
    with Repeating(Counting(), limit=8) as pool:
        wait_for(pool, 8)
        seen = pieces(pool.draw(3)) + pieces(pool.draw(3))
    assert len(set(seen)) < len(seen)


def test_the_stock_is_bounded_and_filled_in_the_background():
    source = Counting()
    with RandomiserPool(source, limit=8) as pool:
        wait_for(pool, 8)
        time.sleep(0.05)
        assert pool.stock < 8 + 8  # a block may overshoot
        before = len(source.drawn)
        pool.draw(2)
        wait_for(pool, 8)
        assert {name for name, _ in source.drawn} == {"colonnade randomisers"}
        assert len(source.drawn) > before


def test_an_empty_stock_is_made_up_for_at_once():
    source = Counting()
    with RandomiserPool(source, limit=4) as pool:
        wait_for(pool, 4)
        assert len(pieces(pool.draw(50))) == 50
        assert any(name != "colonnade randomisers" for name, _ in source.drawn)


def test_a_closed_pool_keeps_nothing_and_still_draws():
    pool = RandomiserPool(Counting(), limit=8)
    wait_for(pool, 8)
    pool.close()
    pool.close()
    assert pool.stock == 0
    assert not pool._thread.is_alive()
    assert len(pieces(pool.draw(3))) == 3
    assert pool.stock == 0


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_while_the_thread_holds_the_lock_does_not_hang_the_child():
    source = Counting()
    with RandomiserPool(source, limit=8) as pool:
        wait_for(pool, 8)
        source.hold.clear()
        with pool._lock:
            pool._stock.clear()
        pool._wanted.set()
        deadline = time.monotonic() + 10
        while not pool._lock.locked() and time.monotonic() < deadline:
            time.sleep(0.001)
        child = os.fork()
        if child == 0:
            source.hold.set()
            os._exit(0 if len(pieces(pool.draw(2))) == 2 else 1)
        source.hold.set()
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_hands_out_nothing_of_its_parents_stock():
    with RandomiserPool(Counting(), limit=8) as pool:
        wait_for(pool, 8)
        parents = {bytes(p) for block in list(pool._stock) for p in pieces(block)}
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writing, pool.draw(8).to_bytes())
            os._exit(0)
        os.waitpid(child, 0)
        data = os.read(reading, 8 * WIDTH)
        os.close(reading)
        os.close(writing)
        children = {data[i : i + WIDTH] for i in range(0, len(data), WIDTH)}
        assert len(children) == 8
        assert not children & parents
        assert not children & set(pieces(pool.draw(8)))
