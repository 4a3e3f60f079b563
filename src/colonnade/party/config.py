"""One party's configuration: who it is, whom it talks to, what data it offers, what it refuses.

The classes here are the grammar of the file: keys, types, bounds and defaults stand in the
annotations, and `init` writes a commented example. Paths are relative to the file; secrets are
named by path and never stand in it.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from colonnade.data.schema import SourceSpec
from colonnade.errors import UsageError
from colonnade.party.parsing import PartyName, Place, build, nearest, read_toml
from colonnade.transport.identity import Identity, PinnedPeer
from colonnade.transport.limits import TransportLimits

__all__ = [
    "ApprovalConfig",
    "ConnectionConfig",
    "IdentityConfig",
    "KeysConfig",
    "PartyConfig",
    "PeerConfig",
    "PredictConfig",
    "Role",
    "RunConfig",
    "check_party_config",
    "load_party_config",
    "read_party_config",
]

Role = Literal["label", "feature"]
Count = Annotated[int, Meta(ge=1, le=1 << 40)]
Port = Annotated[int, Meta(ge=1, le=65_535)]
Host = Annotated[str, Meta(min_length=1, max_length=253, description="a host name or address")]


@dataclass(frozen=True, kw_only=True)
class ConnectionConfig:
    """Who dials: `listen` on this address, or `dial` the peer's."""

    mode: Literal["listen", "dial"]
    host: Host
    port: Port


@dataclass(frozen=True, kw_only=True)
class IdentityConfig:
    """The certificate and private key files (PEM) of the party itself."""

    certificate: Path
    private_key: Path


@dataclass(frozen=True, kw_only=True)
class PeerConfig:
    """A peer's pinned certificate, and its address where it differs from `[connection]`."""

    certificate: Path
    host: Host | None = None
    port: Port | None = None


@dataclass(frozen=True, kw_only=True)
class ApprovalConfig:
    """What a feature party lets a job do. Absent limits do not limit.

    `mode` says who approves a job within these limits: this file ("config"), a person who is asked
    ("ask"), or nobody ("never"). A job beyond a limit is refused in every mode.
    """

    mode: Literal["config", "ask", "never"] = "ask"
    allow_columns: Literal["offered"] | tuple[str, ...] = "offered"
    # Below some tens of people the size of the intersection itself says who is in it.
    min_intersection: Count = 50
    max_epochs: Annotated[int, Meta(ge=1, le=10_000)] = 100
    max_outputs_per_row: Count | None = None
    max_rows: Count | None = None
    min_batch_size: Annotated[int, Meta(ge=2, le=65_536)] = 32
    # A job file that both sides agreed on beforehand; a proposal must equal it but for its seed.
    job: Path | None = None
    insecure_jobs_allowed: bool = False


@dataclass(frozen=True, kw_only=True)
class PredictConfig:
    """What a feature party scores new records with; without `path`, the file of `[data]`."""

    path: Path | None = None
    # Scoring single people shows whether they are customers here.
    min_intersection: Count = 10


@dataclass(frozen=True, kw_only=True)
class KeysConfig:
    """Size of this party's Paillier modulus; `insecure_bits` overrides `bits`."""

    bits: Literal[2048, 3072] = 2048
    insecure_bits: Annotated[int, Meta(ge=256, lt=2048)] | None = None

    @property
    def modulus_bits(self) -> int:
        """The size in force."""
        return self.insecure_bits or self.bits


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Where runs are kept and how many threads compute; no number means every core."""

    folder: Path = Path("runs")
    threads: Annotated[int, Meta(ge=1, le=1024)] | None = None


@dataclass(frozen=True, kw_only=True)
class PartyConfig:
    """Everything one party's file says. All paths are resolved."""

    name: PartyName
    role: Role
    connection: ConnectionConfig
    identity: IdentityConfig
    peers: dict[PartyName, PeerConfig]
    data: SourceSpec
    limits: TransportLimits = field(default_factory=TransportLimits)
    approval: ApprovalConfig = field(default_factory=ApprovalConfig)
    predict: PredictConfig = field(default_factory=PredictConfig)
    keys: KeysConfig = field(default_factory=KeysConfig)
    run: RunConfig = field(default_factory=RunConfig)

    def peer(self, name: str) -> PeerConfig:
        """The peer called `name`.

        Raises
            UsageError: this file pins no such peer.
        """
        if name not in self.peers:
            hint = nearest(name, self.peers)
            raise UsageError(f"{self.name!r} pins no peer {name!r}; {hint}; or add [peers.{name}]")
        return self.peers[name]

    def address_of(self, peer: str) -> tuple[str, int]:
        """Host and port to dial for `peer`.

        Raises
            UsageError: this party listens, or pins no such peer.
        """
        if self.connection.mode == "listen":
            raise UsageError(f'{self.name!r} has [connection] mode = "listen"; it does not dial')
        pinned = self.peer(peer)
        return pinned.host or self.connection.host, pinned.port or self.connection.port

    def own_identity(self) -> Identity:
        """Name, certificate and key of this party, for the transport."""
        return Identity(self.name, self.identity.certificate, self.identity.private_key)

    def pinned_peers(self) -> tuple[PinnedPeer, ...]:
        """The peers and their certificates, for the transport."""
        return tuple(PinnedPeer(name, peer.certificate) for name, peer in self.peers.items())

    def check_files(self) -> None:
        """Check that identity and pins are there and that the key is its owner's alone.

        Raises
            UsageError: names the file and says how to get it.
        """
        for path in (self.identity.certificate, self.identity.private_key):
            if not path.is_file():
                raise UsageError(f"got {path}, which is no file; 'colonnade init' makes it")
        if os.name == "posix" and self.identity.private_key.stat().st_mode & 0o077:
            raise UsageError(
                f"{self.identity.private_key} is open to other users; "
                "want a key that only its owner reads; do chmod 600"
            )
        for name, peer in self.peers.items():
            if not peer.certificate.is_file():
                raise UsageError(
                    f"[peers.{name}] certificate: got {peer.certificate}, which is no file; ask "
                    f"{name!r} for its certificate, compare the fingerprints, and put it there"
                )


