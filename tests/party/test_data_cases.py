"""Files as organisations have them, through the commands' own functions: each works, or is refused
with file, row and column named to its owner and to nobody else.
"""

import csv
import gzip
import json

import numpy as np
import polars as pl
import pytest

from colonnade.errors import DataError, PeerError, UsageError
from party_runs import BANK, SHOP, KeepingReporter, Workplace, example_tables


@pytest.fixture
def work(tmp_path):
    work = Workplace.make(tmp_path)
    work.job |= {"epochs": 1}
    return work


def trained(work):
    outcome = work.train()
    assert outcome.succeeded, outcome.label_text + outcome.feature_text
    return outcome


def refused_by_shop(work, *named):
    """The feature party refuses its own file; the label party hears that and no more."""
    outcome = work.train()
    assert isinstance(outcome.label, PeerError)
    assert outcome.feature == 1
    for words in named:
        assert words in outcome.feature_text, outcome.feature_text
    assert "see its log" in str(outcome.label)
    for secret in ("visits", "spend", "region", "data.csv, ", "row "):
        assert secret not in outcome.label_text.replace("per row", "")
    assert not (work.folder / SHOP / "runs").exists()
    return outcome


def refused_by_bank(work, *named, error=DataError):
    """The label party refuses its own file before it connects to anybody."""
    reporter = KeepingReporter()
    with pytest.raises(error) as caught:
        work.train_here(reporter, None)
    for words in named:
        assert words in str(caught.value), str(caught.value)
    assert "connecting" not in "\n".join(reporter.notes)
    assert work.runs(BANK, "failed") == []


def changed(rows, row, column, value):
    """A copy of a table with one cell replaced; row 1 is the first record."""
    rows = [list(cells) for cells in rows]
    rows[row][rows[0].index(column)] = value
    return rows


def aligned_rows(work):
    return json.loads((work.runs(BANK)[-1] / "run.json").read_text())["records"]


# -- formats --------------------------------------------------------------------------------------


def frame_of(rows):
    columns = {name: [cells[i] for cells in rows[1:]] for i, name in enumerate(rows[0])}
    frame = pl.DataFrame(columns)
    numbers = [name for name in ("age", "balance", "visits", "spend") if name in frame.columns]
    return frame.with_columns(pl.col(numbers).cast(pl.Float64))


def test_parquet_on_one_side_and_gzipped_csv_on_the_other(work):
    label, feature = example_tables()
    frame_of(label).write_parquet(work.folder / BANK / "data.parquet")
    work.tables[BANK]["data"]["path"] = "data.parquet"
    text = "\n".join(",".join(map(str, cells)) for cells in feature)
    work.text(SHOP, gzip.compress(text.encode()), "data.csv.gz")
    work.tables[SHOP]["data"]["path"] = "data.csv.gz"
    trained(work)
    assert aligned_rows(work) == 60


@pytest.mark.parametrize("compressed", [False, True])
def test_libsvm_rows_are_aligned_by_their_position(work, compressed):
    rng = np.random.default_rng(3)
    lines = {BANK: [], SHOP: []}
    for _ in range(40):
        hidden = rng.integers(0, 2, size=5)
        label = 1 if hidden.sum() > 2 else -1
        lines[BANK].append(f"{label} 1:{hidden[0]} 3:{hidden[1] or 0.5}")
        lines[SHOP].append(f"0 2:{hidden[2]} 4:1 5:{hidden[3]} 7:{hidden[4]}")
    for party in (BANK, SHOP):
        text = ("\n".join(lines[party]) + "\n").encode()
        name = "data.libsvm.gz" if compressed else "data.libsvm"
        work.text(party, gzip.compress(text) if compressed else text, name)
        work.tables[party]["data"] = {"path": name, "ids": "row", "scaling": "none"}
    work.tables[BANK]["data"]["label"] = "label"
    outcome = trained(work)
    assert "labels: '1' -> 1, '-1' -> 0" in outcome.label_text
    assert aligned_rows(work) == 40


def test_ids_by_position_here_and_by_column_there_are_refused_by_both(work):
    work.tables[SHOP]["data"]["ids"] = "row"
    outcome = work.train()
    for text in (outcome.label_text, outcome.feature_text):
        assert "ids: 'colonnade-ids/1(" in text
        assert "over row numbers" in text


def test_a_spreadsheets_csv(work):
    """Byte order mark, CRLF, quoted headers, semicolons, unicode names, blank trailing lines."""
    _, feature = example_tables()
    lines = ['"id";"größe [cm]";"umsatz; netto";"région"']
    lines += [";".join(f'"{cell}"' for cell in cells) for cells in feature[1:]]
    text = "\r\n".join([*lines, "", "", ""])
    work.text(SHOP, b"\xef\xbb\xbf" + text.encode())
    outcome = trained(work)
    assert "größe [cm], umsatz; netto, région" in outcome.feature_text
    assert "größe" not in outcome.label_text
    assert aligned_rows(work) == 60


