"""The job: everything both parties must agree on before a training run, and nothing else.

The label party writes it as TOML. The feature party receives `Job.to_wire` bytes, checks them with
the same rules (`Job.from_wire`) and shows them before it approves. Where it has a file of the job
that was agreed on beforehand, both sides compare `Job.terms` in their hello. A job holds no secret:
its seed is public randomness that orders rows; masks, keys and initial weights never come from it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from colonnade.errors import IntegrityError, PeerError, UsageError
from colonnade.party.parsing import PartyName, Place, RunName, build, nearest, read_toml
from colonnade.wire.messages import one_line

__all__ = ["ColumnChoice", "Job", "load_job"]

ColumnChoice = Literal["offered"] | Annotated[tuple[str, ...], Meta(min_length=1)]
Fraction = Annotated[float, Meta(ge=0.0, le=0.9)]

MODELS = ("logistic",)
PROTECTIONS = ("blindfl", "insecure_plain")
# A job lists columns by name; 10^5 names of 40 bytes fit.
_MAX_WIRE_BYTES = 4 << 20
_DIGEST_DOMAIN = b"colonnade job/1\n"
_SEED_BYTES = 32
_LONGEST_TERM = 80


@dataclass(frozen=True, kw_only=True)
class Job:
    """One training job. Construct it freely, then `check` it; loading and receiving check it.

    Attributes are the keys of the job file.
    """

    name: RunName
    feature_parties: Annotated[tuple[PartyName, ...], Meta(min_length=1)]
    columns: dict[PartyName, ColumnChoice] = field(default_factory=dict)
    model: str = "logistic"
    protection: str = "blindfl"
    epochs: Annotated[int, Meta(ge=1, le=10_000)]
    # Below two rows a batch's derivative is one row's.
    batch_size: Annotated[int, Meta(ge=2, le=65_536)]
    learning_rate: Annotated[float, Meta(gt=0.0, le=1000.0)]
    momentum: Annotated[float, Meta(ge=0.0, lt=1.0)]
    weight_decay: Annotated[float, Meta(ge=0.0, lt=1.0)] = 0.0
    test_fraction: Fraction = 0.2
    validation_fraction: Fraction = 0.0
    # Standard deviation of the first weights, which each party draws in secret. Our choice.
    initial_scale: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.05
    mask_bits: Annotated[int, Meta(ge=40, le=128)] = 64
    key_bits: Literal[2048, 3072] = 2048
    insecure_key_bits: Annotated[int, Meta(ge=256, lt=2048)] | None = None
    seed: Annotated[
        str, Meta(pattern=rf"^[0-9a-f]{{{2 * _SEED_BYTES}}}\Z", description="64 hexadecimal digits")
    ]

    @property
    def modulus_bits(self) -> int:
        """Size of the Paillier modulus that this job asks for."""
        return self.insecure_key_bits or self.key_bits

    @property
    def insecure(self) -> bool:
        """Whether this job gives up protection on purpose (tests and measurements)."""
        return self.insecure_key_bits is not None or self.protection.startswith("insecure_")

    @property
    def seed_bytes(self) -> bytes:
        """The public randomness (32 bytes) that orders rows into splits and batches."""
        return bytes.fromhex(self.seed)

    def columns_of(self, feature_party: str) -> ColumnChoice:
        """The columns that this job wants of one feature party.

        Raises
            UsageError: the party takes no part in this job.
        """
        if feature_party not in self.feature_parties:
            hint = nearest(feature_party, self.feature_parties)
            raise UsageError(f"job {self.name!r} has no feature party {feature_party!r}; {hint}")
        return self.columns.get(feature_party, "offered")

    def check(self, source: str = "job") -> Job:
        """Check every value and return the job in its normal form.

        Raises
            UsageError: names `source`, the key, what it got and what it wants.
        """
        return _checked(dataclasses.asdict(self), source)

    def to_wire(self) -> bytes:
        """Canonical JSON: sorted keys, no spaces, ASCII. Equal jobs give equal bytes."""
        plain = {key: value for key, value in dataclasses.asdict(self).items() if value is not None}
        return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()

    def digest(self) -> str:
        """SHA-256 of the canonical bytes, in hexadecimal."""
        return hashlib.sha256(_DIGEST_DOMAIN + self.to_wire()).hexdigest()

    def terms(self) -> dict[str, str]:
        """What two sides that agreed on this job beforehand compare, as short texts.

        `job` is a digest of everything but the seed, which each run draws; `job.<key>` are the
        keys one by one, so that a difference can be named; long values are digests as well.
        """
        agreed = dataclasses.replace(self, seed="0" * (2 * _SEED_BYTES))
        plain = {k: v for k, v in dataclasses.asdict(agreed).items() if k != "seed"}
        texts = {f"job.{key}": _short(value) for key, value in plain.items()}
        return {"job": agreed.digest(), **texts}

    @classmethod
    def from_wire(cls, data: bytes, sender: str) -> Job:
        """Check and rebuild the job that `sender` sent with `to_wire`.

        Raises
            PeerError: too long, not canonical, or refused by `check`; names the key.
        """
        source = f"the job from {sender!r}"
        if len(data) > _MAX_WIRE_BYTES:
            raise PeerError(f"{source}: got {len(data)} bytes; want at most {_MAX_WIRE_BYTES}")
        try:
            job = _checked(msgspec.json.decode(data, type=dict[str, Any]), source)
        except UsageError as error:
            # The message may quote keys of the peer's own making.
            raise PeerError(one_line(str(error))) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise PeerError(one_line(f"{source} is malformed: {error}")) from None
        if job.to_wire() != data:
            raise PeerError(f"{source} is not in canonical form; want the bytes of Job.to_wire")
        return job

    @classmethod
    def from_card(cls, text: str) -> Job:
        """Rebuild the job that a run folder of this party keeps.

        Keys that a later release added have their defaults, as in a job file.

        Raises
            IntegrityError: not such a job.
        """
        try:
            return _checked(msgspec.json.decode(text, type=dict[str, Any]), "the stored job")
        except (UsageError, msgspec.DecodeError, RecursionError) as error:
            raise IntegrityError(
                f"the stored job cannot be read: {error}; restore the run folder from a backup, or "
                "use the release that wrote it"
            ) from None


def load_job(path: Path) -> Job:
    """Read a job file. Without `seed` each call draws a new one, so load a job once per run.

    Raises
        UsageError: the file is missing or wrong; names the key.
    """
    table = read_toml(path)
    return _checked({"seed": secrets.token_hex(_SEED_BYTES), **table}, path.name)


def _checked(table: dict[str, Any], source: str) -> Job:
    place = Place(source)
    job = build(Job, table, place)
    for key, choices in (("model", MODELS), ("protection", PROTECTIONS)):
        value = getattr(job, key)
        if value not in choices:
            known = " or ".join(repr(choice) for choice in choices)
            raise UsageError(
                f"{place.of(key)}: got {value[:60]!r}; want {known}; others are not in this release"
            )
    _check_parties(job, place)
    if job.test_fraction + job.validation_fraction > 0.9:
        total = job.test_fraction + job.validation_fraction
        raise UsageError(
            f"{place.of('test_fraction')} and validation_fraction: got {total:g} together; "
            "want at most 0.9; leave rows to train on"
        )
    return job


def _short(value: object) -> str:
    text = json.dumps(value, sort_keys=True)
    if len(text) <= _LONGEST_TERM:
        return text
    return f"sha256 {hashlib.sha256(text.encode()).hexdigest()[:32]}"


def _check_parties(job: Job, place: Place) -> None:
    if len(set(job.feature_parties)) < len(job.feature_parties):
        raise UsageError(f"{place.of('feature_parties')}: got a name twice; want each once")
    if len(job.feature_parties) > 1:
        raise UsageError(
            f"{place.of('feature_parties')}: got {len(job.feature_parties)} names; want one; "
            "several feature parties: not in this release"
        )
    for party, names in job.columns.items():
        inner = place.inside("columns")
        if party not in job.feature_parties:
            raise UsageError(
                f"{inner.of(party)} is not a feature party; {nearest(party, job.feature_parties)}"
            )
        if names != "offered" and len(set(names)) < len(names):
            raise UsageError(f"{inner.of(party)}: got a column twice; want each once")
