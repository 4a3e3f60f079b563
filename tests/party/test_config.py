"""Party configuration: refusals name file, table and key; paths resolve; files are checked."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest
from msgspec import Meta

from colonnade.errors import UsageError
from colonnade.party.config import load_party_config, read_party_config
from colonnade.party.parsing import Place, build, nearest, read_toml, toml_text

LABEL = """
name = "bank"
role = "label"

[connection]
mode = "listen"
host = "0.0.0.0"
port = 7420

[identity]
certificate = "identity/bank.pem"
private_key = "identity/bank.key"

[peers.telecom]
certificate = "peers/telecom.pem"

[data]
path = "customers.csv"
ids = ["customer"]
label = "churned"
"""
FEATURE = (
    LABEL.replace('"bank"', '"telecom"')
    .replace("peers.telecom", "peers.bank")
    .replace('"label"', '"feature"')
    .replace('"listen"', '"dial"')
    .replace('label = "churned"', 'offer = ["age", "income"]')
)


def write(folder: Path, text: str, name: str = "label.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def make_files(folder: Path) -> None:
    for name in ("identity/bank.pem", "identity/bank.key", "peers/telecom.pem"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch(mode=0o600)


def test_label_party_with_defaults(tmp_path: Path) -> None:
    make_files(tmp_path)
    config = load_party_config(write(tmp_path, LABEL))
    assert (config.name, config.role) == ("bank", "label")
    assert config.identity.certificate == tmp_path / "identity/bank.pem"
    assert config.peer("telecom").certificate == tmp_path / "peers/telecom.pem"
    assert config.data.path == tmp_path / "customers.csv"
    assert config.run.folder == tmp_path / "runs"
    assert config.keys.modulus_bits == 2048
    assert config.limits.receive_s == 120.0
    assert config.own_identity().name == "bank"
    assert [peer.name for peer in config.pinned_peers()] == ["telecom"]


def test_feature_party_with_everything(tmp_path: Path) -> None:
    text = (
        FEATURE
        + """
