"""The command line: what a newcomer types, and what comes back."""

import json
import subprocess
import sys

import pytest

from colonnade.party import cli
from party_runs import BANK, SHOP, SOURCES, Workplace, example_tables


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    work = Workplace.make(tmp_path_factory.mktemp("commands"))
    outcome = work.train()
    assert outcome.succeeded, outcome.label_text + outcome.feature_text
    new = work.data(BANK, [cells[:3] for cells in example_tables()[0]], "new.csv")
    scored = work.predict(work.models(BANK)[0], new, work.folder / "out.csv")
    assert scored.succeeded
    work.tables[SHOP]["approval"]["min_intersection"] = 61
    assert not work.train().succeeded
    return work


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a command in this process; returns exit code, output and error output."""

    def command(*arguments, width=100):
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
        try:
            code = cli.main([str(argument) for argument in arguments])
        except SystemExit as stop:
            code = stop.code
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


def test_it_runs_as_a_module_and_without_torch_where_torch_is_not_needed():
    code = (
        "import sys; from colonnade.party.cli import main\n"
        "try: main(['--version'])\nexcept SystemExit: pass\n"
        "sys.exit('torch' in sys.modules or 'sklearn' in sys.modules)"
    )
    environment = {"PYTHONPATH": str(SOURCES), "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("colonnade 0.")


@pytest.mark.parametrize(
    "command", ["init", "serve", "train", "predict", "runs", "fingerprint", "demo"]
)
def test_every_command_explains_itself_with_an_example(run, command):
    code, out, _ = run(command, "--help")
    assert code == 0
    assert f"colonnade {command}" in out
    assert "example:" in out


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("init", "this party's role"),
        ("serve", "show each job and refuse it; go on serving"),
        ("train", "show what would run on both sides, then stop"),
    ],
)
def test_help_says_what_an_option_does_here(run, command, said):
    assert said in " ".join(run(command, "--help")[1].split())


@pytest.mark.parametrize("arguments", [[], ["trian"], ["train"], ["serve", "--jobs", "0"]])
def test_wrong_usage_is_code_2(run, arguments):
    code, _, err = run(*arguments)
    assert code == 2
    assert "usage: colonnade" in err


def test_two_newcomers_set_up_and_exchange_certificates(run, tmp_path):
    label, feature = example_tables()
    work = Workplace(tmp_path)
    for name, role, peer, where, rows in (
        ("bank", "label", "shop", "--listen", label),
        ("shop", "feature", "bank", "--dial", feature),
    ):
        folder = tmp_path / name
        folder.mkdir()
        data = work.data(name, rows)
        code, out, _ = run(
            "init", name, "--role", role, "--peer", peer, where, "127.0.0.1:7420",
            "--data", data, "--directory", folder, width=60,
        )  # fmt: skip
        assert code == 0
        assert f"wrote {folder / name}.toml" in out
        assert f"save the certificate of '{peer}' as {folder}/peers/{peer}.crt.pem" in out
        next_step = "colonnade train" if role == "label" else "colonnade serve"
        assert f"{next_step} --config {folder / name}.toml" in out
    code, _, err = run("train", "--config", tmp_path / "bank/bank.toml", tmp_path / "bank/job.toml")
    assert code == 2
    assert "ask 'shop' for its certificate" in err
    code, out, _ = run("fingerprint", tmp_path / "bank/identity/bank.crt.pem", width=40)
    assert code == 0
    assert len(out.splitlines()) == 1  # a fingerprint cut in two cannot be compared
    assert out.count(" ") > 16
    code, renewed, _ = run("init", "--renew", tmp_path / "bank/bank.toml")
    assert code == 0
    assert "models stay valid" in renewed
    assert out.strip() not in renewed


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["init", "bank"], "init needs NAME, --role and --peer"),
        (["init", "bank", "--role", "label", "--peer", "shop"], "--listen HOST:PORT or --dial"),
        (
            ["init", "bank", "--role", "label", "--peer", "shop", "--listen", "7420"],
            "got the address '7420'; want HOST:PORT",
        ),
        (["train", "--config", "absent.toml", "job.toml"], "'colonnade init' writes one"),
        (["runs"], "runs needs a RUN folder or --config FILE"),
        (["fingerprint", "absent.pem"], "absent.pem"),
    ],
)
def test_what_is_missing_is_said(run, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(*arguments)
    assert code == 2
    assert err.startswith("error: ")
    assert said in err
    assert out == ""


def test_the_wrong_role_is_told_its_own_command(run, trained):
    trained.write()
    bank, shop = (trained.folder / name / f"{name}.toml" for name in (BANK, SHOP))
    code, _, err = run("serve", "--config", bank)
    assert code == 2
    assert "'bank' is the label party; it starts jobs with 'train'" in err
    code, _, err = run("train", "--config", shop, trained.folder / BANK / "job.toml")
    assert code == 2
    assert "takes part with 'colonnade serve'" in err


@pytest.mark.parametrize("party", [BANK, SHOP])
def test_runs_lists_what_each_run_did_and_how_it_ended(run, trained, party):
    trained.write()
    code, out, _ = run("runs", "--config", trained.folder / party / f"{party}.toml", width=160)
    assert code == 0
    peer = SHOP if party == BANK else BANK
    assert f"train with {peer}, 60 records" in out
    assert f"predict with {peer}, 60 records" in out
    assert "failed" in out
    assert "IntersectionTooSmallError" in out


@pytest.mark.parametrize("party", [BANK, SHOP])
@pytest.mark.parametrize("width", [40, 80, 120])
def test_runs_shows_trainings_and_predictions_of_both_sides(run, trained, party, width):
    for path in trained.runs(party):
        code, out, _ = run("runs", path, width=width)
        assert code == 0
        assert "60 records" in out
        assert "What left" in out
        assert f"run folder: {path}" in out
        table = [line for line in out.splitlines() if line[:1] in "┃│┏└"]
        assert max(len(line) for line in table) <= width
        assert ("Test records" in out) == (party == BANK and (path / "metrics.json").exists())


def test_runs_of_a_failed_run_says_why(run, trained):
    (path,) = trained.runs(SHOP, "failed")
    code, out, _ = run("runs", path)
    assert code == 0
    assert "failed: IntersectionTooSmallError" in out
    code, _, err = run("runs", path.with_suffix(""))
    assert code == 1
    assert "did not finish" in err


def test_runs_where_there_are_none_or_no_such_one(run, trained, tmp_path):
    work = Workplace.make(tmp_path)
    work.write()
    code, out, _ = run("runs", "--config", tmp_path / BANK / "bank.toml")
    assert code == 0
    assert "no runs in" in out
    code, _, err = run("runs", tmp_path / "absent")
    assert code == 1
    assert "want a file of a finished run" in err


def test_a_damaged_run_does_not_hide_the_others(run, tmp_path):
    work = Workplace.make(tmp_path)
    for name in ("good", "spoilt"):
        from colonnade.party.run_folder import RunFolder

        with RunFolder.create(tmp_path / BANK / "runs", name) as folder:
            folder.write_json("run.json", {"kind": "train", "peer": "shop", "records": 7})
    (tmp_path / BANK / "runs" / "spoilt" / "run.json").write_text("{}")
    work.write()
    code, out, _ = run("runs", "--config", tmp_path / BANK / "bank.toml", width=200)
    assert code == 0
    assert "train with shop, 7 records" in out
    assert "damaged" in out


def test_predict_refuses_to_overwrite_or_to_write_nowhere(run, trained, tmp_path):
    trained.write()
    model = trained.models(BANK)[0]
    here = ["predict", "--config", trained.folder / BANK / "bank.toml", "--model", model]
    here += ["--data", trained.folder / BANK / "new.csv", "--output"]
    (tmp_path / "out.unknown.csv").touch()
    code, _, err = run(*here, tmp_path / "out.csv")
    assert code == 2
    assert "out.unknown.csv, which exists; want a new file" in err
    code, _, err = run(*here, tmp_path / "absent" / "out.csv")
    assert code == 2
    assert "want a file in a folder that exists" in err


def test_progress_for_programs_is_json_line_by_line(tmp_path):
    work = Workplace.make(tmp_path)
    work.tables[BANK]["limits"]["connect_s"] = 0.2
    with work.start(BANK, "train", "job.toml", "--progress", "json") as command:
        assert command.wait() == 1  # nobody serves
        *lines, error = command.output.splitlines()
    events = [json.loads(line) for line in lines]
    assert all(set(event) == {"note"} for event in events)
    assert {"note": "labels: 'yes' -> 1, 'no' -> 0"} in events
    assert error.startswith("error: ")


def test_control_characters_of_the_other_side_do_not_reach_the_terminal(capsys):
    from rich.console import Console

    from colonnade.party.progress import RichReporter

    reporter = RichReporter(Console(width=20))
    reporter.note(
        "refused: \x1b[2J\x1b]0;owned\x07 [bold]x[/bold] and a long line that stays whole"
    )
    out = capsys.readouterr().out
    assert out == "refused: ?[2J?]0;owned? [bold]x[/bold] and a long line that stays whole\n"
    assert reporter.transcript == [out.rstrip("\n")]


def test_without_a_terminal_progress_is_lines(capsys):
    from rich.console import Console

    from colonnade.party.progress import RichReporter

    reporter = RichReporter(Console(width=80))
    for done in range(1, 51):
        reporter.progress("train", done, 50, f"epoch {done}")
    reporter.close()
    assert capsys.readouterr().out == "train: 50 of 50 epoch 50\n"
