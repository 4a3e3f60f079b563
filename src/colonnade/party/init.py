"""`init`: a commented configuration, an identity, and a place for the peer's certificate.

`write_party` looks at the data file, if there is one, and writes its columns with the types it
infers into the configuration, for a person to confirm. The text is checked before anything is
written, and nothing that exists is overwritten. `renew` replaces a certificate; trained models do
not depend on it.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from colonnade.data.cells import parse_numbers
from colonnade.data.readers import read_table
from colonnade.data.schema import infer_types, suggested_scaling
from colonnade.data.table import Table
from colonnade.errors import UsageError
from colonnade.party.certificates import make_identity, renew_certificate
from colonnade.party.config import Role, check_party_config, read_party_config
from colonnade.party.parsing import PARTY_NAME, parse_toml, toml_text

__all__ = ["renew", "write_party"]

JOB_FILE = "job.toml"
IDENTITY_FOLDER = "identity"
PEERS_FOLDER = "peers"
README_FILE = "README.txt"

# A longer list would bury the rest of the file; "*" offers the same columns.
_MOST_LISTED_COLUMNS = 200
# Missing numbers are told of these many columns by name.
_MOST_NAMED = 3
_NUMBERS = ("numeric", "whole")
_ID_NAMES = ("id", "uid", "key")
_LABEL_NAMES = ("label", "target", "y", "class", "outcome")


@dataclass(frozen=True)
class _DataText:
    """The parts of the `[data]` table that depend on the data file, as TOML values."""

    path: str
    ids: str
    label: str
    offer: str
    scaling: str
    confirm: str  # a comment
    missing: str = ""  # a comment line


def write_party(
    directory: Path,
    name: str,
    role: Role,
    *,
    data: Path | None,
    peer_name: str,
    host: str,
    port: int,
    mode: str,
) -> tuple[Path, ...]:
    """Write one party's folder and return the files written, the configuration first.

    `<name>.toml`, certificate and private key in `identity/`, `peers/README.txt`, and for the label
    party `job.toml`. host, port, mode: the address to "listen" on, or the peer's to "dial".

    Raises
        UsageError: an argument would not pass as configuration, or a file exists already.
        DataError: the data file cannot be read.
    """
    for value in (name, peer_name):
        if re.fullmatch(PARTY_NAME, value) is None:
            raise UsageError(
                f"got party name {value!r}; want 1 to 63 lower-case letters, digits, inner hyphens"
            )
    config = directory / f"{name}.toml"
    connection = _CONNECTION.format(mode=toml_text(mode), host=toml_text(host), port=port)
    text = _config_text(name, role, peer_name, connection, data, directory)
    check_party_config(parse_toml(text, config.name), config)
    texts = {
        config: text,
        directory / PEERS_FOLDER / README_FILE: _README.format(name=name, peer=peer_name),
    }
    if role == "label":
        texts[directory / JOB_FILE] = _JOB.format(peer=toml_text(peer_name), peer_key=peer_name)
    for path in texts:
        if path.exists():
            raise UsageError(f"got {path}, which exists; want a new folder; move it away first")
    identity = make_identity(name, directory / IDENTITY_FOLDER)
    for path, content in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.write(content)
    return (config, identity.certificate, identity.private_key, *list(texts)[1:])


def renew(config_path: Path) -> Path:
    """Renew the certificate that a configuration names, keeping the key. Returns its path.

    The peer must pin the new file; runs and models stay as they are.

    Raises
        UsageError: the configuration is wrong, or the identity is not there.
    """
    identity = read_party_config(config_path).own_identity()
    return renew_certificate(identity).certificate


def _config_text(
    name: str, role: Role, peer: str, connection: str, data: Path | None, directory: Path
) -> str:
    shown = _example_data() if data is None else _look_at(data, directory, role)
    label = f"{_LABEL_COMMENT}\nlabel = {shown.label}\n" if role == "label" else ""
    text = _CONFIG.format(
        name=toml_text(name),
        role=toml_text(role),
        connection=connection,
        certificate=toml_text(f"{IDENTITY_FOLDER}/{name}.crt.pem"),
        private_key=toml_text(f"{IDENTITY_FOLDER}/{name}.key.pem"),
        peer=peer,
        peer_certificate=toml_text(f"{PEERS_FOLDER}/{peer}.crt.pem"),
        data=shown,
        label=label,
    )
    return text + (_APPROVAL if role == "feature" else "")


def _example_data() -> _DataText:
    return _DataText(
        path='"data.csv"',
        ids='["id"]',
        label='"label"',
        offer='"*"',
        scaling='"standard"',
        confirm="# CONFIRM: no data file was looked at; path, ids and label are examples.",
    )


def _look_at(data: Path, directory: Path, role: Role) -> _DataText:
    table = read_table(data)
    path = toml_text(Path(os.path.relpath(data.resolve(), directory.resolve())).as_posix())
    scaling = toml_text(suggested_scaling(table))
    if table.sparse is not None:
        return _DataText(
            path=path,
            ids='"row"',
            label='"label"',
            offer='"*"',
            scaling=scaling,
            confirm=f"# CONFIRM: {len(table)} rows, {len(table.names)} columns, no ids: records "
            "match by position.",
        )
    types = infer_types(table)
    key = _guess(table.names, _ID_NAMES, table.names[0])
    rest = [name for name in table.names if name != key]
    if role == "label" and not rest:
        raise UsageError(f"{table.source}: got one column; want an id column and a label column")
    label = _guess(rest, _LABEL_NAMES, rest[-1]) if role == "label" else ""
    features = [name for name in rest if name != label]
    listed = [f"  {toml_text(name)},  # {types[name]}" for name in features]
    few = len(features) <= _MOST_LISTED_COLUMNS
    return _DataText(
        path=path,
        ids=f"[{toml_text(key)}]",
        label=toml_text(label),
        offer="\n".join(["[", *listed, "]"]) if few else '"*"',
        scaling=scaling,
        confirm=f"# CONFIRM: {len(table)} rows, {len(table.names)} columns. What is an id, what is "
        "offered\n# and each type (after each name) were guessed from the file.",
        missing=_missing_comment(table, [name for name in features if types[name] in _NUMBERS]),
    )


def _missing_comment(table: Table, columns: list[str]) -> str:
    """How many numbers are missing where, or nothing."""
    counts = {name: int(np.isnan(parse_numbers(table, name)).sum()) for name in columns}
    holes = {name: count for name, count in counts.items() if count}
    if not holes:
        return ""
    worst = sorted(holes, key=lambda name: -holes[name])[:_MOST_NAMED]
    named = ", ".join(f"{name!r} {holes[name]}" for name in worst)
    more = f", and {len(holes) - len(worst)} more columns" if len(holes) > len(worst) else ""
    return (
        f"# CONFIRM: {sum(holes.values())} numbers are missing ({named}{more}).\n"
        '# Fill them in, leave the columns out, or choose "median"; "error" stops at the first.\n'
    )


def _guess(names: list[str] | tuple[str, ...], usual: tuple[str, ...], otherwise: str) -> str:
    """The first column whose name, or last word of it, is a usual one."""
    for name in names:
        if name.casefold().replace("-", "_").replace(" ", "_").split("_")[-1] in usual:
            return name
    return otherwise


_LABEL_COMMENT = "# The column to predict, with two different values."

_CONNECTION = """\
# "listen" or "dial"; one of the two parties does the one, the other the other.
mode = {mode}
# The own address to listen on ("0.0.0.0": every one of this machine), or the peer's to dial.
host = {host}
# TCP port there.
port = {port}"""

_CONFIG = """\
# Configuration of one party. Paths are relative to this file.
# Options behind "#" are not set; the value shown is an example.