def load_party_config(path: Path) -> PartyConfig:
    """Read a party's file, check it, and check the certificate and key files it names.

    Raises
        UsageError: names file, table and key, what it got and what it wants.
    """
    config = read_party_config(path)
    config.check_files()
    return config


def read_party_config(path: Path) -> PartyConfig:
    """Read and check a party's file alone; the files it names need not be there yet.

    Raises
        UsageError: names file, table and key, what it got and what it wants.
    """
    return check_party_config(read_toml(path), path)


def check_party_config(table: Mapping[str, Any], path: Path) -> PartyConfig:
    """Check a parsed file; `path` is where it stands or will stand.

    Raises
        UsageError: names file, table and key, what it got and what it wants.
    """
    place = Place(path.name)
    config = build(PartyConfig, table, place)
    if "ids" not in table["data"]:
        raise UsageError(
            f"{place.inside('data').of('ids')} is missing; want the key columns, or "
            '"row" where both files hold the same records in the same order'
        )
    _check_peers(config, place)
    if config.role == "feature":
        _check_feature_party(config, place)
    else:
        _check_label_party(config, {"approval", "predict"} & table.keys(), place)
    return _resolved(config, path.absolute().parent)


def _check_peers(config: PartyConfig, place: Place) -> None:
    if not config.peers:
        raise UsageError(f"{place.of('peers')}: got none; want at least one [peers.NAME] table")
    if config.name in config.peers:
        raise UsageError(
            f"{place.inside('peers').of(config.name)} is this party; want the other one's name"
        )
    if config.role == "feature" and len(config.peers) > 1:
        raise UsageError(
            f"{place.of('peers')}: got {len(config.peers)}; a feature party has one peer, the "
            "label party; write one file for each label party"
        )


def _check_feature_party(config: PartyConfig, place: Place) -> None:
    if config.data.label is not None:
        raise UsageError(
            f"{place.inside('data').of('label')} is for the label party; remove it, or set "
            'role = "label"'
        )
    allowed, offered = config.approval.allow_columns, config.data.offer
    if allowed != "offered" and offered != "*":
        for column in allowed:
            if column not in offered:
                raise UsageError(
                    f"{place.inside('approval').of('allow_columns')}: got {column!r}, which "
                    f"[data] offer lacks; {nearest(column, offered)}"
                )


def _check_label_party(config: PartyConfig, misplaced: set[str], place: Place) -> None:
    for key in sorted(misplaced):
        raise UsageError(
            f'{place.of(f"[{key}]")} is for a feature party; remove it, or set role = "feature"'
        )
    if config.data.label is None:
        raise UsageError(
            f"{place.inside('data').of('label')} is missing; want the label column "
            '("label" in a LIBSVM file)'
        )


def _resolved(config: PartyConfig, base: Path) -> PartyConfig:
    return dataclasses.replace(
        config,
        identity=IdentityConfig(
            certificate=base / config.identity.certificate,
            private_key=base / config.identity.private_key,
        ),
        peers={
            name: dataclasses.replace(peer, certificate=base / peer.certificate)
            for name, peer in config.peers.items()
        },
        data=dataclasses.replace(config.data, path=base / config.data.path),
        approval=dataclasses.replace(config.approval, job=_under(base, config.approval.job)),
        predict=dataclasses.replace(config.predict, path=_under(base, config.predict.path)),
        run=dataclasses.replace(config.run, folder=base / config.run.folder),
    )


def _under(base: Path, path: Path | None) -> Path | None:
    return None if path is None else base / path
