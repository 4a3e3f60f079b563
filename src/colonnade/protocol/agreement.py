"""Agreeing on a MatMul layer: public shape, bounds, optimiser constants and Paillier keys.

  A                                            B
                         <--LayerProposal--     B1  shape, bounds, constants, n_B
  A1  check; own columns, n_A
                         --LayerAnswer-->       B2  check
  both  MatMulSpec, SharedSgd, engine, roles

Leaks:  A->B: column count, scales, declared ranges.  B->A: the same, outputs, batch size, optimiser
constants, number of rows. All of it is listed as public in the MatMul leak table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from colonnade.crypto import (
    SECURE_KEY_BITS,
    CipherSpace,
    KeyOwner,
    PrivateKey,
    PublicKey,
    Randomisers,
    generate_key,
    insecure_generate_key,
    randomisers_for,
)
from colonnade.errors import PeerError, UsageError
from colonnade.protocol.matmul import FeatureMatMul, LabelMatMul, MatMulContext
from colonnade.protocol.matmul_spec import Columns, MatMulSpec
from colonnade.protocol.matmul_steps import (
    FeatureState,
    LabelState,
    initial_feature_state,
    initial_label_state,
)
from colonnade.protocol.paillier_engine import PaillierEngine
from colonnade.protocol.plain_engine import InsecurePlainEngine
from colonnade.protocol.product import Engine
from colonnade.protocol.sgd import SharedSgd
from colonnade.ring import FixedMatrix, Streams
from colonnade.wire.channel import Channel
from colonnade.wire.messages import Message, array_from_bytes, array_to_bytes

__all__ = [
    "ENGINES",
    "KeyChoice",
    "LayerAnswer",
    "LayerProposal",
    "LayerSettings",
    "Resources",
    "agree_feature",
    "agree_label",
]

ENGINES = ("paillier", "insecure_plain")
_MAX_COLUMNS = 1 << 20


@dataclass(frozen=True)
class KeyChoice:
    """Which key a party makes for one session: 2048 or 3072 bits, or a named insecure size."""

    bits: int = 2048
    insecure_bits: int | None = None

    def __post_init__(self) -> None:
        if self.insecure_bits is None and self.bits not in SECURE_KEY_BITS:
            raise UsageError(f"got a key size of {self.bits} bits; want one of {SECURE_KEY_BITS}")

    @property
    def used_bits(self) -> int:
        """The size in use."""
        return self.insecure_bits or self.bits

    def generate(self) -> PrivateKey:
        """A fresh key."""
        if self.insecure_bits is not None:
            return insecure_generate_key(self.insecure_bits)
        return generate_key(self.bits)


@dataclass(frozen=True)
class LayerSettings:
    """What the label party decides about a layer; all of it is public to the feature party."""

    outputs: int
    batch_rows: int
    learning_rate: float
    momentum: float = 0.9
    weight_decay: float = 0.0
    engine: str = "paillier"
    derivative_bound: float = 1.0
    activation_bits: int = 16
    mask_bits: int = 64
    initial_scale: float = 0.05

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise UsageError(f"got engine {self.engine!r}; want one of {ENGINES}")
        if not 0 < self.initial_scale <= 1:
            raise UsageError(f"got initial_scale {self.initial_scale}; want 0 < scale <= 1")

    def spec(self, feature: Columns, label: Columns) -> MatMulSpec:
        """The layer between two sets of columns."""
        return MatMulSpec(
            feature,
            label,
            self.outputs,
            self.batch_rows,
            self.derivative_bound,
            self.activation_bits,
            self.mask_bits,
            self.momentum,
        )

    def sgd(self) -> SharedSgd:
        """Optimiser constants, rounded to 24 bits."""
        return SharedSgd.from_floats(self.learning_rate, self.momentum, self.weight_decay)


class LayerProposal(Message, frozen=True, kw_only=True):
    """B1: what the label party proposes."""

    TAG: ClassVar[str] = "layer.proposal/1"
    LEAKS: ClassVar[str] = "settings, column count, scales and ranges, row count, a public key"

    outputs: int
    batch_rows: int
    learning_rate: float
    momentum: float
    weight_decay: float
    engine: str
    derivative_bound: float
    activation_bits: int
    mask_bits: int
    initial_scale: float
    kept_rows: int
    expected_calls: int
    scale_bits: bytes
    bounds: bytes
    modulus: bytes


class LayerAnswer(Message, frozen=True, kw_only=True):
    """A1: the feature party's columns and key."""

    TAG: ClassVar[str] = "layer.answer/1"
    LEAKS: ClassVar[str] = "column count, scales and ranges, a public key"

    scale_bits: bytes
    bounds: bytes
    modulus: bytes