# -- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", ["inf", "-Infinity", "1e305"])
def test_numbers_without_end_are_refused_where_they_stand(work, cell):
    work.data(SHOP, changed(example_tables()[1], 5, "spend", cell))
    outcome = refused_by_shop(work, "data.csv, row 6, column 'spend'", "finite")
    assert cell not in outcome.label_text


@pytest.mark.parametrize("cell", ["", "NaN", "NA", "?"])
def test_a_missing_number_is_refused_unless_it_may_be_filled(work, cell):
    work.data(SHOP, changed(example_tables()[1], 5, "spend", cell))
    refused_by_shop(work, "data.csv, row 6, column 'spend'", "missing")
    work.tables[SHOP]["data"]["missing"] = "median"
    outcome = trained(work)
    assert "column 'spend': 1 missing values filled" in outcome.feature_text
    assert "filled" not in outcome.label_text


def test_a_value_beyond_the_declared_range_is_refused_or_clipped(work):
    rows = changed(example_tables()[1], 5, "spend", "12345.5")
    work.data(SHOP, rows)
    work.tables[SHOP]["data"] |= {"scaling": "none"}
    outcome = refused_by_shop(work, "data.csv, row 6, column 'spend'", "clip = true")
    assert "12345" not in outcome.label_text
    work.tables[SHOP]["data"]["clip"] = True
    outcome = trained(work)
    assert "column 'spend': 1 values clipped" in outcome.feature_text


def test_a_bad_cell_of_the_label_party_never_leaves_it(work):
    work.data(BANK, changed(example_tables()[0], 7, "balance", "inf"))
    refused_by_bank(work, "data.csv, row 8, column 'balance'")


def test_constant_columns_are_said_to_be_constant(work):
    _, feature = example_tables()
    rows = [[*cells, 1] for cells in feature]
    rows[0][-1] = "always"
    work.data(SHOP, rows)
    outcome = trained(work)
    assert "column 'always': constant, so it is 0 everywhere; exclude it" in outcome.feature_text
    assert "always" not in outcome.label_text


def test_a_row_that_is_too_short_or_empty_is_named(work):
    _, feature = example_tables()
    text = "\n".join(",".join(map(str, cells)) for cells in feature[:9]) + "\np999,1.0\n"
    work.text(SHOP, text)
    refused_by_shop(work, "data.csv, line 10: got 2 fields; want 4")


def test_a_file_without_records(work):
    work.text(SHOP, "id,visits\n")
    refused_by_shop(work, "data.csv")
    work.text(BANK, "")
    refused_by_bank(work, "data.csv")


def test_a_file_that_is_not_there(work):
    work.tables[SHOP]["data"]["path"] = "absent.csv"
    outcome = work.train()
    assert "absent.csv" in outcome.feature_text
    assert "absent" not in outcome.label_text
    assert isinstance(outcome.label, PeerError)


def test_unseen_categories_at_prediction_are_counted(work, tmp_path):
    trained(work)
    label, feature = example_tables()
    work.data(SHOP, changed(changed(feature, 3, "region", "moon"), 4, "region", "mars"), "new.csv")
    work.tables[SHOP]["predict"]["path"] = "new.csv"
    new = work.data(BANK, [cells[:3] for cells in label], "new.csv")
    outcome = work.predict(work.models(BANK)[0], new, tmp_path / "out.csv")
    assert outcome.succeeded
    assert "column 'region': 2 values pooled as other" in outcome.feature_text
    assert "moon" not in outcome.label_text
    assert "pooled" in (work.runs(SHOP)[-1] / "report.txt").read_text()


# -- labels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("no", "yes", "said"),
    [
        ("0", "1", "'1' -> 1, '0' -> 0"),
        ("-1", "1", "'1' -> 1, '-1' -> 0"),
        ("False", "TRUE", "'true' -> 1, 'false' -> 0"),
        ("no", "Yes", "'yes' -> 1, 'no' -> 0"),
        ("benign", "malign", "'malign' -> 1, 'benign' -> 0"),
        ("[a]", "[b]", "'[b]' -> 1, '[a]' -> 0"),
    ],
)
def test_labels_as_people_write_them(work, tmp_path, no, yes, said):
    label, _ = example_tables()
    words = {"no": no, "yes": yes, "bought": "bought"}
    work.data(BANK, [[*cells[:3], words[cells[3]]] for cells in label])
    outcome = trained(work)
    assert f"labels: {said}" in outcome.label_text
    assert yes not in outcome.feature_text or len(yes) < 3
    classes = json.loads((work.models(BANK)[0] / "labels.json").read_text())["classes"]
    assert (
        "".join(f"{name!r} -> {code}, " for code, name in [*enumerate(classes)][::-1])
        == f"{said}, "
    )
    assert work.predict(
        work.models(BANK)[0], work.folder / BANK / "data.csv", tmp_path / "out.csv"
    ).succeeded
    with (tmp_path / "out.csv").open() as stream:
        assert {row["prediction"] for row in csv.DictReader(stream)} <= set(classes)


