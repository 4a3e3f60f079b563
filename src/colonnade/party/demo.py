"""The demonstration: two processes on this machine train on real data over mutual TLS.

A clinic holds diagnoses and 12 measurements of the breast cancer data that scikit-learn ships, a
laboratory the other 18; each file in its own order, some patients missing on each side. Everything
goes through the commands that two organisations would use; this process only starts them, draws
their progress, and afterwards compares with training on the joined data, which only it can see.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import TaskID
from rich.table import Table

from colonnade.data.bundled import DemoFiles, write_demo_data
from colonnade.errors import UsageError
from colonnade.nn.plain import PlainRegression, fit_plain
from colonnade.party.config import PartyConfig, load_party_config
from colonnade.party.init import write_party
from colonnade.party.job import Job
from colonnade.party.metrics import METRIC_NAMES, binary_metrics
from colonnade.party.progress import make_progress
from colonnade.party.report import metrics_table, outbox_table, print_text
from colonnade.party.run_folder import RunFolder, list_runs
from colonnade.party.session import layer_settings, plan_of
from colonnade.party.source import load_source

__all__ = ["run_demo"]

_CLINIC, _LABORATORY = "clinic", "laboratory"
_MARKER = ".colonnade-demo"
_EPOCHS, _BATCH = 7, 48
_LINES_OF_FAILURE = 20


def run_demo(folder: Path, console: Console) -> int:
    """Run the whole main job in `folder` (a former demonstration there is replaced).

    Returns the exit code.

    Raises
        UsageError: `folder` holds something else.
    """
    started = time.monotonic()
    # Finished runs know their path in full; what is compared with it must be full as well.
    folder = folder.resolve()
    files = _prepare(folder)
    console.print(
        "[bold]Colonnade[/]: a clinic (diagnoses, 12 columns) and a laboratory (18 columns) train\n"
        "one model. Neither shows its rows to the other. Two processes, mutual TLS,\n"
        "2048-bit Paillier.\n"
    )
    show = _Display(console)
    try:
        with show.progress:
            codes = _run_commands(show, folder, files)
    finally:
        show.stop_all()
    if any(codes):
        console.print("\n".join(show.lines[-_LINES_OF_FAILURE:]), markup=False, highlight=False)
        console.print(f"the demonstration failed; see {folder}", style="bold red", soft_wrap=True)
        return 1
    _conclude(folder, files, console, show.lines, time.monotonic() - started)
    return 0


def _run_commands(show: _Display, folder: Path, files: DemoFiles) -> list[int]:
    """What two organisations would type; returns the exit codes."""
    laboratory, clinic = str(folder / "laboratory.toml"), str(folder / "clinic.toml")
    serve = show.start(_LABORATORY, ["serve", "--config", laboratory, "--jobs", "2"])
    job = str(folder / "job.toml")
    codes = [show.follow(show.start(_CLINIC, ["train", "--config", clinic, job]))]
    if codes[0] == 0:
        predict = _predict_arguments(folder, files, clinic)
        codes.append(show.follow(show.start(_CLINIC, predict)))
        codes.append(show.follow(serve))
    return codes


def _prepare(folder: Path) -> DemoFiles:
    """Data, identities, configurations and the job, as `colonnade init` makes them."""
    if folder.exists() and any(folder.iterdir()):
        if not (folder / _MARKER).exists():
            raise UsageError(f"got {folder}, which holds other things; choose another --folder")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _MARKER).touch()
    files = write_demo_data(folder / "data")
    port = _free_port()
    settings: list[tuple[str, Any, str, Path, str]] = [
        (_CLINIC, "label", _LABORATORY, files.label, "listen"),
        (_LABORATORY, "feature", _CLINIC, files.feature, "dial"),
    ]
    for name, role, peer, data, mode in settings:
        paths = write_party(
            folder / name,
            name,
            role,
            data=data,
            peer_name=peer,
            host="127.0.0.1",
            port=port,
            mode=mode,
        )
        shutil.move(paths[0], folder / f"{name}.toml")
    for name, peer in ((_CLINIC, _LABORATORY), (_LABORATORY, _CLINIC)):
        pinned = folder / name / "peers" / f"{peer}.crt.pem"
        shutil.copy(folder / peer / "identity" / f"{peer}.crt.pem", pinned)
        _edit(folder / f"{name}.toml", _moved(name))
    _edit(
        folder / f"{_LABORATORY}.toml",
        {
            'mode = "ask"': 'mode = "config"',
            '# path = "new.csv"': 'path = "data/feature_new.csv"',
            "# max_outputs_per_row = 10": "max_outputs_per_row = 10",
        },
    )
    shutil.move(folder / _CLINIC / "job.toml", folder / "job.toml")
    _edit(
        folder / "job.toml",
        {
            'name = "first-job"': 'name = "diagnosis"',
            "epochs = 10": f"epochs = {_EPOCHS}",
            "batch_size = 128": f"batch_size = {_BATCH}",
            "learning_rate = 0.05": "learning_rate = 0.1",
        },
    )
    return files


def _moved(name: str) -> dict[str, str]:
    # The configuration moved up one folder, so that both stand side by side for a reader.
    return {
        '"identity/': f'"{name}/identity/',
        '"peers/': f'"{name}/peers/',
        '"../data/': '"data/',
        'folder = "runs"': f'folder = "{name}/runs"',
    }


def _edit(path: Path, changes: dict[str, str]) -> None:
    text = path.read_text(encoding="utf-8")
    for old, new in changes.items():
        if old not in text:
            raise UsageError(f"{path} has no line with {old!r}")
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _predict_arguments(folder: Path, files: DemoFiles, config: str) -> list[str]:
    arguments = ["predict", "--config", config, "--model", str(_finished(folder, _CLINIC))]
    return [*arguments, "--data", str(files.label_new), "--output", str(folder / "predictions.csv")]


def _finished(folder: Path, party: str) -> Path:
    runs = [run for run in list_runs(folder / party / "runs") if run.state == "finished"]
    trained = [run.path for run in runs if (run.path / "model.json").exists()]
    if not trained:
        raise UsageError(f"{folder / party} holds no finished run")
    return trained[-1]


@dataclass
class _Party:
    """One running command of one party and the lines it has written."""

    name: str
    process: subprocess.Popen[str]
    reader: threading.Thread


class _Display:
    """Starts commands, draws their steps, keeps what they said."""

    def __init__(self, console: Console) -> None:
        self.progress = make_progress(console)
        self.lines: list[str] = []
        self._events: queue.Queue[tuple[str, str]] = queue.Queue()
        self._tasks: dict[tuple[str, str], TaskID] = {}
        self._running: list[_Party] = []

    def start(self, name: str, arguments: Sequence[str]) -> _Party:
        """Start `colonnade ARGUMENTS` as a process of its own."""
        threads = str(max(1, (os.cpu_count() or 2) // 2))
        process = subprocess.Popen(  # noqa: S603 (our own command)
            [sys.executable, "-m", "colonnade", *arguments, "--progress", "json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "COLUMNS": "100", "OMP_NUM_THREADS": threads},
        )
        reader = threading.Thread(target=self._read, args=(name, process), daemon=True)
        reader.start()
        party = _Party(name, process, reader)
        self._running.append(party)
        return party

    def follow(self, party: _Party) -> int:
        """Draw until `party` has ended; returns its exit code."""
        while party.reader.is_alive() or not self._events.empty():
            try:
                self._show(*self._events.get(timeout=0.1))
            except queue.Empty:
                continue
        return party.process.wait()

    def stop_all(self) -> None:
        """End what still runs."""
        for party in self._running:
            if party.process.poll() is None:
                party.process.terminate()
            self.follow(party)

    def _read(self, name: str, process: subprocess.Popen[str]) -> None:
        if process.stdout is not None:
            with process.stdout as stream:
                for line in stream:
                    self._events.put((name, line.rstrip("\n")))

    def _show(self, name: str, line: str) -> None:
        try:
            event = json.loads(line) if line.startswith("{") else None
        except json.JSONDecodeError:
            event = None
        if event is None or "step" not in event:
            text = line if event is None else str(event.get("note", line))
            self.lines.append(f"[{name}] {text}")
            if event is not None and "note" in event:
                self._print(f"{name:>10}  {text}")
            return
        if not self.progress.console.is_terminal:
            if event["done"] == event["total"]:
                self._print(f"{name:>10}  {event['step']}: {event['total']} done")
            return
        key = (name, str(event["step"]))
        if (
            key not in self._tasks
            or event["done"] < self.progress.tasks[self._tasks[key]].completed
        ):
            self._tasks[key] = self.progress.add_task(f"{name:>10}  {key[1]}", detail="")
        self.progress.update(
            self._tasks[key],
            completed=event["done"],
            total=event["total"],
            detail=event["detail"],
        )

    def _print(self, text: str) -> None:
        self.progress.console.print(text, markup=False, highlight=False, soft_wrap=True)


def _conclude(
    folder: Path, files: DemoFiles, console: Console, lines: list[str], seconds: float
) -> None:
    """Compare, print the tables, and leave everything in the run folder."""
    clinic, laboratory = (RunFolder.open(_finished(folder, p)) for p in (_CLINIC, _LABORATORY))
    metrics = clinic.read_json("metrics.json")
    rows = {
        "federated": metrics["test"]["federated"],
        "plain, data joined": _joined(folder, clinic),
        "clinic alone": metrics["test"]["label party alone"],
    }
    new = _judge_predictions(folder, files)
    tables = [
        metrics_table(f"{rows['federated']['rows']} test patients", rows),
        _facts(metrics, new, seconds),
        outbox_table(_CLINIC, clinic.read_json("outbox.json")),
        outbox_table(_LABORATORY, laboratory.read_json("outbox.json")),
    ]
    for table in tables:
        console.print(table)
    text = "\n".join([*lines, *(print_text(table) for table in tables)])
    (folder / "report.txt").write_text(text, encoding="utf-8")
    summary = {"test": rows, "new_patients": new, "seconds": {**metrics["seconds"], "all": seconds}}
    summary["traffic"] = metrics["traffic"]
    (folder / "metrics.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    shutil.copy(clinic.path / "loss.png", folder / "loss.png")
    left = [
        f"\nIn {folder}:",
        "  predictions.csv, metrics.json, loss.png, report.txt",
        f"  {clinic.path.relative_to(folder)}: the clinic's share of the model",
        f"  {laboratory.path.relative_to(folder)}: the laboratory's share",
        f"  {_CLINIC}.toml, {_LABORATORY}.toml, job.toml: what two organisations would write",
    ]
    console.print("\n".join(left), markup=False, highlight=False, soft_wrap=True)


def _facts(metrics: dict[str, Any], new: dict[str, float | int], seconds: float) -> Table:
    traffic, spent = metrics["traffic"], metrics["seconds"]
    table = Table(title="What it took", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column()
    rounds = f"{traffic['rounds']} rounds"
    table.add_row(
        "seconds",
        f"align {spent['align']:.1f}, train and evaluate {spent['train']:.1f}, everything "
        f"{seconds:.1f}",
    )
    table.add_row(
        "bytes",
        f"clinic -> laboratory {traffic['sent_bytes']:,}; laboratory -> clinic "
        f"{traffic['received_bytes']:,}; {rounds}",
    )
    table.add_row(
        f"{new['rows']} new patients",
        ", ".join(f"{name} {new[key]:.4f}" for key, name in METRIC_NAMES.items() if key in new),
    )
    return table


def _joined(folder: Path, clinic: RunFolder) -> dict[str, float | int]:
    """The same model in plain text on both parties' columns, same rows, batches and test part."""
    job = Job.from_card(clinic.read_text("job.json"))
    configs: list[PartyConfig] = [
        load_party_config(folder / f"{party}.toml") for party in (_CLINIC, _LABORATORY)
    ]
    label = load_source(configs[0].data, with_labels=True)
    feature = load_source(configs[1].data)
    order = clinic.read_tensors("rows.safetensors")[0]["rows"]
    where = {record: row for row, record in enumerate(feature.ids)}
    matched = np.array([where[label.ids[row]] for row in order], dtype=np.int64)
    blocks = [label.matrix.take(order).decode(), feature.matrix.take(matched).decode()]
    y = label.labels[order].astype(np.float64)
    plan = plan_of(job, len(order))
    weights = [np.zeros((block.shape[1], 1)) for block in blocks]
    model = PlainRegression(blocks, layer_settings(job, plan.largest_batch).sgd(), weights)
    logits, _ = fit_plain(model, y, plan)
    return binary_metrics(y[plan.split.test], logits[:, 0])


def _judge_predictions(folder: Path, files: DemoFiles) -> dict[str, float | int]:
    outcomes = dict(
        line.rsplit(",", 1)
        for line in files.outcomes_new.read_text(encoding="utf-8").splitlines()[1:]
    )
    scored = (folder / "predictions.csv").read_text(encoding="utf-8").splitlines()[1:]
    cells = [line.split(",") for line in scored]
    y = np.array([outcomes[cell[0]] == "malignant" for cell in cells], dtype=np.float64)
    probability = np.clip([float(cell[1]) for cell in cells], 1e-9, 1 - 1e-9)
    return binary_metrics(y, np.log(probability / (1 - probability)))
