"""Two parties with small tables, certificates and configurations, and ways to let them run.

`Workplace` writes what two organisations would write; `train` and `predict` run both sides in two
threads over mutual TLS on this machine, `start` runs a command as a process of its own.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from colonnade.party.certificates import make_identity
from colonnade.party.config import PartyConfig, load_party_config
from colonnade.party.feature_session import ServeOptions
from colonnade.party.job import Job, load_job
from colonnade.party.label_predict import predict
from colonnade.party.label_run import train
from colonnade.party.progress import QuietReporter
from colonnade.party.proposal import LabelOptions
from colonnade.party.run_folder import list_runs
from colonnade.party.serve import serve

HOST = "127.0.0.1"
SOURCES = Path(__file__).resolve().parents[1] / "src"
BANK, SHOP = "bank", "shop"  # the label party and the feature party
PEOPLE = 60

Rows = list[list[object]]


class KeepingReporter(QuietReporter):
    """Keeps every note for good; a service clears its transcript after each job."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []
        self.on_progress: Callable[[str, int], None] = lambda step, done: None

    def note(self, text: str) -> None:
        super().note(text)
        self.notes.append(text)

    def progress(self, step: str, done: int, total: int, detail: str = "") -> None:
        super().progress(step, done, total, detail)
        self.on_progress(step, done)


@dataclass
class Outcome:
    """How one run ended on both sides, and everything either operator could read."""

    label: Any
    feature: Any
    label_reporter: KeepingReporter
    feature_reporter: KeepingReporter
    label_screen: io.StringIO
    feature_screen: io.StringIO

    @property
    def label_text(self) -> str:
        """All that the label party's operator saw."""
        error = str(self.label) if isinstance(self.label, Exception) else ""
        return "\n".join([*self.label_reporter.notes, self.label_screen.getvalue(), error])

    @property
    def feature_text(self) -> str:
        """All that the feature party's operator saw."""
        error = str(self.feature) if isinstance(self.feature, Exception) else ""
        return "\n".join([*self.feature_reporter.notes, self.feature_screen.getvalue(), error])

    @property
    def succeeded(self) -> bool:
        """Whether both sides ended well."""
        return not isinstance(self.label, BaseException) and self.feature == 0