def test_one_class_only_and_three_classes_are_refused_before_connecting(work):
    label, _ = example_tables()
    work.data(BANK, [label[0], *([*cells[:3], "no"] for cells in label[1:])])
    refused_by_bank(work, "data.csv", "one class only, 'no'")
    work.data(BANK, changed(label, 2, "bought", "perhaps"))
    refused_by_bank(work, "data.csv", "got 3 classes")


def test_a_missing_label_is_named(work):
    work.data(BANK, changed(example_tables()[0], 2, "bought", ""))
    refused_by_bank(work, "data.csv, row 3", "the label is missing")


def test_one_class_among_the_common_records_stops_both_sides(work):
    label, feature = example_tables()
    buyers = {cells[0] for cells in label if cells[3] == "yes"}
    work.data(SHOP, [feature[0], *(cells for cells in feature if cells[0] in buyers)])
    outcome = work.train()
    assert isinstance(outcome.label, UsageError)
    assert "one class only" in str(outcome.label)
    assert "class" not in outcome.feature_text
    assert "'bank' stopped over its own usage" in outcome.feature_text


def test_the_label_column_cannot_be_a_feature(work):
    work.tables[BANK]["data"]["offer"] = ["age", "bought"]
    with pytest.raises(UsageError, match=r"got the label column 'bought'; labels are never feat"):
        work.config(BANK)


def test_a_label_party_without_features_trains_and_predicts(work, tmp_path):
    label, _ = example_tables()
    work.data(BANK, [[cells[0], cells[3]] for cells in label])
    outcome = trained(work)
    shown = " ".join(outcome.feature_text.replace("│", " ").split())
    assert "each output IS the score X_A W_A of the columns of 'shop'" in shown
    assert "WARNING 'bank' has no features" in outcome.label_text
    metrics = json.loads((work.runs(BANK)[0] / "metrics.json").read_text())["test"]
    assert metrics["federated"]["roc_auc"] > metrics["label party alone"]["roc_auc"] == 0.5
    new = work.data(BANK, [cells[:1] for cells in label], "new.csv")
    prediction = work.predict(work.models(BANK)[0], new, tmp_path / "out.csv")
    assert prediction.succeeded, prediction.label_text
    assert "each output IS the score" in prediction.feature_text


# -- ids ------------------------------------------------------------------------------------------


def keyed(rows, keys):
    """A table whose first column is replaced by these keys, in row order."""
    return [rows[0], *([key, *cells[1:]] for key, cells in zip(keys, rows[1:], strict=True))]


def sized(people):
    """Tables of exactly these people, in one order, without strangers."""
    label, feature = example_tables(people)
    there = {cells[0]: cells for cells in feature[1:]}
    return label[: people + 1], [feature[0], *(there[cells[0]] for cells in label[1 : people + 1])]


@pytest.mark.parametrize(
    ("kind", "common"),
    # As text 007 is an id of its own, and white space around does not matter; as integers 007, 7
    # and 7.0 are one.
    [("text", 1), ("integer", 3)],
)
def test_ids_have_one_normal_form(work, kind, common):
    label, feature = sized(6)
    for party in (BANK, SHOP):
        work.tables[party]["data"]["id_types"] = [kind]
    work.data(BANK, keyed(label, ["007", " 8", "9", "101", "102", "103"]))
    work.data(SHOP, keyed(feature, ["7", "8 ", "9.0", "201", "202", "203"]))
    work.job |= {"batch_size": 2, "test_fraction": 0.0}
    work.tables[SHOP]["approval"]["min_intersection"] = common
    outcome = work.train()
    assert f"{common} records in common" in outcome.feature_text


def test_repeated_ids_under_each_policy(work):
    _, feature = example_tables()
    work.data(SHOP, [*feature, list(feature[1]), list(feature[2])])
    outcome = refused_by_shop(work, "data.csv, rows 2, 3, 66, 67, id column id")
    for cells in feature[1:3]:
        assert str(cells[0]) not in outcome.feature_text
    for policy, common, said in (
        ("first", 60, "dropped 2 records of 2 repeated ids"),
        ("refuse_all", 58, "dropped 4 records of 2 repeated ids"),
    ):
        work.tables[SHOP]["data"]["duplicates"] = policy
        outcome = trained(work)
        assert said in outcome.feature_text
        assert f"{common} records in common" in outcome.label_text


