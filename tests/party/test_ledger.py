"""The count of outputs per row: kept for good, by label party and record."""

import numpy as np
import pytest
import safetensors.numpy

from colonnade.errors import IntegrityError, PeerError, StorageError, UsageError
from colonnade.party import feature_run, label_run, storage
from colonnade.party.ledger import Ledger
from colonnade.protocol.matmul_messages import ForwardShares
from colonnade.wire import RecordingChannel, runner
from party_runs import BANK, SHOP, Workplace, side_by_side

IDS = [f"id-{i}".encode() for i in range(50)]


def added(ledger: Ledger, ids: list[bytes], outputs: int) -> None:
    ledger.add(ids, np.full(len(ids), outputs, np.int64))


def test_counts_add_up_by_label_party_and_record(tmp_path):
    bank, clinic = Ledger(tmp_path / "runs", "bank"), Ledger(tmp_path / "runs", "clinic")
    assert bank.counts(IDS).tolist() == [0] * 50
    added(bank, IDS[:30], 3)
    added(bank, IDS[20:], 4)
    added(clinic, IDS[:1], 100)
    again = Ledger(tmp_path / "runs", "bank")
    assert again.counts(IDS).tolist() == [3] * 20 + [7] * 10 + [4] * 20
    assert again.counts([b"unknown", IDS[25]]).tolist() == [0, 7]
    assert clinic.counts(IDS[:2]).tolist() == [100, 0]
    assert again.counts([]).tolist() == []
    bank.add([], np.zeros(0, np.int64))
    assert bank.counts(IDS[:1]).tolist() == [3]


def test_the_book_holds_no_id_and_is_its_owners_alone(tmp_path):
    added(Ledger(tmp_path, "bank"), IDS, 1)
    (book,) = tmp_path.glob("ledger-*.safetensors")
    assert not any(i in book.read_bytes() for i in IDS)
    assert book.stat().st_mode & 0o077 == 0
    added(Ledger(tmp_path, "other"), IDS, 1)
    books = list(tmp_path.glob("ledger-*.safetensors"))
    assert len(books) == 2
    tags = [safetensors.numpy.load_file(path)["tags"] for path in books]
    assert not np.isin(tags[0].view("S16"), tags[1].view("S16")).any()  # another key


def test_ids_whose_hashes_end_in_zero_bytes_are_kept_apart(tmp_path):
    many = [i.to_bytes(4, "little") for i in range(20_000)]  # some 80 hashes end in a zero byte
    ledger = Ledger(tmp_path, "bank")
    ledger.add(many, np.arange(20_000, dtype=np.int64))
    assert ledger.counts(many).tolist() == list(range(20_000))


GOOD = {
    "key": np.zeros(32, np.uint8),
    "tags": np.zeros((1, 16), np.uint8),
    "counts": np.ones(1, np.int64),
}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        safetensors.numpy.save({"key": GOOD["key"]}),
        safetensors.numpy.save(GOOD | {"key": np.zeros(31, np.uint8)}),
        safetensors.numpy.save(GOOD | {"tags": np.zeros((2, 16), np.uint8)}),
        safetensors.numpy.save(GOOD | {"counts": np.ones(1, np.float32)}),
        safetensors.numpy.save(GOOD | {"counts": -np.ones(1, np.int64)}),
    ],
    ids=["empty", "json", "half", "short key", "other rows", "floats", "negative"],
)
def test_a_damaged_book_is_never_taken_for_an_empty_one(tmp_path, content):
    path = tmp_path / "ledger-bank.safetensors"
    path.write_bytes(content)
    with pytest.raises(IntegrityError, match=r"ledger-bank\.safetensors is damaged.*backup"):
        Ledger(tmp_path, "bank").counts(IDS)
    with pytest.raises(IntegrityError):
        added(Ledger(tmp_path, "bank"), IDS, 1)
    assert path.read_bytes() == content


def test_services_that_count_at_the_same_time_lose_nothing(tmp_path):
    def work():
        for _ in range(10):
            added(Ledger(tmp_path, "bank"), IDS, 1)

    assert side_by_side(*[work] * 4) == [None] * 4
    assert Ledger(tmp_path, "bank").counts(IDS).tolist() == [40] * 50
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "ledger-bank.lock",
        "ledger-bank.safetensors",
    ]


