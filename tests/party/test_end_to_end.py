"""Two organisations through the commands: train, evaluate, keep, predict, renew a certificate."""

import csv
import json
import signal
import stat
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from colonnade.data.schema import id_columns
from colonnade.errors import StorageError
from colonnade.party.init import renew
from colonnade.party.model import load_model
from colonnade.party.source import load_source
from colonnade.party.storage import write_new
from colonnade.ring import WEIGHT_BITS
from party_runs import BANK, PEOPLE, SHOP, KeepingReporter, Workplace, example_tables


@dataclass
class Finished:
    """What one service, two trainings and one prediction left, each command a process."""

    work: Workplace
    serve: str
    train: str
    predict: str
    serve_code: int
    output: Path


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    work = Workplace.make(tmp_path_factory.mktemp("organisations"))
    # Decay makes the stored V_B differ from the first one; validation adds scorings.
    work.job |= {"weight_decay": 0.01, "validation_fraction": 0.1}
    label, _ = example_tables()
    work.data(BANK, [row[:3] for row in label[:1] + label[20:]], "new.csv")
    output = work.folder / "scores.csv"
    with work.start(SHOP, "serve") as serve:
        with work.start(BANK, "train", "job.toml") as train:
            assert train.wait() == 0, train.output + serve.output
        assert work.train_here(KeepingReporter(), None) is not None
        model = str(work.models(BANK)[0])
        new = ["--data", "new.csv", "--output", str(output)]
        with work.start(BANK, "predict", "--model", model, *new) as predict:
            assert predict.wait() == 0, predict.output + serve.output
        serve.wait_for("records scored for")
        serve.signal(signal.SIGTERM)
        code = serve.wait(15)
        return Finished(work, serve.output, train.output, predict.output, code, output)


def opened_logits(work, label_run, feature_run, data):
    """ids -> logit of the model that both shares make together, in float64."""
    label, feature = load_model(label_run, "label"), load_model(feature_run, "feature")
    w_a = (feature.feature_state().u_a + label.label_state().v_a).to_float(WEIGHT_BITS)
    w_b = (label.label_state().u_b + feature.feature_state().v_b).to_float(WEIGHT_BITS)
    there, here = work.config(BANK).data, work.config(SHOP).data
    bank = load_source(there, path=data, preprocessor=label.preprocessor)
    shop = load_source(here, preprocessor=feature.preprocessor)
    z_b = dict(zip(bank.ids, bank.matrix.decode() @ w_b, strict=True))
    z_a = dict(zip(shop.ids, shop.matrix.decode() @ w_a, strict=True))
    names = id_columns(bank.table, there)[0]
    return {
        name: float(z_b[code][0] + z_a[code][0] + label.bias()[0])
        for name, code in zip(names, bank.ids, strict=True)
        if code in z_a
    }


def scores(path):
    with path.open(newline="") as stream:
        return {row["id"]: row for row in csv.DictReader(stream)}


def test_the_predictions_are_those_of_the_opened_model(finished):
    work = finished.work
    new = work.folder / BANK / "new.csv"
    want = opened_logits(work, work.models(BANK)[0], work.models(SHOP)[0], new)
    found = scores(finished.output)
    assert set(found) == set(want)
    assert len(want) == PEOPLE - 19
    for name, logit in want.items():
        probability = float(found[name]["probability"])
        assert probability == pytest.approx(1 / (1 + np.exp(-logit)), abs=1e-5)
        assert found[name]["prediction"] == ("yes" if logit > 0 else "no")


def test_unknown_ids_are_reported_and_not_scored(finished):
    unknown = finished.output.with_name("scores.unknown.csv").read_text().split()
    assert unknown == ["id", "b0", "b1", "b2"]
    assert not set(unknown) & set(scores(finished.output))
    assert "3 records unknown to the other side, not scored" in finished.predict