@dataclass(frozen=True)
class Resources:
    """What a party brings to a layer besides its data: secret streams, key choice, threads.

    prepare: puts a stock in front of a source of randomisers, filled while this party waits
    (`colonnade.party.pool`); None draws each when it is needed.
    """

    streams: Streams
    key: KeyChoice
    threads: int = 1
    prepare: Callable[[Randomisers], Randomisers] | None = None


def agree_label(
    channel: Channel,
    x: FixedMatrix,
    settings: LayerSettings,
    resources: Resources,
    *,
    kept_rows: int,
    expected_calls: int,
    state: LabelState | None = None,
) -> LabelMatMul:
    """The label party's side: propose, check the answer, exchange weights.

    x: any rows of this party's features (only the columns matter); kept_rows: rows of the aligned
    data whose X_B V_B shares are kept; expected_calls: forward and backward calls to come (sizes
    the source of randomisers); state: shares to start from (default: fresh secret weights).
    """
    key = _make_key(settings.engine, resources)
    columns = Columns.of(x)
    channel.send(
        LayerProposal(
            outputs=settings.outputs,
            batch_rows=settings.batch_rows,
            learning_rate=settings.learning_rate,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
            engine=settings.engine,
            derivative_bound=settings.derivative_bound,
            activation_bits=settings.activation_bits,
            mask_bits=settings.mask_bits,
            initial_scale=settings.initial_scale,
            kept_rows=kept_rows,
            expected_calls=expected_calls,
            scale_bits=_scales(columns),
            bounds=_bounds(columns),
            modulus=_modulus(key),
        )
    )
    answer = channel.receive(LayerAnswer)  # B2
    if not answer.scale_bits:
        raise PeerError("the feature party offers no columns; want at least one")
    spec = settings.spec(_columns(answer.scale_bits, answer.bounds), columns)
    spec.check(resources.key.used_bits)
    # The label party leaves X_B V_B of every row behind; the feature party two products a step.
    rows = max(kept_rows, expected_calls * settings.batch_rows if not kept_rows else 0)
    expected = _packed(spec, resources, rows) if len(columns) else 0
    engine = _engine(settings.engine, key, answer.modulus, resources, expected)
    if state is None:
        state = initial_label_state(spec, resources.streams.weights, settings.initial_scale)
    _check_shape(state.v_a.shape, (len(spec.feature), spec.outputs), "V_A")
    _check_shape(state.u_b.shape, (len(spec.label), spec.outputs), "U_B")
    context = MatMulContext(channel, engine, spec, settings.sgd(), resources.streams, kept_rows)
    layer = LabelMatMul(context, state)
    layer.set_up()
    return layer


def agree_feature(
    channel: Channel,
    x: FixedMatrix,
    resources: Resources,
    *,
    kept_rows: int,
    engine: str = "paillier",
    want: LayerSettings | None = None,
    label_columns: int | None = None,
    min_label_columns: int = 0,
    max_outputs: int | None = None,
    min_mask_bits: int = 64,
    state: FeatureState | None = None,
) -> FeatureMatMul:
    """The feature party's side: check the proposal, answer, exchange weights.

    engine: the protection that this party insists on where `want` does not name it; the label
    party alone cannot lower it.
    want, label_columns: the settings and the label party's column count that this party approved;
    any difference is a PeerError that names it. Without label columns Z is X_A W_A, so the count
    matters. min_label_columns, max_outputs, min_mask_bits: limits where no exact settings were
    approved. As many outputs as this party has columns would show its rows in one call, so without
    `max_outputs` fewer are demanded (one is always allowed).

    Raises
        PeerError: the proposal differs from what was approved or is out of bounds.
    """
    proposal = channel.receive(LayerProposal)
    settings = _settings(proposal)
    if want is None and settings.engine != engine:
        raise PeerError(
            f"the label party proposes the engine {settings.engine!r}; this side wants {engine!r}"
        )
    if want is not None and settings != want:
        raise PeerError(
            f"the proposed layer differs from the approved job: {_diff(settings, want)}"
        )
    if proposal.kept_rows != kept_rows:
        raise PeerError(f"got a layer over {proposal.kept_rows} rows; want {kept_rows}")
    columns = Columns.of(x)
    label = _columns(proposal.scale_bits, proposal.bounds)
    most = len(columns) - 1 if max_outputs is None else max_outputs
    if want is None and settings.outputs > max(1, most):
        raise PeerError(f"got {settings.outputs} outputs; this side allows {max(1, most)}")
    if want is None and settings.mask_bits < min_mask_bits:
        raise PeerError(f"got masks of {settings.mask_bits} bits; this side wants {min_mask_bits}")
    if len(label) < min_label_columns:
        raise PeerError(
            f"the label party has {len(label)} feature columns; this side wants at least "
            f"{min_label_columns}: without any, Z is this side's own score of each row"
        )
    if label_columns is not None and len(label) != label_columns:
        raise PeerError(
            f"the label party now has {len(label)} feature columns; {label_columns} were approved"
        )
    try:
        spec = settings.spec(columns, label).check(resources.key.used_bits)
        sgd = settings.sgd()
    except UsageError as error:
        raise PeerError(f"the proposed layer cannot be: {error}") from None
    key = _make_key(settings.engine, resources)
    calls = max(0, min(proposal.expected_calls, 1 << 20))
    expected = calls * _packed(spec, resources, spec.batch_rows)
    product_engine = _engine(settings.engine, key, proposal.modulus, resources, expected)
    if state is None:
        state = initial_feature_state(spec, resources.streams.weights, settings.initial_scale)
    _check_shape(state.u_a.shape, (len(spec.feature), spec.outputs), "U_A")
    _check_shape(state.v_b.shape, (len(spec.label), spec.outputs), "V_B")
    channel.send(
        LayerAnswer(scale_bits=_scales(columns), bounds=_bounds(columns), modulus=_modulus(key))
    )
    context = MatMulContext(channel, product_engine, spec, sgd, resources.streams, kept_rows)
    layer = FeatureMatMul(context, state)
    layer.set_up()
    return layer


