"""Seconds per training step of whole runs: two processes over mutual TLS on loopback.

    COLONNADE_DATA=... python -m benchmarks.training --json training.json
    python -m benchmarks.training --sets breast --steps 5

Each set is cut between the parties; both train `--steps` steps of logistic regression (connect-4:
three outputs) with the Paillier engine and with the plain engine, and report where their time went.
Idle is waiting for the other side's message; "python" is everything that no other row names.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_breast_cancer

from colonnade.data.real import load_a9a, load_connect4, load_higgs, load_w8a
from colonnade.nn.source import FeatureSource, LabelSource
from colonnade.party.certificates import make_identity
from colonnade.party.pool import RandomiserPool
from colonnade.protocol import paillier_engine
from colonnade.protocol.agreement import (
    KeyChoice,
    LayerSettings,
    Resources,
    agree_feature,
    agree_label,
)
from colonnade.ring import FixedMatrix, Streams
from colonnade.transport import Identity, Listener, PinnedPeer, TransportLimits, connect

BATCH = 128
SETS = ("a9a", "w8a", "connect-4", "higgs", "breast")
PARTS = ("encrypt", "load", "multiply", "randomise", "pack", "decrypt", "wire", "python", "idle")


class Clock:
    """Seconds by part; a part inside another is taken out of the outer one."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._inner = [0.0]

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count the block under `name`."""
        start = time.perf_counter()
        self._inner.append(0.0)
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self.seconds[name] += spent - self._inner.pop()
            self._inner[-1] += spent


class Timed:
    """Wraps an object and counts chosen methods."""

    def __init__(self, inner: Any, clock: Clock, parts: dict[str, str]) -> None:
        self._inner, self._clock, self._parts = inner, clock, parts

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in self._parts:
            return found

        def timed(*args: Any, **kwargs: Any) -> Any:
            with self._clock.part(self._parts[name]):
                return found(*args, **kwargs)

        return timed


ENGINE_PARTS = {
    "publish": "encrypt",
    "receive": "load",
    "multiply": "multiply",
    "seal": "pack",
    "open": "decrypt",
}


def sides(name: str) -> tuple[Any, Any, np.ndarray, bool, float]:
    """Feature party's part, label party's part, classes, whether whole numbers, declared range."""
    if name == "breast":
        x, y = load_breast_cancer(return_X_y=True)
        x = (x - x.mean(axis=0)) / x.std(axis=0)
        return x[:, 12:], x[:, :12], y, False, 64.0
    loader = {"a9a": load_a9a, "w8a": load_w8a, "connect-4": load_connect4, "higgs": load_higgs}
    x, y, _, _ = loader[name]()
    if name == "higgs":
        x = (x - x.mean(axis=0)) / x.std(axis=0)
        return x[:, :14], x[:, 14:], y, False, 64.0
    cut = 61 if name == "a9a" else x.shape[1] // 2
    return x[:, :cut], x[:, cut:], y, True, 1.0


def encode(x: Any, whole: bool, limit: float) -> FixedMatrix:
    return FixedMatrix.encode(x, [whole] * x.shape[1], [limit] * x.shape[1])


def batches(rows: int, steps: int) -> list[np.ndarray]:
    starts = [(i * BATCH) % (rows - BATCH + 1) for i in range(steps)]
    return [np.arange(start, start + BATCH) for start in starts]


def run_side(options: argparse.Namespace) -> dict[str, Any]:
    """One party's process."""
    x_a, x_b, y, whole, limit = sides(options.set)
    outputs = 3 if options.set == "connect-4" else 1
    clock, folder = Clock(), Path(options.folder)
    names = {"label": "feature", "feature": "label"}
    own, peer = options.side, names[options.side]
    identity = Identity(own, folder / f"{own}.crt.pem", folder / f"{own}.key.pem")
    pinned = PinnedPeer(peer, folder / f"{peer}.crt.pem")
    limits = TransportLimits(connect_s=60.0, receive_s=600.0)
    stack = contextlib.ExitStack()
    resources = Resources(
        Streams.from_os(),
        KeyChoice(options.bits),
        options.own_threads,
        lambda source: stack.enter_context(RandomiserPool(source)),
    )
    settings = LayerSettings(outputs, BATCH, 0.05, engine=options.engine)
    plan = batches(len(y), options.steps + 1)  # the first step warms up
    address = ("127.0.0.1", options.port)
    with stack:
        if own == "label":
            listener = stack.enter_context(Listener(address, identity, [pinned], limits))
            x = encode(x_b, whole, limit)
            return _label(listener.accept(), x, y, settings, resources, plan, clock)
        channel = connect(address, identity, pinned, limits)
        return _feature(channel, encode(x_a, whole, limit), settings, resources, plan, clock)


