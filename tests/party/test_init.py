"""`init`: what it writes loads as it stands, names every option, and overwrites nothing."""

import dataclasses
import itertools
import re
import shutil
import stat
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from colonnade.data.bundled import write_demo_data
from colonnade.data.schema import SourceSpec, read_source
from colonnade.errors import DataError, UsageError
from colonnade.party.certificates import make_identity
from colonnade.party.config import (
    ApprovalConfig,
    KeysConfig,
    PartyConfig,
    PeerConfig,
    load_party_config,
    read_party_config,
)
from colonnade.party.init import renew, write_party
from colonnade.party.job import Job, load_job
from colonnade.party.source import load_source
from colonnade.transport.identity import read_certificate
from colonnade.transport.limits import TransportLimits

EXAMPLES = Path(__file__).parents[2] / "examples" / "two_parties"
CSV = 'age,customer id,"say ""hi""",churned\n31,007,a,0\n42,008,b,1\n'


def write_label(folder: Path, data: Path | None = None, **changes: object) -> tuple[Path, ...]:
    arguments: dict[str, object] = {"peer_name": "telecom", "host": "0.0.0.0", "port": 7420}
    arguments |= {"mode": "listen", **changes}
    return write_party(folder, "bank", "label", data=data, **arguments)  # type: ignore[arg-type]


def write_feature(folder: Path, data: Path | None = None) -> tuple[Path, ...]:
    return write_party(
        folder,
        "telecom",
        "feature",
        data=data,
        peer_name="bank",
        host="127.0.0.1",
        port=7420,
        mode="dial",
    )


def test_both_parties_load_once_certificates_are_exchanged(tmp_path: Path) -> None:
    label, label_certificate, *_ = write_label(tmp_path / "bank")
    feature, feature_certificate, *_ = write_feature(tmp_path / "telecom")
    with pytest.raises(UsageError, match="ask 'telecom' for its certificate"):
        load_party_config(label)
    shutil.copy(feature_certificate, tmp_path / "bank/peers/telecom.crt.pem")
    shutil.copy(label_certificate, tmp_path / "telecom/peers/bank.crt.pem")
    for path, name, peer in ((label, "bank", "telecom"), (feature, "telecom", "bank")):
        config = load_party_config(path)
        assert config.name == name
        assert read_certificate(config.identity.certificate).name == name
        assert read_certificate(config.peer(peer).certificate).name == peer
        assert stat.S_IMODE(config.identity.private_key.stat().st_mode) == 0o600


def test_written_files(tmp_path: Path) -> None:
    written = write_label(tmp_path)
    names = [path.relative_to(tmp_path).as_posix() for path in written]
    assert names == [
        "bank.toml",
        "identity/bank.crt.pem",
        "identity/bank.key.pem",
        "peers/README.txt",
        "job.toml",
    ]
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == set(written)
    readme = (tmp_path / "peers/README.txt").read_text()
    assert "Send identity/bank.crt.pem to telecom" in readme
    assert "fingerprint" in readme


def test_written_values_are_the_defaults(tmp_path: Path) -> None:
    config = read_party_config(write_feature(tmp_path / "t")[0])
    assert config.limits == TransportLimits()
    assert config.approval == ApprovalConfig()
    assert config.keys == KeysConfig()
    assert config.data == SourceSpec(path=tmp_path / "t/data.csv", ids=("id",))
    write_label(tmp_path / "b")
    job = load_job(tmp_path / "b/job.toml")
    for field in dataclasses.fields(Job):
        if field.default is not dataclasses.MISSING:
            assert getattr(job, field.name) == field.default, field.name
    assert job.feature_parties == ("telecom",)
    assert job.columns == {"telecom": "offered"}