def test_the_name_of_a_new_book_is_brought_to_the_disk(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(storage, "sync_folder", synced.append)
    added(Ledger(tmp_path, "bank"), IDS, 1)
    assert synced == [tmp_path]


def test_a_folder_that_cannot_be_written_is_an_error_that_names_it(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=f"cannot read or write {tmp_path}/file"):
        added(Ledger(tmp_path / "file", "bank"), IDS, 1)


def test_a_job_that_never_gets_to_its_first_output_is_not_counted(tmp_path, monkeypatch):
    work = Workplace.make(tmp_path)

    def refused(*arguments, **settings):
        raise UsageError("the job is too large for its numbers")

    monkeypatch.setattr(label_run, "budget_notes", refused)
    outcome = work.train()
    assert "stopped over its own usage" in outcome.feature_text
    assert "records in common" in outcome.feature_text
    assert not (work.folder / SHOP / "runs" / f"ledger-{BANK}.safetensors").exists()


@pytest.mark.parametrize("kind", ["train", "predict"])
def test_outputs_are_counted_before_the_first_one_leaves(tmp_path, monkeypatch, kind):
    work = Workplace.make(tmp_path)
    if kind == "predict":
        assert work.train().succeeded
    book = work.folder / SHOP / "runs" / f"ledger-{BANK}.safetensors"
    counted = []

    class Watching(RecordingChannel):
        def send(self, message):
            if isinstance(message, ForwardShares):
                counted.append(safetensors.numpy.load_file(book)["counts"].sum())
            super().send(message)

    def run_role(channel, role):
        return runner.run_role(Watching(channel), role)

    monkeypatch.setattr(feature_run, "run_role", run_role)
    if kind == "train":
        assert work.train().succeeded
        assert set(counted) == {48 * 2 + 12}  # two epochs of the training part, the test part once
    else:
        data = work.folder / BANK / "data.csv"
        assert work.predict(work.models(BANK)[0], data, tmp_path / "scores.csv").succeeded
        assert set(counted) == {48 * 2 + 12 + 60}


def test_a_damaged_book_stops_jobs_and_its_path_stays_here(tmp_path):
    work = Workplace.make(tmp_path)
    assert work.train().succeeded
    book = work.folder / SHOP / "runs" / f"ledger-{BANK}.safetensors"
    found = safetensors.numpy.load_file(book)["counts"]
    assert set(found.tolist()) == {1, 2}  # two epochs, and one scoring of the test part
    book.write_text("{}")
    outcome = work.train()
    assert isinstance(outcome.label, PeerError)
    assert "the count of outputs per row at 'shop' is damaged" in str(outcome.label)
    assert str(tmp_path) not in str(outcome.label)
    assert str(book) in outcome.feature_text


def test_a_renamed_file_does_not_start_at_zero(tmp_path):
    work = Workplace.make(tmp_path)
    work.tables[SHOP]["approval"]["max_outputs_per_row"] = 3
    assert work.train().succeeded
    (work.folder / SHOP / "data.csv").rename(work.folder / SHOP / "other.csv")
    work.tables[SHOP]["data"]["path"] = "other.csv"
    assert "would reach 4, with 2 from earlier jobs" in str(work.train().label)


def test_new_people_are_scored_though_others_have_given_all_they_may(tmp_path):
    work = Workplace.make(tmp_path)
    work.tables[SHOP]["approval"]["max_outputs_per_row"] = 2
    assert work.train().succeeded  # two epochs: everybody in common has given two
    model, data = work.models(BANK)[0], work.folder / BANK / "data.csv"
    known = work.predict(model, data, tmp_path / "known.csv")
    assert "would reach 3, with 2 from earlier jobs" in str(known.label)
    assert not (tmp_path / "known.csv").exists()
    # s0 .. s3 are the shop's people whom the bank did not have.
    new = [["id", "age", "balance"], *([f"s{i}", "30.0", "0.2"] for i in range(4))]
    path = work.data(BANK, new, "new.csv")
    outcome = work.predict(model, path, tmp_path / "new_scores.csv")
    assert outcome.succeeded, outcome.label_text
    assert len((tmp_path / "new_scores.csv").read_text().splitlines()) == 5
