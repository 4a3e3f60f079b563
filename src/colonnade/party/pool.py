"""Randomisers prepared while this party waits for the other one.

A background thread of low priority keeps a bounded stock of encryptions of zero. Each is handed out
once: what is taken leaves the stock under the lock. A stock never crosses a fork (the child starts
empty; its source re-keys itself), is never stored, and ends with the pool.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from types import TracebackType

import numpy as np

from colonnade.crypto import Randomisers
from colonnade.native import Residues

__all__ = ["RandomiserPool"]

# Small enough that a caller who finds the stock empty does not wait long for the lock.
_BLOCK = 8
_NICENESS = 10


class RandomiserPool:
    """A `Randomisers` source in front of another one; close it, or use it as a context manager.

    source: computes randomisers; used from one thread at a time. limit: most that are kept.
    """

    def __init__(self, source: Randomisers, limit: int = 256) -> None:
        self._source = source
        self._limit = limit
        self._stock: deque[Residues] = deque()
        self._lock = threading.Lock()
        self._wanted = threading.Event()
        self._closed = False
        self._pid = os.getpid()
        self._wanted.set()
        self._thread = threading.Thread(
            target=self._fill, daemon=True, name="colonnade randomisers"
        )
        self._thread.start()

    def draw(self, count: int) -> Residues:
        """Return `count` fresh n-th residues, from the stock as far as it goes."""
        if os.getpid() != self._pid:
            self._forget_parent()
        with self._lock:
            taken = [self._stock.popleft() for _ in range(min(count, len(self._stock)))]
            missing = count - len(taken)
            if missing or not taken:
                taken.append(self._source.draw(missing))
        self._wanted.set()
        return Residues.concat(taken)

    @property
    def stock(self) -> int:
        """Randomisers in stock."""
        return len(self._stock)

    def close(self) -> None:
        """Stop the thread and drop the stock. Idempotent; `draw` still works, without a stock."""
        self._closed = True
        self._wanted.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._lock:
            self._stock.clear()

    def __enter__(self) -> RandomiserPool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _forget_parent(self) -> None:
        # A forked child must not hand out what its parent hands out too. It has no filling thread,
        # which may have held the lock at the fork.
        self._lock = threading.Lock()
        self._stock.clear()
        self._closed = True
        self._pid = os.getpid()

    def _fill(self) -> None:
        # Where threads have a priority of their own, computing for the peer comes first.
        with contextlib.suppress(OSError, AttributeError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        while not self._closed:
            self._wanted.wait()
            self._wanted.clear()
            while not self._closed and len(self._stock) < self._limit:
                with self._lock:
                    block = self._source.draw(_BLOCK)
                    for i in range(_BLOCK):
                        self._stock.append(block.take(np.array([i], dtype=np.int64)))
