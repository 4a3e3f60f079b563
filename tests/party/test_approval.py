"""The feature party's word: dry runs, limits, an operator who says yes or no."""

import dataclasses
import io
import json
import re

import pytest
from rich.console import Console

from colonnade.errors import PeerError
from colonnade.party import approval
from colonnade.party.approval import ask_operator, decide, job_differences
from colonnade.party.config import ApprovalConfig
from colonnade.party.estimate import Estimate, assumed_columns, estimate_training
from colonnade.party.job import Job
from colonnade.party.messages import TrainProposal, Verdict
from colonnade.party.request import Request, describe, show_request
from colonnade.party.session import open_channel, say_hello
from colonnade.party.source import load_source
from party_runs import BANK, SHOP, Workplace, example_tables

JOB = Job(
    name="first",
    feature_parties=("shop",),
    epochs=3,
    batch_size=64,
    learning_rate=0.1,
    momentum=0.9,
    seed="00" * 32,
)
REQUEST = Request(
    kind="train",
    own="shop",
    label_party="bank",
    feature_party="shop",
    job=JOB,
    columns=("visits", "spend", "region"),
    feature_columns=9,
    independent_columns=8,
    label_columns=2,
    feature_rows=640,
    label_rows=630,
    outputs_now=3,
    outputs_before=0,
    estimate=Estimate(seconds=12.0, to_label_bytes=2_000_000, to_feature_bytes=3_500_000),
)


@pytest.fixture
def work(tmp_path):
    return Workplace.make(tmp_path)


def untouched(work, party):
    """Neither a run folder nor a count of outputs is left."""
    folder = work.folder / party / "runs"
    return not folder.exists() or not any(folder.iterdir())


# -- what is shown --------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["label", "feature"])
def test_a_dry_run_of_either_side_shows_all_and_leaves_nothing(work, side):
    outcome = work.train(dry_run=side == "label", serve_dry_run=side == "feature")
    assert outcome.feature == 0
    if side == "label":
        assert outcome.label is None
        assert "dry run: nothing was aligned" in outcome.label_text
        assert "'shop' would let this run: 64 records, 6 features" in outcome.label_text
    else:
        assert isinstance(outcome.label, PeerError)
        assert "only shows jobs now" in str(outcome.label)
    shown = {outcome.feature_text: "visits, spend"}
    if side == "label":
        shown[outcome.label_text] = "age, balance"
    for text, own in shown.items():
        assert own in text
        assert "shop 6, bank 2" in text
        assert "shop 64, bank 63" in text
        assert "bank learns" in text
        assert "2 outputs for each common record" in text
        assert "2 now + 0 before, 0.50 of shop's 4 independent features" in text
        assert "about 1 s of computing" in text
        assert "MB to bank" in text
    assert untouched(work, BANK)
    assert untouched(work, SHOP)
    assert "records in common" not in outcome.label_text + outcome.feature_text


def test_a_prediction_can_be_run_dry(work, tmp_path):
    assert work.train().succeeded
    before = [work.runs(party) for party in (BANK, SHOP)]
    outcome = work.predict(
        work.models(BANK)[0], work.folder / BANK / "data.csv", tmp_path / "out.csv", dry_run=True
    )
    assert outcome.label is None
    assert outcome.feature == 0
    assert "1 now + 2 before, 0.75 of shop's 4 independent features" in outcome.label_text
    assert "1 output for each common record" in outcome.feature_text
    assert [work.runs(party) for party in (BANK, SHOP)] == before
    assert not (tmp_path / "out.csv").exists()


def test_a_request_in_words():
    text = describe(REQUEST)
    assert text.startswith("'bank' asks 'shop' to train\n")
    assert "own columns: 3: visits, spend, region" in text
    assert "key, masks: 2048 bits, 64 statistical bits" in text
    assert "expected: about 12 s of computing; 2.00 MB to bank, 3.50 MB to shop" in text
    assert "WARNING" not in text
    assert "no label, no score and no weight" in text


def test_a_label_party_without_features_is_pointed_out():
    text = describe(dataclasses.replace(REQUEST, label_columns=0))
    assert "each output IS the score X_A W_A" in text
    assert "WARNING: 'bank' has no features: it learns X_A W_A of every scored row" in text


@pytest.mark.parametrize(
    ("outputs", "warning"),
    [(3, None), (4, "at 1 'bank' can compute"), (8, "all of them from a few known rows")],
)
def test_outputs_per_row_are_weighed_against_the_feature_count(outputs, warning):
    request = dataclasses.replace(REQUEST, outputs_now=1, outputs_before=outputs - 1)
    warnings = request.warnings()
    assert (warnings == []) if warning is None else (warning in warnings[0])