def test_predictions_are_for_their_owner_only(finished):
    for path in (finished.output, finished.output.with_name("scores.unknown.csv")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_no_file_beside_the_predictions_is_overwritten(finished, tmp_path):
    other = tmp_path / "scores.csv.tmp"
    other.write_text("not ours")
    work = finished.work
    outcome = work.predict(
        work.models(BANK)[0], work.folder / BANK / "new.csv", tmp_path / "scores.csv"
    )
    assert outcome.succeeded, outcome.label_text
    assert other.read_text() == "not ours"


def test_predictions_never_replace_a_file_that_appeared_meanwhile(tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text("another's")
    with pytest.raises(StorageError, match=r"scores\.csv: File exists"):
        write_new(path, b"ours")
    assert path.read_text() == "another's"


def test_the_label_partys_run_folder_holds_model_metrics_curve_and_outbox(finished):
    run = finished.work.models(BANK)[0]
    assert {path.name for path in run.iterdir()} >= {
        "approval.txt", "history.json", "job.json", "labels.json", "loss.png", "manifest.json",
        "metrics.json", "model.json", "outbox.json", "preprocessor.json", "report.txt",
        "rows.safetensors", "run.json", "share.safetensors", "warnings.json",
    }  # fmt: skip
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["test"]["federated"]["rows"] == 12
    assert metrics["test"]["federated"]["roc_auc"] > 0.7
    assert metrics["traffic"]["sent_bytes"] > 0
    assert len(metrics["epoch_loss"]) == 2
    history = json.loads((run / "history.json").read_text())
    assert len(history["batch_loss"]) == 2 * 3
    assert len(history["validation_loss"]) == 2
    assert (run / "loss.png").read_bytes().startswith(b"\x89PNG\r\n")
    assert json.loads((run / "labels.json").read_text())["classes"] == ["no", "yes"]
    sent = {row["message"] for row in json.loads((run / "outbox.json").read_text())}
    assert {"party.train/1", "psi.points/1", "matmul.derivatives/1"} <= sent


def test_the_feature_partys_run_folder_holds_share_approval_and_outbox_but_no_metric(finished):
    run = finished.work.models(SHOP)[0]
    assert {path.name for path in run.iterdir()} == {
        "approval.txt", "manifest.json", "model.json", "outbox.json", "preprocessor.json",
        "report.txt", "rows.safetensors", "run.json", "share.safetensors", "warnings.json",
    }  # fmt: skip
    approval = (run / "approval.txt").read_text()
    assert "visits, spend, region" in approval
    assert "shop 6, bank 2" in approval
    outbox = json.loads((run / "outbox.json").read_text())
    assert all(row["count"] > 0 and row["bytes"] > 0 and row["shows"] for row in outbox)
    sent = {row["message"]: row["count"] for row in outbox}
    assert sent["matmul.masked_gradient/1"] == 2 * 3
    assert "bought" not in (run / "report.txt").read_text()


def test_both_folders_carry_one_pair_digest_and_neither_share_alone_is_the_model(finished):
    work = finished.work
    cards = [
        json.loads((work.models(party)[0] / "model.json").read_text()) for party in (BANK, SHOP)
    ]
    assert cards[0]["pair"] == cards[1]["pair"]
    assert cards[0]["run"] == cards[1]["run"]
    label = load_model(work.models(BANK)[0], "label").label_state()
    feature = load_model(work.models(SHOP)[0], "feature").feature_state()
    opened = (feature.u_a + label.v_a).to_float(WEIGHT_BITS)
    # A share is the weight hidden by 128-bit wrap-around sums of masks: nowhere near it.
    assert not np.allclose(feature.u_a.to_float(WEIGHT_BITS), opened, atol=1e-2)
    assert not np.allclose(label.v_a.to_float(WEIGHT_BITS), opened, atol=1e-2)


def test_one_service_serves_job_after_job_and_stops_when_told(finished):
    assert finished.serve.count("finished; the model share is in") == 2
    assert "60 records in common" in finished.serve
    assert finished.serve.rstrip().endswith("stopped; the other side of a running job was told")
    assert finished.serve_code == 130
    pairs = {json.loads((run / "model.json").read_text())["pair"] for run in
             finished.work.models(SHOP)}  # fmt: skip
    assert len(pairs) == 2


def test_what_the_label_partys_operator_reads(finished):
    text = finished.train
    assert "labels: 'yes' -> 1, 'no' -> 0" in text
    assert "expected: about" in text
    assert "INSECURE" in text
    assert "Test records" in text
    assert "What left 'bank'" in text
    assert "Traceback" not in text + finished.serve + finished.predict


def test_no_value_and_no_column_name_of_one_party_reaches_the_other(finished):
    work = finished.work
    label_words = ["balance", "bought", "'yes'"]
    feature_words = ["visits", "spend", "region", "north"]
    label_side = [*work.runs(BANK), finished.train, finished.predict]
    feature_side = [*work.runs(SHOP), finished.serve]
    for words, places in ((feature_words, label_side), (label_words, feature_side)):
        for place in places:
            texts = [place.encode()] if isinstance(place, str) else [
                path.read_bytes() for path in place.iterdir()
            ]  # fmt: skip
            for text in texts:
                assert not [word for word in words if word.encode() in text]


def test_after_a_renewed_certificate_the_old_model_still_predicts(finished, tmp_path):
    work = finished.work
    new = work.folder / BANK / "new.csv"
    before = work.predict(work.models(BANK)[0], new, tmp_path / "before.csv")
    assert before.succeeded, before.label_text
    renew(work.folder / BANK / "bank.toml")
    work.pin(BANK, at=SHOP)
    after = work.predict(work.models(BANK)[0], new, tmp_path / "after.csv")
    assert after.succeeded, after.label_text
    assert scores(tmp_path / "after.csv") == scores(tmp_path / "before.csv")


@pytest.mark.parametrize("listens", [BANK, SHOP])
def test_either_side_may_listen(tmp_path, listens):
    work = Workplace.make(tmp_path, label_listens=listens == BANK)
    outcome = work.train()
    assert outcome.succeeded, outcome.label_text + outcome.feature_text


def test_several_jobs_one_after_another_where_the_label_party_listens(tmp_path):
    work = Workplace.make(tmp_path, label_listens=True)

    def three(reporter, console):
        return [work.train_here(reporter, console) for _ in range(3)]

    outcome = work.together(three, jobs=3)
    assert outcome.succeeded, outcome.label_text + outcome.feature_text
    assert len(work.models(BANK)) == len(work.models(SHOP)) == 3


@pytest.mark.real_keys
def test_keys_of_full_size(tmp_path):
    work = Workplace.make(tmp_path)
    for party in (BANK, SHOP):
        work.tables[party]["keys"] = {"bits": 2048}
    del work.job["insecure_key_bits"]
    work.job |= {"epochs": 1, "batch_size": 8}
    work.tables[SHOP]["approval"]["insecure_jobs_allowed"] = False
    label, feature = example_tables(12)
    work.data(BANK, label)
    work.data(SHOP, feature)
    outcome = work.train()
    assert outcome.succeeded, outcome.label_text + outcome.feature_text
    assert "INSECURE" not in outcome.label_text + outcome.feature_text