@dataclass
class Workplace:
    """Both parties' files in one folder; change the tables, then `write`."""

    folder: Path
    label_listens: bool = False
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    job: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def make(cls, folder: Path, *, label_listens: bool = False) -> Workplace:
        self = cls(folder, label_listens)
        for name in (BANK, SHOP):
            make_identity(name, folder / name / "identity")
        port = free_port()
        for name, peer, role in ((BANK, SHOP, "label"), (SHOP, BANK, "feature")):
            (folder / name / "peers").mkdir()
            self.pin(peer, at=name)
            listens = label_listens == (name == BANK)
            self.tables[name] = {
                "name": name,
                "role": role,
                "connection": {
                    "mode": "listen" if listens else "dial",
                    "host": HOST,
                    "port": port,
                },
                "identity": {
                    "certificate": f"identity/{name}.crt.pem",
                    "private_key": f"identity/{name}.key.pem",
                },
                f"peers.{peer}": {"certificate": f"peers/{peer}.crt.pem"},
                "data": {"path": "data.csv", "ids": ["id"]},
                "limits": {
                    "connect_s": 10.0,
                    "receive_s": 30.0,
                    "reconnect_s": 3.0,
                    "dead_after_s": 10.0,
                },
                "keys": {"insecure_bits": 512},
                "run": {"folder": "runs", "threads": 1},
            }
        self.tables[BANK]["data"]["label"] = "bought"
        self.tables[SHOP]["approval"] = {
            "mode": "config",
            "min_intersection": 2,
            "min_batch_size": 2,
            "max_outputs_per_row": 10_000,
            "insecure_jobs_allowed": True,
        }
        self.tables[SHOP]["predict"] = {"min_intersection": 1}
        self.job = {
            "name": "purchase",
            "feature_parties": [SHOP],
            "epochs": 2,
            "batch_size": 16,
            "learning_rate": 0.2,
            "momentum": 0.9,
            "insecure_key_bits": 512,
        }
        label, feature = example_tables()
        self.data(BANK, label)
        self.data(SHOP, feature)
        return self

    def pin(self, peer: str, *, at: str) -> None:
        """Copy `peer`'s present certificate to where `at` pins it."""
        shutil.copy(
            self.folder / peer / "identity" / f"{peer}.crt.pem",
            self.folder / at / "peers" / f"{peer}.crt.pem",
        )

    def data(self, party: str, rows: Rows, name: str = "data.csv") -> Path:
        """Write a table, header first, as a party's CSV file."""
        path = self.folder / party / name
        with path.open("w", newline="", encoding="utf-8") as stream:
            csv.writer(stream, lineterminator="\n").writerows(rows)
        return path

    def text(self, party: str, content: bytes | str, name: str = "data.csv") -> Path:
        """Write a party's file byte for byte."""
        path = self.folder / party / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def write(self) -> None:
        """Write both configurations and the job file."""
        for name, table in self.tables.items():
            (self.folder / name / f"{name}.toml").write_text(to_toml(table), encoding="utf-8")
        (self.folder / BANK / "job.toml").write_text(to_toml(self.job), encoding="utf-8")

    def config(self, party: str) -> PartyConfig:
        self.write()
        return load_party_config(self.folder / party / f"{party}.toml")

    def loaded_job(self) -> Job:
        self.write()
        return load_job(self.folder / BANK / "job.toml")

    def runs(self, party: str, state: str = "finished") -> list[Path]:
        """Run folders of a party, oldest first."""
        entries = [run for run in list_runs(self.folder / party / "runs") if run.state == state]
        return sorted((run.path for run in entries), key=lambda path: path.stat().st_mtime_ns)

    def models(self, party: str) -> list[Path]:
        """Finished training runs of a party, oldest first."""
        return [path for path in self.runs(party) if (path / "model.json").exists()]

    # -- both sides in two threads ---------------------------------------------------------------

    def train(self, *, dry_run: bool = False, **serving: Any) -> Outcome:
        return self.together(
            lambda reporter, console: self.train_here(reporter, console, dry_run=dry_run), **serving
        )

    def train_here(
        self, reporter: KeepingReporter, console: Console | None, *, dry_run: bool = False
    ) -> Path | None:
        """The label party's training alone, beside a service that runs already."""
        options = LabelOptions(console or Console(file=io.StringIO()), dry_run)
        return train(self.config(BANK), self.loaded_job(), reporter, options)

    def predict(
        self, model: Path, data: Path, output: Path, *, dry_run: bool = False, **serving: Any
    ) -> Outcome:
        def label(reporter: KeepingReporter, console: Console) -> object:
            options = LabelOptions(console, dry_run)
            return predict(self.config(BANK), model, data, output, reporter, options)

        return self.together(label, **serving)

    def together(
        self,
        label: Callable[[KeepingReporter, Console], object],
        *,
        serve_dry_run: bool = False,
        jobs: int = 1,
        label_reporter: KeepingReporter | None = None,
        feature_reporter: KeepingReporter | None = None,
    ) -> Outcome:
        """Run `label` beside a service of `jobs` jobs."""
        reporters = (label_reporter or KeepingReporter(), feature_reporter or KeepingReporter())
        screens = (io.StringIO(), io.StringIO())
        consoles = [Console(file=screen, width=100) for screen in screens]
        self.write()
        config = self.config(SHOP)

        def feature() -> int:
            options = ServeOptions(consoles[1], serve_dry_run)
            return serve(config, reporters[1], options, jobs=jobs)

        results = side_by_side(lambda: label(reporters[0], consoles[0]), feature)
        return Outcome(results[0], results[1], *reporters, *screens)

    # -- processes -------------------------------------------------------------------------------

    def start(self, party: str, *arguments: str, wrapper: str = "") -> Command:
        """Start `colonnade ARGUMENTS --config ...` in the party's folder.

        wrapper: Python text that runs before the command in the same process.
        """
        self.write()
        code = f"{wrapper}\nimport sys\nfrom colonnade.party.cli import main\nsys.exit(main())"
        command = [arguments[0], "--config", f"{party}.toml", *arguments[1:]]
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", code, *command],
            cwd=self.folder / party,
            env={**os.environ, "PYTHONPATH": str(SOURCES), "COLUMNS": "100"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return Command(process)


class Command:
    """A running command; its output is read all the while."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._lines: list[str] = []
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stream:
            for line in stream:
                with self._news:
                    self._lines.append(line)
                    self._news.notify_all()
        with self._news:
            self._news.notify_all()

    @property
    def output(self) -> str:
        return "".join(self._lines)

    def wait_for(self, text: str, timeout_s: float = 30.0) -> None:
        """Wait until the command has written `text`."""
        with self._news:
            found = self._news.wait_for(
                lambda: text in self.output or not self._reader.is_alive(), timeout_s
            )
        assert found, f"{text!r} did not come within {timeout_s} s:\n{self.output}"
        assert text in self.output, self.output

    def wait(self, timeout_s: float = 60.0) -> int:
        """Wait for the end; returns the exit code. A command that hangs is killed and fails."""
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self._reader.join(5)
            raise AssertionError(f"still running after {timeout_s} s:\n{self.output}") from None
        self._reader.join(10)
        return code

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait(10)
        self._reader.join(10)


def side_by_side(*acts: Callable[[], object]) -> list[Any]:
    """Run `acts` at once; returns each result, or the exception that it raised."""
    results: list[Any] = [None] * len(acts)

    def run(index: int) -> None:
        try:
            results[index] = acts[index]()
        except BaseException as error:  # noqa: BLE001 (judged by the caller)
            results[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "a side hangs"
    return results


def example_tables(people: int = PEOPLE) -> tuple[Rows, Rows]:
    """The label party's and the feature party's tables: mostly the same people, other orders."""
    rng = np.random.default_rng(7)
    facts = rng.normal(size=(people, 4))
    score = facts @ [1.0, -1.0, 2.0, 1.5] + rng.normal(size=people)
    bought = score > np.median(score)
    regions = ["north", "south", "west"]
    label: Rows = [["id", "age", "balance", "bought"]]
    label += [
        [f"p{i:03d}", f"{40 + 9 * facts[i, 0]:.3f}", f"{facts[i, 1]:.4f}", "yes" if y else "no"]
        for i, y in enumerate(bought)
    ]
    label += [[f"b{i}", "33.0", "0.1", "no"] for i in range(3)]
    feature: Rows = [["id", "visits", "spend", "region"]]
    feature += [
        [f"p{i:03d}", f"{facts[i, 2]:.4f}", f"{facts[i, 3]:.4f}", regions[i % 3]]
        for i in rng.permutation(people)
    ]
    feature += [[f"s{i}", "0.5", "0.25", "west"] for i in range(4)]
    return label, feature


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def to_toml(table: dict[str, Any]) -> str:
    """Write plain keys first, then one level of tables (a dotted key is a nested table)."""
    plain = [f"{key} = {_value(item)}" for key, item in table.items() if not _is_table(item)]
    for key, item in table.items():
        if _is_table(item):
            plain += [f"[{key}]", *(f"{json.dumps(k)} = {_value(v)}" for k, v in item.items())]
    return "\n".join(plain) + "\n"


def _is_table(item: object) -> bool:
    return isinstance(item, dict)


def _value(item: object) -> str:
    if isinstance(item, Sequence) and not isinstance(item, str):
        return "[" + ", ".join(_value(part) for part in item) + "]"
    return json.dumps(item, ensure_ascii=False)


class Proxy:
    """A TCP relay that breaks the connections through it after every `cut_after` bytes."""

    def __init__(self, target: int, cut_after: int) -> None:
        self._target = target
        self._cut_after = cut_after
        self.cuts = 0
        self._server = socket.create_server((HOST, 0))
        self.port = int(self._server.getsockname()[1])
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            try:
                far = socket.create_connection((HOST, self._target))
            except OSError:
                near.close()
                continue
            passed = [0]
            both = [
                threading.Thread(target=self._pump, args=(*pair, passed))
                for pair in ((near, far), (far, near))
            ]
            for thread in both:
                thread.start()

    def _pump(self, source: socket.socket, sink: socket.socket, passed: list[int]) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(4096):
                passed[0] += len(data)
                if passed[0] > self._cut_after:
                    self.cuts += 1
                    break
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(5)