@pytest.mark.parametrize("changes", [{"insecure_key_bits": 512}, {"protection": "insecure_plain"}])
def test_insecure_jobs_are_marked(changes):
    request = dataclasses.replace(REQUEST, job=dataclasses.replace(JOB, **changes))
    assert any(line.startswith("INSECURE") for line in request.warnings())


def test_brackets_in_column_names_are_shown_as_they_are():
    request = dataclasses.replace(REQUEST, columns=("[red]", "größe [cm]", "[/]"))
    for width in (40, 80, 200):
        screen = io.StringIO()
        show_request(request, Console(file=screen, width=width))
        shown = screen.getvalue()
        assert "[red]" in shown
        assert "[/]" in shown
        assert max(len(line) for line in shown.splitlines()) <= width


def test_many_columns_are_counted_and_not_listed():
    request = dataclasses.replace(REQUEST, columns=tuple(f"c{i}" for i in range(40)))
    assert "40: c0, c1" in describe(request)
    assert "and 28 more" in describe(request)


def test_the_estimate_grows_with_epochs_columns_and_rows():
    def bytes_of(epochs, columns, rows):
        job = dataclasses.replace(JOB, epochs=epochs, protection="insecure_plain")
        there, here = assumed_columns(columns), assumed_columns(2)
        found = estimate_training(job, there, here, (rows, rows), 1.0, 1)
        return found.to_label_bytes + found.to_feature_bytes

    first = bytes_of(1, 4, 1000)
    assert bytes_of(2, 4, 1000) > 1.5 * first
    assert bytes_of(1, 40, 1000) > first
    assert bytes_of(1, 4, 2000) > 1.5 * first


def test_the_estimate_of_bytes_is_near_what_is_sent(work):
    outcome = work.train()
    assert outcome.succeeded
    table = outcome.feature_screen.getvalue()
    told = float(table.split("MB to bank")[0].rsplit(";", 1)[1])
    traffic = json.loads((work.runs(BANK)[0] / "metrics.json").read_text())["traffic"]
    assert traffic["received_bytes"] / 1e6 == pytest.approx(told, rel=0.5)


# -- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"max_epochs": 2}, "got 3 epochs; max_epochs is 2"),
        ({"min_batch_size": 65}, "got batches of 64; min_batch_size is 65"),
        ({"max_rows": 629}, "got 630 rows; max_rows is 629"),
        ({"max_outputs_per_row": 2}, "outputs per row would reach 3"),
        ({"mode": "never"}, "approves no jobs now"),
        ({"allow_columns": ("visits", "spend")}, "columns that this party does not allow"),
    ],
)
def test_every_limit_refuses(limits, reason):
    assert decide(REQUEST, ApprovalConfig(mode="config"), minimum=50) is None
    refusal = decide(REQUEST, ApprovalConfig(**({"mode": "config"} | limits)), minimum=50)
    assert reason in refusal.reason
    assert "region" not in refusal.reason


def test_a_refused_column_is_named_to_the_operator_alone():
    refusal = decide(REQUEST, ApprovalConfig(allow_columns=("visits",)), minimum=2)
    assert refusal.detail == "2 are not in allow_columns: 'region', 'spend'"


def test_the_limits_of_training_do_not_bind_a_prediction():
    request = dataclasses.replace(REQUEST, kind="predict", outputs_now=1)
    limits = ApprovalConfig(mode="config", max_epochs=1, min_batch_size=1000)
    assert decide(request, limits, minimum=50) is None


def test_too_few_records_to_reach_the_minimum_are_refused_before_aligning():
    refusal = decide(REQUEST, ApprovalConfig(mode="config"), minimum=631)
    assert refusal.reason == "at most 630 records can be common; min_intersection is 631"


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("max_epochs", 1, "got 2 epochs; max_epochs is 1"),
        ("min_batch_size", 32, "got batches of 16; min_batch_size is 32"),
        ("max_rows", 10, "got 63 rows; max_rows is 10"),
        ("max_outputs_per_row", 1, "outputs per row would reach 2"),
        ("insecure_jobs_allowed", False, "insecure_jobs_allowed is not set here"),
        ("allow_columns", ["visits"], "columns that this party does not allow"),
        ("mode", "never", "approves no jobs now"),
        ("min_intersection", 64, "at most 63 records can be common"),
    ],
)
def test_a_limit_refuses_on_both_sides_and_leaves_nothing(work, key, value, reason):
    work.tables[SHOP]["approval"][key] = value
    outcome = work.train()
    assert isinstance(outcome.label, PeerError)
    assert outcome.feature == 1
    assert f"'shop' refused: {reason}" in str(outcome.label) or reason in str(outcome.label)
    assert reason in outcome.feature_text
    assert untouched(work, BANK)
    assert untouched(work, SHOP)
    for column in ("spend", "region"):
        assert column not in outcome.label_text


