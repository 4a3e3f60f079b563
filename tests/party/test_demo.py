"""The demonstration: the whole main job, each command a process, with keys of full size."""

import io
import json

import pytest
from rich.console import Console

from colonnade.errors import UsageError
from colonnade.party import demo
from party_runs import SOURCES


@pytest.fixture(scope="module")
def demonstration(tmp_path_factory):
    """Two epochs of the demonstration's seven: the same commands in a third of the time."""
    folder = tmp_path_factory.mktemp("demonstration") / "here"
    screen = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(SOURCES))
        patch.setattr(demo, "_EPOCHS", 2)
        code = demo.run_demo(folder, Console(file=screen, width=80))
    assert code == 0, screen.getvalue()
    return folder, screen.getvalue()


@pytest.mark.real_keys
@pytest.mark.slow
def test_the_federated_model_is_as_good_as_the_joined_one_and_better_than_alone(demonstration):
    folder, _ = demonstration
    metrics = json.loads((folder / "metrics.json").read_text())
    test = metrics["test"]
    assert test["federated"]["roc_auc"] == pytest.approx(
        test["plain, data joined"]["roc_auc"], abs=0.02
    )
    assert test["federated"]["roc_auc"] > test["clinic alone"]["roc_auc"]
    assert metrics["new_patients"]["rows"] == 69
    assert metrics["new_patients"]["roc_auc"] > 0.9


@pytest.mark.real_keys
@pytest.mark.slow
def test_what_the_demonstration_leaves_and_says(demonstration):
    folder, out = demonstration
    assert (folder / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert len((folder / "predictions.csv").read_text().splitlines()) == 70
    report = (folder / "report.txt").read_text()
    assert "'clinic' asks 'laboratory' to train" in report
    assert "2048 bits" in report
    for text in ("90 test patients", "What it took", "What left 'laboratory'", "clinic.toml"):
        assert text in out
    assert "INSECURE" not in out + report
    tables = [line for line in out.splitlines() if line[:1] in "┃│┏└"]
    assert max(len(line) for line in tables) <= 80
    for name in ("clinic", "laboratory"):
        assert f"{name}/runs/diagnosis-" in out


def test_a_folder_that_holds_other_things_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="holds other things; choose another --folder"):
        demo.run_demo(tmp_path, None)
    assert (tmp_path / "thesis.txt").read_text() == "mine"