# Name of this party; it stands in its certificate.
name = {name}
# "label" (holds the labels, gets the predictions) or "feature" (holds further columns).
role = {role}

[connection]
{connection}

[identity]
# Shown to the peer, who pins it.
certificate = {certificate}
# Secret; never leaves this machine.
private_key = {private_key}

[peers.{peer}]
# The peer's certificate, received from it and compared by fingerprint (see peers/README.txt).
certificate = {peer_certificate}
# Host to dial for this peer where it differs from [connection].
# host = "peer.example"
# Port to dial for this peer where it differs from [connection].
# port = 7420

[data]
{data.confirm}
# The file with this party's records: CSV, Parquet or LIBSVM, also .gz.
path = {data.path}
# "csv", "parquet" or "libsvm", where the file's suffix does not say it.
# format = "csv"
# Columns that identify a record, the same kind of id at both parties; "row": the position.
ids = {data.ids}
# "text" or "integer" for each id column; text where silent.
# id_types = ["text"]
{label}\
# Columns that a job may use; "*" for all but ids and label. Remove what must not be used.
offer = {data.offer}
# Columns taken out of "*".
exclude = []
# How numbers are scaled: "standard", "minmax", "maxabs" or "none".
scaling = {data.scaling}
# What a missing number becomes: "mean", "median" or "zero"; "error" refuses it.
{data.missing}\
missing = "error"
# Add a 0/1 column that says where a number was missing.
missing_indicator = false
# Clip values outside the declared range, and count them, instead of refusing them.
clip = false
# Records with the same id: "error", keep the "first", or leave all of them out: "refuse_all".
duplicates = "error"
# More categories than this in one column are pooled into one.
max_categories = 1000
# Categories with fewer rows than this are pooled.
min_category_rows = 1