def _label(
    channel: Any,
    x: FixedMatrix,
    y: np.ndarray,
    settings: LayerSettings,
    resources: Resources,
    plan: list[np.ndarray],
    clock: Clock,
) -> dict[str, Any]:
    timed = Timed(channel, clock, {"receive": "idle", "send": "wire"})
    layer = agree_label(
        timed, x, settings, resources, kept_rows=len(x), expected_calls=2 * len(plan)
    )
    _time_engine(layer, clock)
    source = LabelSource(layer)
    bias = torch.zeros(settings.outputs, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([bias], lr=0.05, momentum=0.9)
    targets = torch.from_numpy(y)
    start = sent = received = rounds = 0.0
    for number, rows in enumerate(plan):
        if number == 1:
            clock.seconds.clear()
            start = time.perf_counter()
            sent, received = channel.meter.sent_bytes, channel.meter.received_bytes
            rounds = channel.meter.rounds
        logits = source(x.take(rows), rows) + bias
        if settings.outputs == 1:
            loss = torch.nn.functional.binary_cross_entropy_with_logits(
                logits[:, 0], targets[rows].double()
            )
        else:
            loss = torch.nn.functional.cross_entropy(logits, targets[rows].long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        source.step()
    total, steps = time.perf_counter() - start, len(plan) - 1
    source.finish()
    result = _shares(clock, total, steps)
    meter = channel.meter
    result |= {
        "step_s": total / steps,
        "to_feature": (meter.sent_bytes - sent) / steps,
        "to_label": (meter.received_bytes - received) / steps,
        "rounds": (meter.rounds - rounds) / steps,
    }
    channel.close()
    return result


def _feature(
    channel: Any,
    x: FixedMatrix,
    settings: LayerSettings,
    resources: Resources,
    plan: list[np.ndarray],
    clock: Clock,
) -> dict[str, Any]:
    timed = Timed(channel, clock, {"receive": "idle", "send": "wire"})
    layer = agree_feature(timed, x, resources, kept_rows=len(x), engine=settings.engine)
    _time_engine(layer, clock)
    source, start = FeatureSource(layer), 0.0
    for number, rows in enumerate(plan):
        source(x.take(rows), rows)
        if number == 0:
            clock.seconds.clear()
            start = time.perf_counter()
    source.finish()
    total = time.perf_counter() - start
    channel.close()
    return _shares(clock, total, len(plan) - 1)


def _time_engine(layer: Any, clock: Clock) -> None:
    context = layer._context
    engine = context.engine
    if isinstance(engine, paillier_engine.PaillierEngine):
        engine._randomisers = Timed(engine._randomisers, clock, {"draw": "randomise"})
    object.__setattr__(context, "engine", Timed(engine, clock, ENGINE_PARTS))


def _shares(clock: Clock, total: float, steps: int) -> dict[str, Any]:
    parts = {name: clock.seconds.get(name, 0.0) / steps for name in PARTS}
    parts["python"] = total / steps - sum(parts.values())
    return {"parts_s": parts}


def run_pair(options: argparse.Namespace, name: str, engine: str) -> dict[str, Any]:
    """Start both processes and join their reports."""
    with tempfile.TemporaryDirectory() as folder:
        for side in ("label", "feature"):
            make_identity(side, Path(folder))
        port = _free_port()
        processes = [
            subprocess.Popen(
                [
                    *(sys.executable, "-m", "benchmarks.training", "--side", side),
                    *("--set", name, "--engine", engine, "--folder", folder),
                    *("--port", str(port), "--bits", str(options.bits)),
                    *("--steps", str(options.steps), "--own-threads", str(options.threads)),
                ],
                stdout=subprocess.PIPE,
                text=True,
            )
            for side in ("label", "feature")
        ]
        outputs = [process.communicate()[0] for process in processes]
        if any(process.returncode for process in processes):
            raise SystemExit(f"{name}, {engine}: a party failed")
    label, feature = (json.loads(text.strip().splitlines()[-1]) for text in outputs)
    return label | {"label_s": label["parts_s"], "feature_s": feature["parts_s"]}


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def show(results: dict[str, dict[str, dict[str, Any]]], bits: int, console: Console) -> None:
    """Time, bytes and rounds per step, then the breakdown."""
    table = Table(title=f"per step, batch {BATCH}, {bits}-bit keys, both parties on this machine")
    for column in ("set", "engine", "ms", "KiB to A", "KiB to B", "rounds"):
        table.add_column(column, justify="left" if column in ("set", "engine") else "right")
    parts = Table(title="ms per step: label party / feature party")
    parts.add_column("set")
    for part in PARTS:
        parts.add_column(part, justify="right")
    for name, engines in results.items():
        for engine, found in engines.items():
            cells = [found["step_s"] * 1e3, found["to_feature"] / 1024, found["to_label"] / 1024]
            table.add_row(name, engine, *(f"{c:.1f}" for c in cells), f"{found['rounds']:.1f}")
            both = [
                f"{found['label_s'][p] * 1e3:.1f} / {found['feature_s'][p] * 1e3:.1f}"
                for p in PARTS
            ]
            parts.add_row(f"{name} {engine}", *both)
    console.print(table)
    console.print(parts)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--bits", type=int, default=2048)
    parser.add_argument("--threads", type=int, default=2, help="threads of each party")
    parser.add_argument("--json", metavar="FILE")
    for hidden in ("--side", "--set", "--engine", "--folder"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--own-threads", type=int, default=1, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.side:
        print(json.dumps(run_side(options)))
        return
    results = {
        name: {engine: run_pair(options, name, engine) for engine in ("paillier", "insecure_plain")}
        for name in options.sets
    }
    show(results, options.bits, Console())
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"bits": options.bits, "batch": BATCH, "sets": results}, file, indent=1)


if __name__ == "__main__":
    main()
