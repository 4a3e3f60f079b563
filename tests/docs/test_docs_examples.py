"""What the documentation says is so: code runs, commands parse, links hold, tables agree."""

from __future__ import annotations

import dataclasses
import importlib
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from colonnade.data.readers import ReadOptions
from colonnade.data.schema import SourceSpec
from colonnade.party import config
from colonnade.party.cli import _parser
from colonnade.party.job import Job
from colonnade.transport.limits import TransportLimits
from colonnade.wire.messages import Message

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")

# The tables of docs/configuration.md, by heading.
TABLES: dict[str, type[Any]] = {
    "Top level": config.PartyConfig,
    "[connection]": config.ConnectionConfig,
    "[identity]": config.IdentityConfig,
    "[peers.NAME]": config.PeerConfig,
    "[data]": SourceSpec,
    "[data.options]": ReadOptions,
    "[limits]": TransportLimits,
    "[approval]": config.ApprovalConfig,
    "[predict]": config.PredictConfig,
    "[keys]": config.KeysConfig,
    "[run]": config.RunConfig,
    "The job file": Job,
}
# Asked for, or drawn, where the file is read.
READ_DIFFERENTLY = {("[data]", "ids"): "required", ("The job file", "seed"): "none"}


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, *languages: str) -> list[str]:
    """The fenced blocks of a page in these languages."""
    return [text for kind, text in FENCE.findall(page.read_text("utf-8")) if kind in languages]


def command_lines(text: str) -> Iterator[str]:
    """The `colonnade` command lines of a shell block, continued lines joined, comments off."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words and words[0] == "colonnade":
            yield shlex.join(words[1:])


COMMANDS = [
    pytest.param(command, id=f"{name_of(page)}: {command}")
    for page in PAGES
    for text in blocks(page, "sh", "console", "bash")
    for command in command_lines(text)
]
SNIPPETS = [
    pytest.param(text, id=f"{name_of(page)}-{number}")
    for page in PAGES
    for number, text in enumerate(blocks(page, "python"))
]


@pytest.mark.parametrize("source", SNIPPETS)
def test_python_blocks_run(source):
    exec(compile(source, "documentation", "exec"), {"__name__": "documentation"})


def exit_code(words: list[str]) -> int:
    """How the real parser takes these words: 0 is well, --version and --help included."""
    try:
        _parser().parse_args(words)
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_parse(command, capsys):
    assert exit_code(shlex.split(command)) == 0, capsys.readouterr().err


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_named_in_the_text_exist(page, capsys):
    names = set(re.findall(r"`colonnade ([a-z]+)", page.read_text("utf-8")))
    assert [name for name in sorted(names) if exit_code([name, "--help"])] == []


def test_there_are_commands_and_snippets_to_check():
    assert len(COMMANDS) >= 10
    assert len(SNIPPETS) >= 3


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as code hosts make them."""
    text = FENCE.sub("", page.read_text("utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_relative_links_exist(page):
    broken = []
    for target in LINK.findall(FENCE.sub("", page.read_text("utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert not broken


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_named_files_of_the_project_exist(page):
    text = page.read_text("utf-8")
    named = re.findall(r"`((?:tests|benchmarks|src|examples)/[\w./-]+)`", text)
    assert [path for path in named if not (ROOT / path).exists()] == []


def documented(heading: str) -> dict[str, str]:
    """Keys and defaults of one table of docs/configuration.md."""
    text = (ROOT / "docs/configuration.md").read_text("utf-8")
    section = re.split(rf"^#+ {re.escape(heading)}$", text, flags=re.MULTILINE)[1]
    section = re.split(r"^#", section, flags=re.MULTILINE)[0]
    rows = re.findall(r"^\| `(\w+)` \|(?:[^|]*)\| ([^|]*) \|", section, re.MULTILINE)
    return {key: default.strip() for key, default in rows}


def declared(kind: type[Any], heading: str) -> dict[str, object]:
    """Keys and defaults of a dataclass; the tables of a party file have headings of their own."""
    found: dict[str, object] = {}
    for field in dataclasses.fields(kind):
        if kind is config.PartyConfig and field.name not in ("name", "role"):
            continue
        default: object = "required"
        if field.default is not dataclasses.MISSING:
            default = field.default
        elif field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        default = READ_DIFFERENTLY.get((heading, field.name), default)
        found[field.name] = "none" if default is None else default
    return found


def read_default(text: str) -> object:
    """A default as the page writes it: `required`, `none`, or TOML."""
    return text if text in ("required", "none") else tomllib.loads(f"x = {text}")["x"]


def plain(default: object) -> object:
    """A default in the types of TOML."""
    if isinstance(default, tuple):
        return list(default)
    if dataclasses.is_dataclass(default):
        return {}
    return str(default) if isinstance(default, Path) else default


@pytest.mark.parametrize("heading", TABLES)
def test_the_configuration_tables_are_those_of_the_code(heading):
    expected = {key: plain(value) for key, value in declared(TABLES[heading], heading).items()}
    assert {key: read_default(text) for key, text in documented(heading).items()} == expected


def test_every_table_of_a_party_file_is_documented():
    tables = {field.name for field in dataclasses.fields(config.PartyConfig)} - {"name", "role"}
    assert {h.strip("[]").partition(".")[0] for h in TABLES if h.startswith("[")} == tables


def message_kinds(base: type[Message]) -> Iterator[type[Message]]:
    for kind in base.__subclasses__():
        yield kind
        yield from message_kinds(kind)


def test_the_message_table_is_that_of_the_code():
    package = ROOT / "src"
    for path in sorted((package / "colonnade").rglob("*.py")):
        if "Message, frozen=True" in path.read_text("utf-8"):
            importlib.import_module(".".join(path.relative_to(package).with_suffix("").parts))
    ours = (kind for kind in message_kinds(Message) if kind.__module__.startswith("colonnade."))
    rows = re.findall(r"^\| `([\w.]+/\d+)` \| (.*) \|$", (ROOT / "SECURITY.md").read_text(), re.M)
    assert dict(rows) == {kind.TAG: kind.LEAKS for kind in ours}
    assert len(rows) == len(dict(rows))