types = { age = "whole" }
ranges = { age = 128 }
[data.options]
separator = ";"
[limits]
receive_s = 5
[approval]
mode = "config"
allow_columns = ["age"]
max_outputs_per_row = 20
max_rows = 100
[keys]
insecure_bits = 512
[run]
folder = "/var/runs"
threads = 4
"""
    )
    config = read_party_config(write(tmp_path, text))
    assert config.approval.mode == "config"
    assert config.approval.allow_columns == ("age",)
    assert config.approval.min_intersection == 50
    assert config.data.ranges == {"age": 128.0}
    assert config.data.options.separator == ";"
    assert config.limits.receive_s == 5.0
    assert config.keys.modulus_bits == 512
    assert config.run.folder == Path("/var/runs")


def test_addresses(tmp_path: Path) -> None:
    dialling = LABEL.replace('"listen"', '"dial"')
    config = read_party_config(write(tmp_path, dialling))
    assert config.address_of("telecom") == ("0.0.0.0", 7420)
    own = dialling.replace("telecom.pem", "telecom.pem'\nhost = 'telecom.example'\nport = 1 #")
    own = own.replace('"peers/telecom.pem', "'peers/telecom.pem")
    assert read_party_config(write(tmp_path, own)).address_of("telecom") == ("telecom.example", 1)
    with pytest.raises(UsageError, match="it does not dial"):
        read_party_config(write(tmp_path, LABEL)).address_of("telecom")
    with pytest.raises(UsageError, match="pins no peer 'telecon'; did you mean telecom"):
        config.address_of("telecon")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('role = "label"', 'role = "labels"', "role: got 'labels'; want 'label' or 'feature'"),
        ('name = "bank"', 'name = "The Bank"', "name: got 'The Bank'; want a name of 1 to 63"),
        ('name = "bank"', 'name = "telecom"', "[peers] telecom is this party"),
        ('name = "bank"', "", "name is missing; want a name of 1 to 63"),
        ("port = 7420", "port = 0", "[connection] port: got 0; want a whole number at least 1"),
        ("port = 7420", 'port = "7420"', "[connection] port: got '7420'; want a whole number"),
        ("port = 7420", "port = true", "[connection] port: got true; want a whole number"),
        ("port = 7420", "prot = 7420", "[connection] prot is not a key; did you mean port?"),
        ('"listen"', '"server"', "[connection] mode: got 'server'; want 'listen' or 'dial'"),
        ("[peers.telecom]", "[peer.telecom]", "label.toml: peer is not a key; did you mean peers?"),
        ("[peers.telecom]", "[peers.telecom]\npin = 1", "[peers.telecom] pin is not a key"),
        ("[peers.telecom]", "[peers.Telecom]", "[peers] Telecom: got 'Telecom'; want a name"),
        ('ids = ["customer"]', "", "[data] ids is missing; want the key columns"),
        ('ids = ["customer"]', "ids = [1]", "[data] ids: got [1]; want a list (each item text)"),
        ('label = "churned"', "", "[data] label is missing; want the label column"),
        ('label = "churned"', 'label = "customer"', "[data] label: got the id column"),
        ("[data]", '[approval]\nmode = "ask"\n[data]', "[approval] is for a feature party"),
        ("[data]", "[keys]\nbits = 1024\n[data]", "[keys] bits: got 1024; want 2048 or 3072"),
        ("[data]", "[keys]\ninsecure_bits = 2048\n[data]", "[keys] insecure_bits: got 2048"),
        ("[data]", "[limits]\nreceive_s = 0\n[data]", "[limits] got receive_s = 0.0"),
        ("[data]", "[limits]\nreceive_s = inf\n[data]", "[limits] receive_s: got inf"),
        ("[data]", "limits = 3\n[data]", "[peers.telecom] limits is not a key"),
        ("[data]", "[run]\nthreads = 0\n[data]", "[run] threads: got 0"),
        ("[connection]", "data = 3\n[connection]", "label.toml: not valid TOML"),
    ],
)
def test_refusals_name_file_table_and_key(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in LABEL
    with pytest.raises(UsageError) as caught:
        read_party_config(write(tmp_path, LABEL.replace(old, new)))
    assert "label.toml: " in str(caught.value)
    assert message in str(caught.value)


def test_no_peers(tmp_path: Path) -> None:
    text = LABEL.replace("[peers.telecom]", "[peers]").replace('certificate = "peers', '# "')
    with pytest.raises(UsageError, match=r"peers: got none; want at least one \[peers.NAME\]"):
        read_party_config(write(tmp_path, text))


@pytest.mark.parametrize(
    ("addition", "message"),
    [
        ('[approval]\nallow_columns = ["incom"]', "did you mean income"),
        ('[approval]\nallow_columns = "all"', "allow_columns: got 'all'; want 'offered' or a list"),
        ("[approval]\nmax_epoch = 3", r"\[approval\] max_epoch is not a key; did you mean max_ep"),
        ("[approval]\nmin_intersection = 0", r"\[approval\] min_intersection: got 0"),
        ('[peers.other]\ncertificate = "x.pem"', "a feature party has one peer"),
        ('label = "churned"', r"\[data\] label is for the label party"),
    ],
)
def test_feature_party_refusals(tmp_path: Path, addition: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_party_config(write(tmp_path, FEATURE + addition))


@pytest.mark.parametrize(
    "secret", ["-----BEGIN PRIVATE KEY-----\\nMIGH", "MIGHAgEA\\n", "", "a\\u0000b"]
)
def test_a_key_in_the_file_is_refused_and_not_repeated(tmp_path: Path, secret: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_party_config(write(tmp_path, LABEL.replace("identity/bank.key", secret)))
    assert "[identity] private_key: got something else; want the path" in str(caught.value)
    assert "MIGH" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("identity/bank.pem", "'colonnade init' makes it"),
        ("identity/bank.key", "'colonnade init' makes it"),
        ("peers/telecom.pem", "ask 'telecom' for its certificate, compare the fingerprints"),
    ],
)
def test_missing_files(tmp_path: Path, name: str, message: str) -> None:
    make_files(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(UsageError, match=message):
        load_party_config(write(tmp_path, LABEL))


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    make_files(tmp_path)
    (tmp_path / "identity/bank.key").chmod(0o640)
    with pytest.raises(UsageError, match="chmod 600"):
        load_party_config(write(tmp_path, LABEL))


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        read_toml(tmp_path / "none.toml")
    with pytest.raises(UsageError, match="cannot read"):
        read_toml(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b'name = "Z\xfcrich"')
    with pytest.raises(UsageError, match=r"latin\.toml: got bytes that are not UTF-8"):
        read_toml(tmp_path / "latin.toml")
    (tmp_path / "bom.toml").write_bytes(b'\xef\xbb\xbfname = "x"\r\n')
    assert read_toml(tmp_path / "bom.toml") == {"name": "x"}


@dataclass(frozen=True)
class Inner:
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outer:
    count: Annotated[int, Meta(ge=1, lt=9)]
    inner: Inner | None = None
    tables: dict[str, Inner] = field(default_factory=dict)
    mode: Literal["a"] | float = "a"


def test_build_nests(tmp_path: Path) -> None:
    table = {"count": 1, "inner": {"names": ["x"]}, "tables": {"t": {}}, "mode": 2}
    want = Outer(1, Inner(("x",)), {"t": Inner()}, 2.0)
    assert build(Outer, table, Place("f.toml")) == want


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"count": 9}, "f.toml: count: got 9; want a whole number at least 1 and below 9"),
        ({"count": 1, "inner": 3}, "f.toml: inner: got 3; want a table"),
        ({"count": 1, "tables": []}, "f.toml: tables: got []; want a table"),
        ({"count": 1, "tables": {"t": {"nams": 1}}}, "[tables.t] nams is not a key; did you mean"),
        ({"count": {}}, "f.toml: count: got a table; want a whole number"),
        ({"count": 1, "mode": float("nan")}, "f.toml: mode: got nan; want 'a' or a finite number"),
        ({"count": "x" * 500}, "f.toml: count: got '" + "x" * 59 + "...; want"),
        ({}, "f.toml: count is missing; want a whole number at least 1 and below 9; add count = "),
        ({"zzz": 1}, "f.toml: zzz is not a key; want one of count, inner, mode, tables"),
    ],
)
def test_build_refuses(table: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        build(Outer, table, Place("f.toml"))
    assert message in str(caught.value)


def test_text_survives_toml(tmp_path: Path) -> None:
    text = 'quote " slash \\ tab \t line \n del \x7f ünicode 😀'
    path = write(tmp_path, f"x = {toml_text(text)}\n")
    assert read_toml(path) == {"x": text}


def test_nearest_of_nothing() -> None:
    assert nearest("x", ()) == "want none here"