def test_missing_numbers_are_counted_where_the_policy_is_chosen(tmp_path: Path) -> None:
    data = tmp_path / "data.csv"
    data.write_text("id,a,b,c,d,town\n1,,1.5,,,Rome\n2,2.5,,,,\n3,3.5,2.5,0.5,,Oslo\n4,1,1,1,1,x\n")
    text = write_feature(tmp_path / "t", data)[0].read_text()
    said = "# CONFIRM: 7 numbers are missing ('d' 3, 'c' 2, 'a' 1, and 1 more columns).\n"
    assert said in text
    assert "town" not in text.split(said)[1].split("missing = ")[0]
    assert text.split(said)[1].splitlines()[1] == 'missing = "error"'
    config = read_party_config(tmp_path / "t/telecom.toml")
    with pytest.raises(DataError, match="the value is missing"):
        load_source(config.data)
    (tmp_path / "t/telecom.toml").write_text(
        text.replace('missing = "error"', 'missing = "median"')
    )
    assert len(load_source(read_party_config(tmp_path / "t/telecom.toml").data)) == 4


def test_nothing_is_said_of_a_file_without_holes(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text(CSV)
    text = write_label(tmp_path / "b", tmp_path / "data.csv")[0].read_text()
    assert "are missing" not in text


def options(kind: type) -> set[str]:
    """Every key that `kind` and its tables take; tables with free keys by their own name."""
    found = set()
    for name, hint in get_type_hints(kind).items():
        if dataclasses.is_dataclass(hint):
            found |= options(hint)  # type: ignore[arg-type]
        elif PeerConfig in get_args(hint):
            found |= options(PeerConfig)
        else:
            found.add(name)
    return found


def test_every_option_is_shown_with_a_comment(tmp_path: Path) -> None:
    write_label(tmp_path / "b")
    write_feature(tmp_path / "t")
    shown = "\n".join(
        (tmp_path / name).read_text() for name in ("b/bank.toml", "t/telecom.toml", "b/job.toml")
    )
    keys = set(re.findall(r"^(?:# )?(\w+) = ", shown, re.M))
    tables = {name.split(".")[-1] for name in re.findall(r"^\[(.+)\]$", shown, re.M)}
    missing = (options(PartyConfig) | options(Job)) - keys - tables
    assert missing == set()
    lines = shown.splitlines()
    option = re.compile(r"(# )?[\w]+ = ")
    for above, line in itertools.pairwise(lines):
        if option.match(line):
            assert above.startswith("# "), line
            assert not option.match(above), line


def test_examples_behind_comment_signs_are_valid(tmp_path: Path) -> None:
    write_label(tmp_path / "b")
    paths = (write_feature(tmp_path / "t")[0], tmp_path / "b/bank.toml", tmp_path / "b/job.toml")
    for path in paths:
        text = path.read_text()
        path.write_text(re.sub(r"^# (?=\w+ = )", "", text, flags=re.M))
        assert path.read_text() != text
    assert read_party_config(paths[0]).approval.max_rows == 1_000_000
    assert read_party_config(paths[1]).data.types == {"postcode": "categorical"}
    assert load_job(paths[2]).insecure_key_bits == 512


def test_columns_of_the_data_file_are_listed_for_confirmation(tmp_path: Path) -> None:
    data = tmp_path / "customers.csv"
    data.write_text(CSV)
    label = write_label(tmp_path / "bank", data)[0]
    assert "# CONFIRM: 2 rows, 4 columns." in label.read_text()
    config = read_party_config(label)
    assert config.data.path.resolve() == data
    assert config.data.ids == ("customer id",)
    assert config.data.label == "churned"
    assert config.data.offer == ("age", 'say "hi"')
    assert '  "age",  # numeric\n  "say \\"hi\\"",  # categorical\n' in label.read_text()
    feature = read_party_config(write_feature(tmp_path / "telecom", data)[0])
    assert feature.data.label is None
    assert feature.data.offer == ("age", 'say "hi"', "churned")


def test_libsvm_file_without_ids(tmp_path: Path) -> None:
    data = tmp_path / "a.libsvm"
    data.write_text("-1 3:1 5:1\n+1 1:1\n")
    config = read_party_config(write_label(tmp_path / "bank", data)[0])
    assert (config.data.ids, config.data.label, config.data.scaling) == ("row", "label", "none")


def test_wide_file_is_not_listed(tmp_path: Path) -> None:
    data = tmp_path / "wide.csv"
    data.write_text(",".join(f"c{i}" for i in range(300)) + "\n" + ",".join("1" * 300) + "\n")
    config = read_party_config(write_feature(tmp_path / "telecom", data)[0])
    assert (config.data.ids, config.data.offer) == (("c0",), "*")


def test_column_names_cannot_break_the_file(tmp_path: Path) -> None:
    data = tmp_path / "odd.csv"
    data.write_text('id,"a""\n[run]\nfolder = ""x",{b},\x7f\n1,2,3,4\n', encoding="utf-8")
    config = read_party_config(write_feature(tmp_path / "telecom", data)[0])
    assert config.data.offer == ('a"\n[run]\nfolder = "x', "{b}", "\x7f")
    assert config.run.folder == tmp_path / "telecom" / "runs"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"peer_name": "x]\n[y"}, "got party name"),
        ({"peer_name": "bank"}, "is this party"),
        ({"port": 0}, r"bank.toml: \[connection\] port: got 0"),
        ({"mode": "wait"}, r"bank.toml: \[connection\] mode: got 'wait'"),
        ({"host": ""}, r"bank.toml: \[connection\] host: got ''"),
    ],
)
def test_bad_arguments_write_nothing(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        write_label(tmp_path / "bank", **changes)
    assert not (tmp_path / "bank").exists()


def test_a_label_party_needs_two_columns(tmp_path: Path) -> None:
    data = tmp_path / "one.csv"
    data.write_text("id\n1\n")
    with pytest.raises(UsageError, match=r"one\.csv: got one column; want an id column"):
        write_label(tmp_path / "bank", data)


def test_missing_data_file_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.csv"):
        write_label(tmp_path / "bank", tmp_path / "none.csv")
    assert not (tmp_path / "bank").exists()


@pytest.mark.parametrize(
    "name",
    ["bank.toml", "job.toml", "peers/README.txt", "identity/bank.crt.pem", "identity/bank.key.pem"],
)
def test_nothing_is_overwritten(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(UsageError, match=re.escape(name)):
        write_label(tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / name]
    assert (tmp_path / name).read_text() == "mine"


def test_renewing_keeps_the_key_and_the_place(tmp_path: Path) -> None:
    config_path, certificate, key, *_ = write_label(tmp_path)
    before, key_before = read_certificate(certificate), key.read_bytes()
    assert renew(config_path) == certificate
    assert read_certificate(certificate).fingerprint != before.fingerprint
    assert read_certificate(certificate).name == "bank"
    assert key.read_bytes() == key_before


def test_example_configurations_load_and_fit_their_data(tmp_path: Path) -> None:
    folder = tmp_path / "two_parties"
    shutil.copytree(EXAMPLES, folder)
    write_demo_data(folder / "data")
    for name in ("clinic", "laboratory"):
        made = make_identity(name, folder / "identity")
        (folder / "peers").mkdir(exist_ok=True)
        shutil.copy(made.certificate, folder / "peers")
    label = load_party_config(folder / "label.toml")
    feature = load_party_config(folder / "feature.toml")
    assert (label.role, feature.role) == ("label", "feature")
    assert {label.connection.mode, feature.connection.mode} == {"listen", "dial"}
    assert (list(label.peers), list(feature.peers)) == ([feature.name], [label.name])
    widths = [len(c.data.check(read_source(c.data)).features) for c in (label, feature)]
    assert widths == [12, 18]
    job = load_job(folder / "job.toml")
    assert job.feature_parties == (feature.name,)
    assert job.epochs <= feature.approval.max_epochs
    assert job.batch_size >= feature.approval.min_batch_size
