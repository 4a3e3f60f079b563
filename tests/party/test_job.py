"""The job: bounds, messages, canonical bytes, and what a peer may send."""

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.errors import PeerError, UsageError
from colonnade.party.job import Job, load_job

TEXT = """
name = "churn"
feature_parties = ["telecom"]
epochs = 10
batch_size = 128
learning_rate = 0.05
momentum = 0.9
"""
SEED = "00" * 31 + "ff"


def job(**changes: object) -> Job:
    values: dict[str, object] = {
        "name": "churn",
        "feature_parties": ("telecom",),
        "epochs": 10,
        "batch_size": 128,
        "learning_rate": 0.05,
        "momentum": 0.9,
        "seed": SEED,
    }
    return Job(**{**values, **changes})  # type: ignore[arg-type]


def load(folder: Path, text: str) -> Job:
    path = folder / "job.toml"
    path.write_text(text, encoding="utf-8")
    return load_job(path)


def test_defaults_are_the_documented_ones(tmp_path: Path) -> None:
    loaded = load(tmp_path, TEXT)
    assert (loaded.model, loaded.protection) == ("logistic", "blindfl")
    assert (loaded.mask_bits, loaded.modulus_bits, loaded.insecure) == (64, 2048, False)
    assert (loaded.test_fraction, loaded.validation_fraction) == (0.2, 0.0)
    assert loaded.columns_of("telecom") == "offered"


def test_seed_is_drawn_fresh_unless_given(tmp_path: Path) -> None:
    assert load(tmp_path, TEXT).seed != load(tmp_path, TEXT).seed
    given_seed = load(tmp_path, f'{TEXT}seed = "{SEED}"\n')
    assert given_seed.seed_bytes == bytes(31) + b"\xff"


def test_the_terms_name_every_key_but_the_seed_and_are_short(tmp_path: Path) -> None:
    one, other = load(tmp_path, TEXT), load(tmp_path, TEXT)
    assert one.seed != other.seed
    assert one.terms() == other.terms()
    keys = {f"job.{field.name}" for field in dataclasses.fields(Job)} - {"job.seed"}
    assert set(one.terms()) == keys | {"job"}
    many = job(columns={"telecom": tuple(f"column {i}" for i in range(1000))})
    assert max(len(text) for text in many.terms().values()) <= 80
    assert many.terms()["job.columns"].startswith("sha256 ")
    assert many.terms()["job"] != job().terms()["job"]


def test_a_key_of_the_peers_making_is_shown_in_part_and_printable() -> None:
    table = json.loads(job().to_wire()) | {"\x1b[2J\nepochs" + 100_000 * "x": 1}
    with pytest.raises(PeerError) as caught:
        Job.from_wire(json.dumps(table).encode(), "bank")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) <= 2000


def test_whole_numbers_in_the_file_become_floats_so_that_digests_agree(tmp_path: Path) -> None:
    one = load(tmp_path, TEXT.replace("0.05", "1") + f'seed = "{SEED}"')
    other = load(tmp_path, TEXT.replace("0.05", "1.0") + f'seed = "{SEED}"')
    assert one == other
    assert one.digest() == other.digest()


def test_digest_known_answer() -> None:
    # Canonical bytes written by hand; the digest by `sha256sum` over domain line and bytes.
    wire = (
        b'{"batch_size":128,"columns":{},"epochs":10,"feature_parties":["telecom"],'
        b'"initial_scale":0.05,"key_bits":2048,"learning_rate":0.05,"mask_bits":64,'
        b'"model":"logistic","momentum":0.9,"name":"churn","protection":"blindfl","seed":"'
        + SEED.encode()
        + b'","test_fraction":0.2,"validation_fraction":0.0,"weight_decay":0.0}'
    )
    assert job().check().to_wire() == wire
    assert job().digest() == ("48f3d05e4342a7b2bbe2ab27a1fd6d26829a65218c8277a77b7095a121ffb4d0")


@settings(derandomize=True, max_examples=30, deadline=None)
@given(
    epochs=st.integers(1, 10_000),
    learning_rate=st.floats(1e-9, 1000.0),
    momentum=st.floats(0.0, 1.0, exclude_max=True),
    names=st.lists(st.text(st.characters(codec="utf-8"), max_size=9), min_size=1, unique=True),
    insecure=st.none() | st.integers(256, 2047),
)
def test_wire_round_trip(
    epochs: int, learning_rate: float, momentum: float, names: list[str], insecure: int | None
) -> None:
    sent = job(
        epochs=epochs,
        learning_rate=learning_rate,
        momentum=momentum,
        columns={"telecom": tuple(names)},
        insecure_key_bits=insecure,
    ).check()
    received = Job.from_wire(sent.to_wire(), "bank")
    assert received == sent
    assert received.digest() == sent.digest()


