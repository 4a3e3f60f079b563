"""The command line: init, serve, train, predict, runs, fingerprint, demo."""

from __future__ import annotations

import argparse
import json
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.text import Text

from colonnade import __version__
from colonnade.errors import ColonnadeError, UsageError
from colonnade.party.certificates import describe
from colonnade.party.config import load_party_config, read_party_config
from colonnade.party.init import renew, write_party
from colonnade.party.job import load_job
from colonnade.party.progress import JsonReporter, Reporter, RichReporter, printable
from colonnade.party.report import metrics_table, outbox_table, runs_table
from colonnade.party.run_folder import ERROR, FAILED, RunFolder, list_runs
from colonnade.wire.messages import one_line

__all__ = ["main"]

_FAILED = 1
_USAGE = 2
_INTERRUPTED = 130
_LONGEST_ERROR = 10_000


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code (0 done, 1 failed, 2 wrong usage, 130 stopped)."""
    options = _parser().parse_args(argv)
    console = Console(stderr=True)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        command: Callable[[argparse.Namespace], int] = options.command
        return command(options)
    except ColonnadeError as error:
        _say(console, f"error: {one_line(str(error), _LONGEST_ERROR)}", style="bold red")
        return _USAGE if isinstance(error, UsageError) else _FAILED
    except KeyboardInterrupt:
        _say(console, "stopped; the other side of a running job was told")
        return _INTERRUPTED


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    # The other side is told that the operator stopped, as for Ctrl-C.
    raise KeyboardInterrupt


def _say(console: Console, text: str, style: str = "") -> None:
    """One line, left whole: a path or fingerprint that is cut in two cannot be copied."""
    head, _, rest = text.partition(": ")
    styled = Text.assemble((f"{head}: ", style), rest) if style else Text(text)
    console.print(styled, highlight=False, soft_wrap=True)


# -- commands ---------------------------------------------------------------------------------


def _init(options: argparse.Namespace) -> int:
    console = Console()
    if options.renew is not None:
        path = renew(options.renew)
        _say(console, f"renewed {path}")
        _say(console, str(describe(path)))
        _say(console, "Send the new file to the peer, who compares it again; models stay valid.")
        return 0
    if not options.name or not options.role or not options.peer:
        raise UsageError("init needs NAME, --role and --peer (or --renew CONFIG)")
    address = options.listen or options.dial
    if address is None:
        raise UsageError("init needs --listen HOST:PORT or --dial HOST:PORT")
    host, port = _address(address)
    written = write_party(
        options.directory,
        options.name,
        options.role,
        data=options.data,
        peer_name=options.peer,
        host=host,
        port=port,
        mode="listen" if options.listen else "dial",
    )
    for path in written:
        _say(console, f"wrote {path}")
    _say(console, f"certificate {describe(written[1])}")
    pin = options.directory / "peers" / f"{options.peer}.crt.pem"
    _say(console, "Next:")
    _say(console, f"  1. read {written[0]} and correct it: ids, label, offered columns, limits")
    _say(console, f"  2. send {written[1]} to {options.peer!r}; keep {written[2]} secret")
    _say(console, f"  3. save the certificate of {options.peer!r} as {pin}")
    _say(console, f"  4. compare both by telephone: colonnade fingerprint {pin}")
    start = f"colonnade serve --config {written[0]}"
    if options.role == "label":
        start = f"colonnade train --config {written[0]} {options.directory / 'job.toml'} --dry-run"
    _say(console, f"  5. {start}")
    return 0


def _fingerprint(options: argparse.Namespace) -> int:
    _say(Console(), str(describe(options.certificate)))
    return 0


def _serve(options: argparse.Namespace) -> int:
    from colonnade.party.feature_session import ServeOptions  # torch takes seconds to import
    from colonnade.party.serve import serve

    config = load_party_config(options.config)
    reporter = _reporter(options)
    console = Console(stderr=True)
    try:
        failed = serve(config, reporter, ServeOptions(console, options.dry_run), jobs=options.jobs)
    finally:
        reporter.close()
    return _FAILED if failed else 0


def _train(options: argparse.Namespace) -> int:
    from colonnade.party.label_run import train
    from colonnade.party.proposal import LabelOptions

    config, job = load_party_config(options.config), load_job(options.job)
    reporter = _reporter(options)
    try:
        run_options = LabelOptions(Console(stderr=True), options.dry_run)
        folder = train(config, job, reporter, run_options)
    finally:
        reporter.close()
    if folder is None:
        return 0
    if options.progress == "json":
        print(json.dumps({"run": str(folder)}), flush=True)
    else:
        show_run(folder, Console())
    return 0


def _predict(options: argparse.Namespace) -> int:
    from colonnade.party.label_predict import predict, unknown_path
    from colonnade.party.proposal import LabelOptions

    config = load_party_config(options.config)
    reporter = _reporter(options)
    try:
        run_options = LabelOptions(Console(stderr=True), options.dry_run)
        found = predict(config, options.model, options.data, options.output, reporter, run_options)
    finally:
        reporter.close()
    if found is None:
        return 0
    if options.progress == "json":
        print(json.dumps({"run": str(found.folder), "output": str(options.output)}), flush=True)
        return 0
    console = Console()
    _say(console, f"{found.scored} records scored: {options.output}")
    if found.unknown:
        _say(
            console,
            f"{found.unknown} records unknown to the other side, not scored: "
            f"{unknown_path(options.output)}",
        )
    return 0


def _runs(options: argparse.Namespace) -> int:
    console = Console()
    if options.run is not None:
        show_run(options.run, console)
        return 0
    if options.config is None:
        raise UsageError("runs needs a RUN folder or --config FILE")
    folder = read_party_config(options.config).run.folder
    entries = list_runs(folder)
    if not entries:
        _say(console, f"no runs in {folder}")
        return 0
    console.print(runs_table(folder, entries))
    return 0


def show_run(path: Path, console: Console) -> None:
    """Print what a finished run found and what left this party, or why a failed one failed.

    Raises
        IntegrityError: there is no such run, or it is damaged or unfinished.
    """
    if path.name.endswith(FAILED) and (path / ERROR).is_file():
        _say(console, f"failed: {printable((path / ERROR).read_text(encoding='utf-8').strip())}")
        return
    folder = RunFolder.open(path)
    facts = folder.read_json("run.json")
    _say(
        console,
        f"{folder.run_id}: {facts['kind']} with {facts['peer']!r}, {facts['records']} records, "
        f"{facts['seconds']:.1f} s",
    )
    if (folder.path / "metrics.json").exists():
        results = folder.read_json("metrics.json")["test"]
        if results:
            console.print(metrics_table("Test records", results))
    for warning in folder.read_json("warnings.json"):
        _say(console, f"WARNING {warning}")
    console.print(outbox_table(facts["party"], folder.read_json("outbox.json")))
    _say(console, f"run folder: {folder.path}")


def _demo(options: argparse.Namespace) -> int:
    from colonnade.party.demo import run_demo

    return run_demo(options.folder, Console())


def _reporter(options: argparse.Namespace) -> Reporter:
    return JsonReporter() if options.progress == "json" else RichReporter()


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"got the address {text!r}; want HOST:PORT, for instance 0.0.0.0:7420")
    return host, int(port)


# -- grammar ----------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="colonnade",
        description="Train one model on columns that belong to different organisations, without "
        "any of them showing its rows to another.",
        epilog="Start with 'colonnade demo', then 'colonnade init --help'.",
    )
    parser.add_argument("--version", action="version", version=f"colonnade {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_init(commands)
    _add_serve(commands)
    _add_train(commands)
    _add_predict(commands)
    _add_others(commands)
    return parser


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    run: Callable[[argparse.Namespace], int],
    help_: str,
    example: str,
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=help_,
        description=help_,
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=run)
    return parser


def _add_init(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "init",
        _init,
        "write a commented configuration, a key pair and a certificate; or renew a certificate",
        "colonnade init bank --role label --peer telecom --listen 0.0.0.0:7420 "
        "--data customers.csv\n  colonnade init --renew bank.toml",
    )
    parser.add_argument("name", nargs="?", help="this party's name")
    parser.add_argument(
        "--role",
        choices=("label", "feature"),
        help="this party's role: it holds the labels, or further columns",
    )
    parser.add_argument("--peer", help="the other party's name")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--listen", metavar="HOST:PORT", help="wait for the peer at this address")
    where.add_argument("--dial", metavar="HOST:PORT", help="connect to the peer there")
    parser.add_argument("--data", type=Path, metavar="FILE", help="CSV, Parquet or LIBSVM file")
    parser.add_argument(
        "--directory", type=Path, default=Path(), help="where to write (default: here)"
    )
    parser.add_argument(
        "--renew", type=Path, metavar="CONFIG", help="renew the certificate of a configuration"
    )


def _add_serve(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "serve",
        _serve,
        "feature party: take part in jobs, each shown and approved before it runs",
        "colonnade serve --config telecom.toml\n"
        "  colonnade serve --config telecom.toml --dry-run   # show jobs, run none",
    )
    _add_common(parser, "show each job and refuse it; go on serving")
    parser.add_argument("--jobs", type=_positive, metavar="N", help="stop after N jobs")


def _add_train(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "train",
        _train,
        "label party: train and evaluate a model together with the feature party",
        "colonnade train --config bank.toml job.toml\n"
        "  colonnade train --config bank.toml job.toml --dry-run   # show both sides, run nothing",
    )
    _add_common(parser, "show what would run on both sides, then stop")
    parser.add_argument("job", type=Path, help="the job file (TOML)")


def _add_predict(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "predict",
        _predict,
        "label party: score new records with a trained model",
        "colonnade predict --config bank.toml --model runs/first-job-... --data new.csv "
        "--output scores.csv",
    )
    _add_common(parser, "show what would run on both sides, then stop")
    parser.add_argument("--model", type=Path, required=True, help="a finished run's folder")
    parser.add_argument("--data", type=Path, required=True, help="new records, same form")
    parser.add_argument("--output", type=Path, required=True, help="CSV file to write")


def _add_others(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    runs = _command(
        commands,
        "runs",
        _runs,
        "list runs, or show one: metrics and what left this party",
        "colonnade runs --config bank.toml\n  colonnade runs runs/first-job-...",
    )
    runs.add_argument("run", type=Path, nargs="?", help="a finished run's folder")
    runs.add_argument("--config", type=Path, help="this party's configuration")
    fingerprint = _command(
        commands,
        "fingerprint",
        _fingerprint,
        "show whose a certificate is, how long it is valid, and its fingerprint",
        "colonnade fingerprint peers/telecom.crt.pem",
    )
    fingerprint.add_argument("certificate", type=Path)
    demo = _command(
        commands,
        "demo",
        _demo,
        "two parties on this machine train on real data over mutual TLS, evaluate and predict",
        "colonnade demo --folder runs/demo",
    )
    demo.add_argument(
        "--folder", type=Path, default=Path("runs/demo"), help="where to work (default: runs/demo)"
    )


def _add_common(parser: argparse.ArgumentParser, dry_run: str) -> None:
    parser.add_argument("--config", type=Path, required=True, help="this party's configuration")
    parser.add_argument("--dry-run", action="store_true", help=dry_run)
    parser.add_argument(
        "--progress", choices=("bars", "json"), default="bars", help="how to show progress"
    )


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"got {text!r}; want a number from 1 up")
    return int(text)
