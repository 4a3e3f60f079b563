"""A trained model on disk: one share per party, in that party's run folder.

Neither folder alone holds a weight. Both carry the same pair digest, without which they are not
used together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from colonnade.data.labels import LabelMapping
from colonnade.data.preprocess import Preprocessor
from colonnade.errors import IntegrityError, PeerError, StorageError, UsageError
from colonnade.party.job import Job
from colonnade.party.run_folder import RunFolder, list_runs
from colonnade.protocol.matmul_steps import FeatureState, LabelState
from colonnade.ring import Z128

__all__ = ["ModelCard", "StoredModel", "find_model", "load_model", "store_model"]

_CARD = "model.json"
_SHARE = "share.safetensors"
_PREPROCESSOR = "preprocessor.json"
_LABELS = "labels.json"


class ModelCard(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a run folder says about its model."""

    version: Literal["colonnade-model/1"] = "colonnade-model/1"
    role: Literal["label", "feature"]
    party: str
    peer: str
    run: str
    pair: str
    job: str
    columns: tuple[str, ...]
    updates: int


@dataclass(frozen=True)
class StoredModel:
    """A model share read from a finished run."""

    folder: Path
    card: ModelCard
    job: Job
    tensors: dict[str, NDArray[Any]] = field(repr=False)
    preprocessor: Preprocessor = field(repr=False)
    mapping: LabelMapping | None

    def label_state(self) -> LabelState:
        """The label party's shares, ready to score."""
        u_b, v_a = self._share("u_b"), self._share("v_a")
        return LabelState(u_b, v_a, Z128.zeros(u_b.shape), Z128.zeros(v_a.shape))

    def feature_state(self) -> FeatureState:
        """The feature party's shares, ready to score."""
        u_a, v_b = self._share("u_a"), self._share("v_b")
        return FeatureState(u_a, v_b, Z128.zeros(u_a.shape))

    def bias(self) -> NDArray[np.float64]:
        """The top model's bias, float64 (outputs,); label party only."""
        return np.asarray(self.tensors["bias"], dtype=np.float64)

    def _share(self, name: str) -> Z128:
        limbs = self.tensors.get(name)
        if limbs is None or limbs.dtype != np.uint64 or limbs.ndim != 3 or limbs.shape[2] != 2:
            raise StorageError(f"{self.folder / _SHARE} holds no share {name!r}")
        return Z128.from_limbs(limbs)


def store_model(
    folder: RunFolder,
    card: ModelCard,
    tensors: dict[str, NDArray[Any]],
    preprocessor: Preprocessor,
    mapping: LabelMapping | None,
) -> None:
    """Write this party's share and all it needs to score new records."""
    folder.write_tensors(_SHARE, tensors, {"pair": card.pair, "role": card.role})
    folder.write_bytes(_PREPROCESSOR, preprocessor.to_json())
    if mapping is not None:
        folder.write_bytes(_LABELS, mapping.to_json())
    folder.write_bytes(_CARD, msgspec.json.encode(card))


def load_model(path: Path, role: str) -> StoredModel:
    """Read a finished run's model.

    Raises
        IntegrityError: not a finished run, or a file was changed.
        UsageError: it is the other party's share.
    """
    folder = RunFolder.open(path)
    card = _card(folder)
    if card.role != role:
        raise UsageError(f"{path} holds the {card.role} party's share; want the {role} party's")
    tensors, metadata = folder.read_tensors(_SHARE)
    if metadata.get("pair") != card.pair:
        raise StorageError(f"{path}: the share belongs to another model than the card says")
    mapping = None
    if role == "label":
        mapping = LabelMapping.from_json(folder.read_bytes(_LABELS))
    return StoredModel(
        folder.path,
        card,
        Job.from_card(card.job),
        tensors,
        Preprocessor.from_json(folder.read_bytes(_PREPROCESSOR)),
        mapping,
    )


def find_model(base: Path, pair: str, peer: str) -> StoredModel:
    """The feature party's share that belongs to the label party's, by the pair digest.

    Raises
        PeerError: no finished run here has it, or it was made with another label party.
        IntegrityError: the share is damaged, or a damaged run may be the one that is wanted.
    """
    damaged: IntegrityError | None = None
    for entry in list_runs(base):
        if entry.state != "finished" or not (entry.path / _CARD).is_file():
            continue
        try:
            card = _card(RunFolder.open(entry.path))
        except IntegrityError as error:
            damaged = error
            continue
        if card.pair == pair:
            if card.peer != peer:
                raise PeerError(f"model {pair[:16]} was made with {card.peer!r}, not {peer!r}")
            return load_model(entry.path, "feature")
    if damaged is not None:
        raise damaged
    raise PeerError(
        f"no finished run here has a model share with the pair digest {pair[:16]}...: the two "
        "shares do not belong together, or this party's run folder was moved; use the two run "
        "folders of one training"
    )


def _card(folder: RunFolder) -> ModelCard:
    try:
        return msgspec.json.decode(folder.read_bytes(_CARD), type=ModelCard, strict=True)
    except msgspec.DecodeError as error:
        raise StorageError(f"{folder.path / _CARD} is damaged: {error}") from None