[data.types]
# Where the inferred type is wrong: "numeric", "whole" or "categorical".
# postcode = "categorical"

[data.ranges]
# Largest absolute value of a column after scaling; public, checked.
# age = 128

[data.options]
# Between the fields of a CSV file; found from the header where silent.
# separator = ";"
# Names for the columns of a CSV file without header.
# columns = ["id", "age"]
# Whether LIBSVM indices start at 0.
# zero_based = false
# Number of LIBSVM columns; the largest index seen where silent.
# n_columns = 123

[limits]
# Seconds to wait for the peer to appear.
connect_s = 20
# Seconds to wait for a message.
receive_s = 120
# Seconds for a lost connection to come back.
reconnect_s = 15
# Seconds of silence after which a connection counts as lost.
dead_after_s = 20
# Longest message taken from the peer, in bytes.
max_message_bytes = 1_073_741_824
# Unconfirmed bytes after which sending waits.
send_buffer_bytes = 67_108_864
# Unread bytes after which the peer is held back.
receive_buffer_bytes = 1_073_741_824

[keys]
# Paillier modulus: 2048 or 3072 bits.
bits = 2048
# A smaller modulus, for tests alone: protects nothing.
# insecure_bits = 512

[run]
# Where runs are kept; model shares lie there.
folder = "runs"
# Threads for computing; every core where silent.
# threads = 4
"""

_APPROVAL = """
[approval]
# Who approves a job within the limits below: this file ("config"), a person ("ask"), "never".
mode = "ask"
# Columns that a job may use: what [data] offers ("offered"), or a list of names.
allow_columns = "offered"
# Stop before the label party learns anything if fewer records are shared.
min_intersection = 50
# Most epochs of one job.
max_epochs = 100
# Most outputs per row that the label party may ever see, over all jobs on this data.
# max_outputs_per_row = 10
# Most records used in one job.
# max_rows = 1_000_000
# Smallest batch.
min_batch_size = 32
# A job file agreed on beforehand; a proposal must equal it (but for its public seed).
# job = "job.toml"
# Whether jobs without protection may run: the label party can then see this party's data.
insecure_jobs_allowed = false

[predict]
# The file whose records are scored, where it is not the one of [data].
# path = "new.csv"
# Stop before the label party learns anything if fewer of its records are known here.
min_intersection = 10
"""

_JOB = """\
# The job: what both parties agree on before a run.
# Options behind "#" are not set; the value shown is an example.

# Name of the job; runs are filed under it.
name = "first-job"
# The kind of model.
model = "logistic"
# "blindfl" (encrypted), or "insecure_plain" to measure what protection costs.
protection = "blindfl"
# The parties whose columns are used besides our own.
feature_parties = [{peer}]

# Passes over the training rows. Each shows us one more output for every row.
epochs = 10
# Rows in a batch.
batch_size = 128
# Step size.
learning_rate = 0.05
# Share of the last step that is taken again, from 0 to below 1.
momentum = 0.9
# Shrinks the weights at each step.
weight_decay = 0.0
# Standard deviation of the first, secret weights.
initial_scale = 0.05

# Share of the common rows kept for the final test.
test_fraction = 0.2
# Share of the common rows on which each epoch is judged.
validation_fraction = 0.0

# Bits by which a mask is wider than what it hides.
mask_bits = 64
# Paillier modulus: 2048 or 3072 bits.
key_bits = 2048
# A smaller modulus, for tests alone: protects nothing.
# insecure_key_bits = 512
# Public randomness that orders rows, 64 hexadecimal digits; new for each run where silent.
# seed = "0000000000000000000000000000000000000000000000000000000000000000"

[columns]
# What we want of each feature party: all it offers, or a list of names.
{peer_key} = "offered"
"""

_README = """\
Certificates of the peers of {name}.

1. Send identity/{name}.crt.pem to {peer}. Never send identity/{name}.key.pem to anyone.
2. Put the certificate that {peer} sends you here as {peer}.crt.pem.
3. Compare its fingerprint with {peer} over another way than the one it came (by telephone):
       colonnade fingerprint {peer}.crt.pem
   Whoever holds the key to a certificate in this folder can connect as {peer}.
4. When {peer} renews its certificate, replace the file and compare again. Models stay valid.
"""
