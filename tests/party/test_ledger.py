"""The count of outputs per row: kept for good, by label party and file."""

import json

import pytest

from colonnade.errors import IntegrityError, PeerError
from colonnade.party.ledger import Ledger
from party_runs import BANK, SHOP, Workplace


def test_counts_add_up_by_label_party_and_file(tmp_path):
    ledger = Ledger(tmp_path / "runs")
    assert ledger.count("bank", "a.csv") == 0
    ledger.add("bank", "a.csv", 3)
    ledger.add("bank", "a.csv", 4)
    ledger.add("bank", "b.csv", 10)
    ledger.add("clinic", "a.csv", 100)
    assert Ledger(tmp_path / "runs").count("bank", "a.csv") == 7
    assert ledger.count("bank", "b.csv") == 10
    assert ledger.count("clinic", "a.csv") == 100
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["ledger.json"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b'{"version": 1}',
        b'{"version": 2, "outputs_per_row": {}}',
        b'{"version": 1, "outputs_per_row": {"bank": {"a.csv": -1}}}',
        b'{"version": 1, "outputs_per_row": {"bank": {"a.csv": "1"}}}',
        b'{"version": 1, "outputs_per_row": {}, "more": 1}',
    ],
)
def test_a_damaged_book_is_never_taken_for_an_empty_one(tmp_path, content):
    (tmp_path / "ledger.json").write_bytes(content)
    with pytest.raises(IntegrityError, match=r"ledger\.json is damaged.*backup"):
        Ledger(tmp_path).count("bank", "a.csv")


def test_a_damaged_book_stops_jobs_and_its_path_stays_here(tmp_path):
    work = Workplace.make(tmp_path)
    assert work.train().succeeded
    book = work.folder / SHOP / "runs" / "ledger.json"
    assert list(json.loads(book.read_text())["outputs_per_row"]) == [BANK]
    book.write_text("{}")
    outcome = work.train()
    assert isinstance(outcome.label, PeerError)
    assert "the count of outputs per row at 'shop' is damaged" in str(outcome.label)
    assert str(tmp_path) not in str(outcome.label)
    assert str(book) in outcome.feature_text
