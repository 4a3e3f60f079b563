"""Model shares on disk: only the two halves of one training are used together."""

import hashlib
import json
import shutil

import numpy as np
import pytest

from colonnade.errors import IntegrityError, PeerError, UsageError
from colonnade.party.model import find_model, load_model
from party_runs import BANK, SHOP, Workplace


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    work = Workplace.make(tmp_path_factory.mktemp("trained"))
    for _ in range(2):
        outcome = work.train()
        assert outcome.succeeded, outcome.label_text + outcome.feature_text
    return work


@pytest.fixture
def work(trained, tmp_path):
    """A copy of two trainings that a test may spoil."""
    copy = Workplace(tmp_path / "copy", trained.label_listens, trained.tables, trained.job)
    shutil.copytree(trained.folder, copy.folder)
    return copy


def predicted(work, model, tmp_path):
    data = work.folder / BANK / "data.csv"
    return work.predict(model, data, tmp_path / "scores.csv")


def test_shares_of_two_trainings_are_never_used_together(work, tmp_path):
    label, feature = work.models(BANK), work.models(SHOP)
    shutil.rmtree(feature[0])
    outcome = predicted(work, label[0], tmp_path)
    assert isinstance(outcome.label, PeerError)
    for text in (outcome.label_text, outcome.feature_text):
        assert "no finished run here has a model share with the pair digest" in text
        assert "use the two run folders of one training" in text
    assert not (tmp_path / "scores.csv").exists()
    assert outcome.feature == 1


def test_run_folders_that_changed_their_names_are_found_by_their_digest(work, tmp_path):
    first, second = work.models(SHOP)
    first.rename(first.with_name("aside"))
    second.rename(first)
    first.with_name("aside").rename(second)
    assert predicted(work, work.models(BANK)[0], tmp_path).succeeded


def test_a_share_file_of_the_other_training_is_noticed(work, tmp_path):
    first, second = work.models(SHOP)
    shutil.copy(second / "share.safetensors", first / "share.safetensors")
    outcome = predicted(work, work.models(BANK)[0], tmp_path)
    assert isinstance(outcome.label, PeerError)
    assert "the model share at 'shop' is damaged" in str(outcome.label)
    assert str(work.folder) not in str(outcome.label)
    assert "share.safetensors is not the file that this run wrote" in outcome.feature_text


@pytest.mark.parametrize("name", ["share.safetensors", "model.json", "preprocessor.json"])
def test_one_changed_bit_is_noticed_before_anything_is_sent(work, name):
    run = work.models(BANK)[0]
    data = bytearray((run / name).read_bytes())
    data[len(data) // 2] ^= 1
    (run / name).write_bytes(data)
    with pytest.raises(IntegrityError, match=name):
        load_model(run, "label")


def rewritten_job(run, change):
    """Change the job in a run's card, and the manifest with it, as another release would write."""
    card = json.loads((run / "model.json").read_text())
    job = json.loads(card["job"])
    change(job)
    card["job"] = json.dumps(job)
    data = json.dumps(card).encode()
    (run / "model.json").write_bytes(data)
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["sha256"]["model.json"] = hashlib.sha256(data).hexdigest()
    (run / "manifest.json").write_text(json.dumps(manifest))


def test_a_card_written_before_a_key_was_added_is_read_with_its_default(work):
    run = work.models(BANK)[0]
    rewritten_job(run, lambda job: job.pop("initial_scale"))
    assert load_model(run, "label").job.initial_scale == 0.05


@pytest.mark.parametrize(
    "change", [lambda job: job.update(epochs=0), lambda job: job.update(later="x"), dict.clear]
)
def test_a_card_with_another_job_is_this_sides_affair(work, change):
    run = work.models(BANK)[0]
    rewritten_job(run, change)
    with pytest.raises(IntegrityError, match="the stored job"):
        load_model(run, "label")


def test_a_missing_file_is_named(work):
    run = work.models(BANK)[0]
    (run / "labels.json").unlink()
    with pytest.raises(IntegrityError, match=r"labels\.json is missing"):
        load_model(run, "label")


def test_the_other_partys_share_is_refused(work):
    with pytest.raises(UsageError, match="holds the feature party's share; want the label party's"):
        load_model(work.models(SHOP)[0], "label")


def test_a_share_is_found_beside_a_damaged_run(work):
    first, second = work.models(SHOP)
    pair = load_model(second, "feature").card.pair
    (first / "model.json").write_text("{}")
    assert find_model(work.folder / SHOP / "runs", pair, BANK).folder == second
    with pytest.raises(IntegrityError, match=r"model\.json"):
        find_model(work.folder / SHOP / "runs", "ab" * 32, BANK)


def test_a_model_serves_only_the_label_party_it_was_made_with(work):
    pair = load_model(work.models(SHOP)[0], "feature").card.pair
    with pytest.raises(PeerError, match="was made with 'bank', not 'insurer'"):
        find_model(work.folder / SHOP / "runs", pair, "insurer")


def test_what_is_stored_is_what_is_needed_to_score(work):
    label = load_model(work.models(BANK)[0], "label")
    feature = load_model(work.models(SHOP)[0], "feature")
    assert set(label.tensors) == {"u_b", "v_a", "bias"}
    assert set(feature.tensors) == {"u_a", "v_b"}
    assert label.label_state().v_a.shape == feature.feature_state().u_a.shape == (6, 1)
    assert label.label_state().u_b.shape == feature.feature_state().v_b.shape == (2, 1)
    assert np.isfinite(label.bias()).all()
    assert feature.mapping is None
    assert label.card.columns == ("age", "balance")
    assert feature.card.columns == ("visits", "spend", "region")


def test_another_key_size_than_the_models_is_named(work, tmp_path):
    tables = {name: dict(table) for name, table in work.tables.items()}
    tables[SHOP]["keys"] = {"insecure_bits": 768}
    changed = Workplace(work.folder, work.label_listens, tables, work.job)
    outcome = predicted(changed, work.models(BANK)[0], tmp_path)
    assert "key_bits: '512' here, '768' there" in str(outcome.label)