def test_an_intersection_below_the_minimum_is_known_to_the_feature_party_alone(work):
    work.tables[SHOP]["approval"]["min_intersection"] = 61
    outcome = work.train()
    assert "below the feature party's minimum" in str(outcome.label)
    assert "60 records in common; min_intersection is 61" in outcome.feature_text
    # The number itself, not a part of a port.
    assert re.search(r"(?<![\d:.])60(?![\d.])", outcome.label_text) is None
    assert len(work.runs(BANK, "failed")) == len(work.runs(SHOP, "failed")) == 1


def test_the_intersection_at_the_minimum_is_enough(work):
    work.tables[SHOP]["approval"]["min_intersection"] = 60
    assert work.train().succeeded


def test_outputs_per_row_add_up_over_jobs_and_predictions(work, tmp_path):
    work.tables[SHOP]["approval"]["max_outputs_per_row"] = 5
    assert work.train().succeeded
    assert work.train().succeeded
    outcome = work.train()
    assert "would reach 6, with 4 from earlier jobs; max_outputs_per_row is 5" in str(outcome.label)
    data = work.folder / BANK / "data.csv"
    model = work.models(BANK)[0]
    assert work.predict(model, data, tmp_path / "a.csv").succeeded
    outcome = work.predict(model, data, tmp_path / "b.csv")
    assert "would reach 6, with 5 from earlier jobs" in str(outcome.label)
    assert not (tmp_path / "b.csv").exists()


def test_a_refusal_says_nothing_about_the_data(work, monkeypatch):
    work.tables[SHOP]["approval"]["mode"] = "ask"
    monkeypatch.setattr(approval.sys, "stdin", io.StringIO(""))
    heard = []

    def label(reporter, console):
        with open_channel(work.config(BANK), SHOP, reporter) as channel:
            job = work.loaded_job()
            say_hello(channel, work.config(BANK), 512, job)
            fields = {"run": "r", "job": job.to_wire(), "rows": 63, "columns": 2}
            channel.send(TrainProposal(**fields, dry_run=False))
            heard.append(channel.receive(Verdict))

    outcome = work.together(label)
    assert outcome.feature == 1
    (verdict,) = heard
    assert not verdict.accepted
    assert verdict == Verdict.refusal(verdict.reason)
    assert "nobody is at its terminal" in verdict.reason


@pytest.mark.parametrize(
    "limits",
    [
        {"mode": "never"},
        {"max_epochs": 1},
        {"max_rows": 10},
        {"insecure_jobs_allowed": False},
        {"min_batch_size": 32},
        {"min_intersection": 64},
    ],
)
def test_what_a_limit_refuses_whatever_the_file_holds_is_refused_unread(work, limits):
    work.tables[SHOP]["approval"] |= limits
    (work.folder / SHOP / "data.csv").unlink()
    outcome = work.train()
    assert "'shop' refused: " in str(outcome.label)
    assert "refused the job 'purchase'" in outcome.feature_text


def test_names_of_columns_cannot_be_tried_where_nothing_is_approved(work):
    work.job["columns"] = {SHOP: ["visits", "salary"]}
    work.tables[SHOP]["approval"]["mode"] = "never"
    never = work.train()
    work.tables[SHOP]["approval"] |= {"mode": "config", "allow_columns": ["spend"]}
    not_allowed = work.train()
    for outcome in (never, not_allowed):
        assert "'shop' refused: " in str(outcome.label)
        assert "offer" not in str(outcome.label)
        assert "salary" not in str(outcome.label)


def test_a_small_file_is_not_counted_out_to_the_label_party():
    request = dataclasses.replace(REQUEST, feature_rows=49)
    refusal = decide(request, ApprovalConfig(mode="config"), minimum=50)
    assert "fewer records can be common than min_intersection, which is 50" in refusal.reason
    assert "49" not in refusal.reason
    assert "49" in refusal.detail


# -- outputs per row against what the file can hold ----------------------------------------------


@pytest.mark.parametrize(
    ("mode", "limit", "outputs", "approved"),
    [
        ("config", None, 7, True),
        ("config", None, 8, False),
        ("config", 8, 8, True),
        ("config", 7, 8, False),
        ("ask", None, 8, True),
    ],
)
def test_no_file_approves_by_silence_what_gives_the_features_away(mode, limit, outputs, approved):
    request = dataclasses.replace(REQUEST, outputs_now=outputs)
    limits = ApprovalConfig(mode=mode, max_outputs_per_row=limit)
    refusal = decide(request, limits, minimum=2)
    assert (refusal is None) == approved
    if limit is None and not approved:
        assert "max_outputs_per_row" in refusal.reason
        assert "8 outputs per row, 8 independent features" in refusal.detail