def _make_key(engine: str, resources: Resources) -> PrivateKey | None:
    return resources.key.generate() if engine == "paillier" else None


def _engine(
    name: str, key: PrivateKey | None, modulus: bytes, resources: Resources, expected: int
) -> Engine:
    bits = resources.key.used_bits
    if key is None:
        if modulus:
            raise PeerError(f"got a public key for the engine {name!r}, which has none")
        return InsecurePlainEngine(bits)
    if not 0 < len(modulus) <= 1024:
        raise PeerError(f"got a modulus of {len(modulus)} bytes; want {bits // 8}")
    public = PublicKey(int.from_bytes(modulus, "little")).check(want_bits=bits)
    if public == key.public:
        raise PeerError("got our own public key back; want the peer's")
    peer = CipherSpace(public, resources.threads)
    streams = resources.streams
    source = randomisers_for(peer, streams.peer_randomisers, expected)
    if resources.prepare is not None:
        source = resources.prepare(source)
    own = KeyOwner(key, streams.randomisers, resources.threads, resources.prepare)
    return PaillierEngine(own, peer, source)


def _packed(spec: MatMulSpec, resources: Resources, rows: int) -> int:
    return spec.forward.layout(resources.key.used_bits).packed_count(rows)


def _settings(proposal: LayerProposal) -> LayerSettings:
    try:
        return LayerSettings(
            outputs=proposal.outputs,
            batch_rows=proposal.batch_rows,
            learning_rate=proposal.learning_rate,
            momentum=proposal.momentum,
            weight_decay=proposal.weight_decay,
            engine=proposal.engine,
            derivative_bound=proposal.derivative_bound,
            activation_bits=proposal.activation_bits,
            mask_bits=proposal.mask_bits,
            initial_scale=proposal.initial_scale,
        )
    except UsageError as error:
        raise PeerError(f"the proposed layer cannot be: {error}") from None


def _diff(got: LayerSettings, want: LayerSettings) -> str:
    return "; ".join(
        f"{name}: got {getattr(got, name)}, want {getattr(want, name)}"
        for name in LayerSettings.__dataclass_fields__
        if getattr(got, name) != getattr(want, name)
    )


def _modulus(key: PrivateKey | None) -> bytes:
    if key is None:
        return b""
    return key.public.n.to_bytes((key.public.bits + 7) // 8, "little")


def _scales(columns: Columns) -> bytes:
    return array_to_bytes(np.array(columns.scale_bits, dtype=np.uint8))


def _bounds(columns: Columns) -> bytes:
    return array_to_bytes(np.array(columns.bounds, dtype=np.uint32))


def _columns(scale_bits: bytes, bounds: bytes) -> Columns:
    count = len(scale_bits)
    if count > _MAX_COLUMNS:
        raise PeerError(f"got {count} columns; want at most {_MAX_COLUMNS}")
    scales = array_from_bytes(scale_bits, np.uint8, (count,), "column scales")
    limits = array_from_bytes(bounds, np.uint32, (count,), "column ranges")
    try:
        return Columns(tuple(scales.tolist()), tuple(limits.tolist()))
    except UsageError as error:
        raise PeerError(f"the other side's columns: {error}") from None


def _check_shape(got: tuple[int, ...], want: tuple[int, int], what: str) -> None:
    if got != want:
        raise UsageError(f"got {what} of shape {got}; want {want}: is this share of another model?")