def test_ids_that_become_one_are_repeated_ids(work):
    label, _ = sized(6)
    work.tables[BANK]["data"]["id_types"] = ["integer"]
    work.tables[SHOP]["data"]["id_types"] = ["integer"]
    work.data(BANK, keyed(label, ["7", "007", "9", "10", "11", "12"]))
    refused_by_bank(work, "data.csv, rows 2, 3, id column id")


def test_a_missing_id_is_named(work):
    work.data(SHOP, changed(example_tables()[1], 4, "id", " "))
    refused_by_shop(work, "data.csv, row 5, column 'id'", "the id is missing")


def test_several_key_columns_are_never_joined(work):
    label, feature = sized(12)
    for party, rows in ((BANK, label), (SHOP, feature)):
        body = [[f"a{i % 3}", f"b{i // 3}", *cells[1:]] for i, cells in enumerate(rows[1:])]
        if party == SHOP:
            # "a1" + "b" and "a" + "1b" would be one id if they were joined.
            body[4][:2] = ["a", "1b1"]
        work.data(party, [["branch", "number", *rows[0][1:]], *body])
        work.tables[party]["data"]["ids"] = ["branch", "number"]
    work.job |= {"batch_size": 4, "test_fraction": 0.0}
    outcome = trained(work)
    assert "11 records in common" in outcome.label_text


def test_other_id_types_there_are_named_on_both_sides(work):
    work.tables[SHOP]["data"]["id_types"] = ["integer"]
    rows = example_tables()[1]
    work.data(SHOP, keyed(rows, range(len(rows) - 1)))
    outcome = work.train()
    for text in (outcome.label_text, outcome.feature_text):
        assert "colonnade-ids/1(text)" in text
        assert "colonnade-ids/1(integer)" in text


# -- sizes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("people", "batch", "test", "steps"),
    [
        (20, 1000, 0.2, 1),  # a batch larger than the data
        (17, 8, 0.0, 2),  # a last batch of one row joins the one before it
        (2, 2, 0.0, 1),  # one row of each class
        (3, 2, 0.0, 1),
    ],
)
def test_small_sizes(work, people, batch, test, steps):
    label, feature = sized(people)
    rows = [
        label[0],
        *([*cells[:3], "yes" if i % 2 else "no"] for i, cells in enumerate(label[1:])),
    ]
    work.data(BANK, rows)
    work.data(SHOP, feature)
    work.job |= {"batch_size": batch, "test_fraction": test, "seed": "12" * 32}
    trained(work)
    history = json.loads((work.runs(BANK)[0] / "history.json").read_text())
    assert len(history["batch_loss"]) == steps
    assert np.isfinite(history["batch_loss"]).all()


def test_one_common_record_is_too_few_to_train_on(work):
    label, feature = sized(4)
    work.data(BANK, keyed(label, ["a", "b", "c", "d"]))
    work.data(SHOP, keyed(feature, ["a", "x", "y", "z"]))
    work.tables[SHOP]["approval"]["min_intersection"] = 1
    outcome = work.train()
    for error in (outcome.label_text, outcome.feature_text):
        assert "1 records in common" in error
    assert outcome.feature == 1
    assert "want at least 2" in str(outcome.label) + outcome.feature_text


def test_nothing_in_common(work):
    label, feature = sized(4)
    work.data(SHOP, keyed(feature, ["w", "x", "y", "z"]))
    work.data(BANK, label)
    outcome = work.train()
    assert "below the feature party's minimum" in str(outcome.label)
    assert "0 records in common; min_intersection is 2" in outcome.feature_text


def test_predicting_nobody_the_other_side_knows(work, tmp_path):
    trained(work)
    label, _ = sized(4)
    new = work.data(BANK, [c[:3] for c in keyed(label, ["w", "x", "y", "z"])], "new.csv")
    outcome = work.predict(work.models(BANK)[0], new, tmp_path / "out.csv")
    assert "below the feature party's minimum" in str(outcome.label)
    assert not (tmp_path / "out.csv").exists()


def test_masks_that_do_not_fit_the_columns_refuse_the_job_with_the_reason(tmp_path):
    work = Workplace.make(tmp_path)
    work.job["mask_bits"] = 100
    outcome = work.train()
    for text in (str(outcome.label), outcome.feature_text):
        assert "this job cannot run on the offered columns" in text
        assert "want at most 127" in text
    assert work.runs(BANK, "failed") == []