def test_a_job_that_gives_the_features_away_needs_a_written_limit(work):
    del work.tables[SHOP]["approval"]["max_outputs_per_row"]
    work.job["epochs"] = 4
    outcome = work.train()
    assert "only where max_outputs_per_row says so" in str(outcome.label)
    assert "4 outputs per row, 4 independent features" in outcome.feature_text
    assert "4 independent" not in outcome.label_text
    work.job["epochs"] = 3
    assert work.train().succeeded


def test_constant_and_dependent_features_do_not_count(work):
    rows = [[*row, "1.5", "no"] for row in example_tables()[1]]
    rows[0][-2:] = ["always", "never"]
    work.data(SHOP, rows)
    source = load_source(work.config(SHOP).data)
    # visits, spend; region: three categories and "(other)"; a constant; one category, "(other)".
    assert source.matrix.shape[1] == 2 + 4 + 1 + 2
    assert source.independent_columns == 2 + 2


# -- columns that a job asks for ------------------------------------------------------------------


def test_a_job_may_ask_for_some_of_the_columns(work):
    work.job["columns"] = {SHOP: ["spend", "region"]}
    work.tables[SHOP]["approval"]["allow_columns"] = ["spend", "region"]
    outcome = work.train()
    assert outcome.succeeded, outcome.label_text
    assert "own columns      2: spend, region" in outcome.feature_text


@pytest.mark.parametrize("offer", ["*", ["visits", "spend", "region"]])
@pytest.mark.parametrize("asked", ["spent", "id"])
def test_asking_for_what_is_not_offered_teaches_no_column_name(work, offer, asked):
    work.tables[SHOP]["data"]["offer"] = offer
    work.job["columns"] = {SHOP: ["visits", asked]}
    outcome = work.train()
    assert isinstance(outcome.label, PeerError)
    assert "asks for columns that this party does not offer" in str(outcome.label)
    assert repr(asked) not in outcome.label_text
    assert "spend" not in outcome.label_text
    assert "region" not in outcome.label_text
    assert f"not offered ({asked!r})" in outcome.feature_text


def test_differences_of_jobs_leave_the_seed_out():
    other = dataclasses.replace(JOB, seed="11" * 32, epochs=4)
    assert job_differences(other, JOB) == "epochs: got 4, want 3"
    assert job_differences(JOB, dataclasses.replace(JOB, seed="11" * 32)) == ""


# -- by hand --------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    """What a person types."""

    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("typed", "approved"),
    [
        ("y\n", True),
        (" YES \n", True),
        ("n\n", False),
        ("\n", False),
        ("maybe\n", False),
        ("", False),
    ],
)
def test_only_yes_is_yes(monkeypatch, typed, approved):
    monkeypatch.setattr(approval.sys, "stdin", Terminal(typed))
    refusal = ask_operator(REQUEST, Console(file=io.StringIO()))
    assert (refusal is None) == approved
    if not approved:
        assert refusal.reason == "the operator declined"


@pytest.mark.parametrize(("typed", "approved"), [("y\n", True), ("no\n", False)])
def test_an_operator_decides(work, monkeypatch, typed, approved):
    work.tables[SHOP]["approval"]["mode"] = "ask"
    monkeypatch.setattr(approval.sys, "stdin", Terminal(typed))
    outcome = work.train()
    assert "Run this job (train)? [y/N]" in outcome.feature_text
    assert outcome.succeeded == approved
    if not approved:
        assert str(outcome.label) == "'shop' refused: the operator declined"
        assert untouched(work, SHOP)


def test_without_a_terminal_nobody_is_asked_and_the_job_is_refused(work, monkeypatch):
    work.tables[SHOP]["approval"]["mode"] = "ask"
    monkeypatch.setattr(approval.sys, "stdin", io.StringIO("y\n"))
    outcome = work.train()
    assert "nobody is at its terminal" in str(outcome.label)
    assert 'set [approval] mode = "config"' in outcome.feature_text
    assert "every job will be refused" in outcome.feature_text
    assert 'mode = "config"' not in str(outcome.label)


def test_a_feature_party_without_columns_has_nothing_to_do(work):
    work.data(SHOP, [row[:1] for row in example_tables()[1]])
    outcome = work.train()
    assert "no feature column for the job" in str(outcome.label)
    assert "no feature column for the job" in outcome.feature_text
