"""Messages between the two parties' sessions, around alignment and training.

Bounds stand in the annotations and are checked when a message is decoded.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta
from msgspec.structs import force_setattr

from colonnade.party.parsing import RunName
from colonnade.wire.messages import Message, one_line

__all__ = ["Finished", "PredictProposal", "TrainProposal", "Verdict"]

# Columns in all; the layer's own limit is far below what would exhaust memory here.
ColumnCount = Annotated[int, Meta(ge=0, le=1 << 22)]
RowCount = Annotated[int, Meta(ge=0, le=1 << 40)]
Reason = Annotated[str, Meta(max_length=2000)]


class TrainProposal(Message, frozen=True, kw_only=True):
    """The label party proposes a training job; `job` is the canonical form of the job file."""

    TAG: ClassVar[str] = "party.train/1"
    LEAKS: ClassVar[str] = "the job file, the sender's row and column counts, a run name"

    run: RunName
    job: bytes
    rows: RowCount
    columns: ColumnCount
    dry_run: bool


class PredictProposal(Message, frozen=True, kw_only=True):
    """The label party wants to score records with the model of `pair`."""

    TAG: ClassVar[str] = "party.predict/1"
    LEAKS: ClassVar[str] = "which model is used, how many records the sender holds"

    run: RunName
    pair: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
    rows: RowCount
    dry_run: bool


class Verdict(Message, frozen=True, kw_only=True):
    """The feature party's answer to a proposal. Made or received, its texts are one line each.

    columns: features after encoding; independent_columns: at most so many of them vary on their
    own. A refusal has no numbers and no warnings: they are for jobs that may run.
    """

    TAG: ClassVar[str] = "party.verdict/1"
    LEAKS: ClassVar[str] = (
        "whether the job is approved; if so the sender's row and column counts, outputs counted "
        "before, warnings; if not the limit"
    )

    accepted: bool
    reason: Reason
    rows: RowCount
    columns: ColumnCount
    independent_columns: ColumnCount
    outputs_before: Annotated[int, Meta(ge=0, le=1 << 40)]
    warnings: Annotated[list[Reason], Meta(max_length=20)]

    def __post_init__(self) -> None:
        force_setattr(self, "reason", one_line(self.reason))
        force_setattr(self, "warnings", [one_line(line) for line in self.warnings])

    @classmethod
    def refusal(cls, reason: str) -> Verdict:
        """Refuse, and say nothing about this party's data."""
        return cls(
            accepted=False,
            reason=reason,
            rows=0,
            columns=0,
            independent_columns=0,
            outputs_before=0,
            warnings=[],
        )


class Finished(Message, frozen=True, kw_only=True):
    """The sender holds all that the run should leave; both send it before either keeps a model."""

    TAG: ClassVar[str] = "party.finished/1"
    LEAKS: ClassVar[str] = "that the run is complete, and a random number"

    nonce: Annotated[bytes, Meta(min_length=32, max_length=32)]
