"""Messages between the two parties' sessions, around alignment and training."""

from __future__ import annotations

from typing import ClassVar

from colonnade.wire.messages import Message

__all__ = ["Finished", "PredictProposal", "TrainProposal", "Verdict"]


class TrainProposal(Message, frozen=True, kw_only=True):
    """The label party proposes a training job; `job` is the canonical form of the job file."""

    TAG: ClassVar[str] = "party.train/1"
    LEAKS: ClassVar[str] = "the job file, the sender's row and column counts, a run name"

    run: str
    job: bytes
    rows: int
    columns: int
    dry_run: bool


class PredictProposal(Message, frozen=True, kw_only=True):
    """The label party wants to score records with the model of `pair`."""

    TAG: ClassVar[str] = "party.predict/1"
    LEAKS: ClassVar[str] = "which model is used, how many records the sender holds"

    run: str
    pair: str
    rows: int
    dry_run: bool


class Verdict(Message, frozen=True, kw_only=True):
    """The feature party's answer to a proposal."""

    TAG: ClassVar[str] = "party.verdict/1"
    LEAKS: ClassVar[str] = "whether the job is approved, the sender's row and column counts"

    accepted: bool
    reason: str
    rows: int
    columns: int
    warnings: list[str]


class Finished(Message, frozen=True, kw_only=True):
    """The sender holds all that the run should leave; both send it before either keeps a model."""

    TAG: ClassVar[str] = "party.finished/1"
    LEAKS: ClassVar[str] = "that the run is complete, and a random number"

    nonce: bytes