def test_every_field_is_in_the_digest() -> None:
    changes: dict[str, object] = {
        "name": "other",
        "feature_parties": ("insurer",),
        "columns": {"telecom": ("age",)},
        "model": "linear",
        "protection": "insecure_plain",
        "epochs": 11,
        "batch_size": 127,
        "learning_rate": 0.06,
        "momentum": 0.8,
        "weight_decay": 0.1,
        "test_fraction": 0.1,
        "validation_fraction": 0.1,
        "initial_scale": 0.1,
        "mask_bits": 65,
        "key_bits": 3072,
        "insecure_key_bits": 512,
        "seed": "11" * 32,
    }
    assert set(changes) == {field.name for field in dataclasses.fields(Job)}
    digests = {job(**{key: value}).digest() for key, value in changes.items()}
    assert len(digests | {job().digest()}) == len(changes) + 1


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("epochs", 0, "epochs: got 0; want a whole number at least 1 and at most 10000"),
        ("epochs", 10_001, "got 10001"),
        ("epochs", True, "got true"),
        ("epochs", 2.0, "got 2.0"),
        ("batch_size", 1, "batch_size: got 1"),
        ("learning_rate", 0.0, "learning_rate: got 0.0; want a finite number above 0.0"),
        ("learning_rate", float("nan"), "learning_rate: got nan"),
        ("learning_rate", float("inf"), "learning_rate: got inf"),
        ("learning_rate", "fast", "learning_rate: got 'fast'"),
        ("momentum", 1.0, "momentum: got 1.0"),
        ("weight_decay", -0.1, "weight_decay: got -0.1"),
        ("test_fraction", 0.95, "test_fraction: got 0.95"),
        ("mask_bits", 39, "mask_bits: got 39"),
        ("key_bits", 1024, "key_bits: got 1024; want 2048 or 3072"),
        ("insecure_key_bits", 64, "insecure_key_bits: got 64"),
        ("initial_scale", 0.0, "initial_scale: got 0.0"),
        ("seed", "ff", "seed: got 'ff'; want 64 hexadecimal digits"),
        ("name", "../x", "name: got '../x'"),
        ("model", "mlp", "model: got 'mlp'; want 'logistic'; others are not in this release"),
        ("protection", "fedpass", "protection: got 'fedpass'; want 'blindfl' or 'insecure_plain'"),
        ("feature_parties", (), "feature_parties: got ()"),
        ("feature_parties", ("a", "b"), "several feature parties: not in this release"),
        ("feature_parties", ("a", "a"), "got a name twice"),
        ("feature_parties", ("Big Co",), "lower-case"),
        ("columns", {"telecom": ()}, "[columns] telecom: got ()"),
        ("columns", {"telecom": ("age", "age")}, "[columns] telecom: got a column twice"),
        ("columns", {"telecon": "offered"}, "[columns] telecon is not a feature party; did you"),
        ("columns", {"telecom": "all"}, "[columns] telecom: got 'all'; want 'offered' or a list"),
    ],
)
def test_bad_values_are_named(key: str, value: object, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        job(**{key: value}).check("job.toml")
    assert str(caught.value).startswith("job.toml: ")
    assert message in str(caught.value)


def test_fractions_leave_rows_to_train_on() -> None:
    with pytest.raises(UsageError, match="leave rows to train on"):
        job(test_fraction=0.5, validation_fraction=0.5).check()


def test_unknown_and_missing_keys(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"job.toml: epoch is not a key; did you mean epochs\?"):
        load(tmp_path, TEXT.replace("epochs", "epoch"))
    with pytest.raises(UsageError, match=r"job.toml: momentum is missing; want a finite number"):
        load(tmp_path, TEXT.replace("momentum = 0.9", ""))


def test_insecure_jobs_say_so() -> None:
    assert job(protection="insecure_plain").insecure
    small = job(insecure_key_bits=512)
    assert small.insecure
    assert small.modulus_bits == 512


def test_columns_of_names_the_nearest_party() -> None:
    with pytest.raises(UsageError, match="did you mean telecom"):
        job().columns_of("telecon")


def tampered(**changes: object) -> bytes:
    plain = {**json.loads(job().to_wire()), **changes}
    return json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"\xff\xfe",
        b"[" * 100_000,
        b"{" + b" " * (5 << 20) + b"}",
        job().to_wire() + b" ",
        job().to_wire().replace(b'"epochs":10', b'"epochs":9,"epochs":10'),
        job().to_wire().replace(b'"learning_rate":0.05', b'"learning_rate":NaN'),
        tampered(epochs=10**7),
        tampered(epochs="10"),
        tampered(learning_rate=1),
        tampered(surprise=1),
        tampered(columns={"telecom": "all"}),
        tampered(columns=[]),
        tampered(insecure_key_bits=None),
        tampered(seed=SEED.upper()),
    ],
)
def test_bad_jobs_from_a_peer_are_refused(data: bytes) -> None:
    with pytest.raises(PeerError, match="the job from 'bank'"):
        Job.from_wire(data, "bank")


@settings(derandomize=True, max_examples=60, deadline=None)
@given(position=st.integers(0, len(job().to_wire()) - 1), byte=st.integers(0, 255))
def test_changed_bytes_are_refused_or_change_the_digest(position: int, byte: int) -> None:
    data = bytearray(job().to_wire())
    data[position] = byte
    try:
        received = Job.from_wire(bytes(data), "bank")
    except PeerError:
        return
    assert (received.digest() == job().digest()) == (bytes(data) == job().to_wire())
