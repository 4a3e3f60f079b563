"""Opening a session with the peer, the hello, alignment, and what both kinds of run share."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import hashlib
import os
import secrets
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

from numpy.typing import NDArray

from colonnade import __version__
from colonnade.crypto import Randomisers
from colonnade.errors import PeerAbortedError, UsageError
from colonnade.nn.plan import TrainingPlan
from colonnade.party.certificates import fingerprint
from colonnade.party.config import PartyConfig
from colonnade.party.job import Job
from colonnade.party.messages import Finished
from colonnade.party.model import ModelCard, store_model
from colonnade.party.pool import RandomiserPool
from colonnade.party.progress import Reporter
from colonnade.party.run_folder import RunFolder
from colonnade.party.source import Source, normaliser
from colonnade.protocol.agreement import KeyChoice, LayerSettings, Resources
from colonnade.protocol.matmul import FeatureMatMul, LabelMatMul
from colonnade.protocol.matmul_spec import MatMulSpec
from colonnade.protocol.psi import (
    SUITE,
    Alignment,
    IntersectionTooSmallError,
    PsiLimits,
    align_feature,
    align_label,
    alignment_context,
)
from colonnade.ring import Streams
from colonnade.transport import Listener, PinnedPeer, TlsChannel, connect
from colonnade.wire.channel import Channel
from colonnade.wire.hello import ANY, exchange_hello

__all__ = [
    "PeerLeftError",
    "align",
    "budget_notes",
    "finish_exchange",
    "keep_model",
    "layer_settings",
    "new_run_id",
    "open_channel",
    "plan_of",
    "prepared",
    "resources",
    "say_hello",
    "scoring_notes",
    "thread_count",
    "want_label_party",
]


# What an operator or a listener that stops calls its reason.
_STOPPED = "Stopped"


class PeerLeftError(PeerAbortedError):
    """The peer ended the session before it said anything: there was no job."""


@contextlib.contextmanager
def open_channel(config: PartyConfig, peer: str, reporter: Reporter) -> Iterator[TlsChannel]:
    """Dial the peer, or listen for it, as the configuration says; closes at the end.

    Raises
        TransportError: the peer is not there, or is not who is pinned.
    """
    pinned = PinnedPeer(peer, config.peer(peer).certificate)
    identity, limits = config.own_identity(), config.limits
    if config.connection.mode == "dial":
        host, port = config.address_of(peer)
        reporter.note(f"connecting to {peer!r} at {host}:{port}")
        with connect((host, port), identity, pinned, limits) as channel:
            yield channel
        return
    address = (config.connection.host, config.connection.port)
    with Listener(address, identity, [pinned], limits, on_refused=reporter.note) as listener:
        reporter.note(f"waiting for {peer!r} at {address[0]}:{listener.port}")
        with listener.accept(limits.connect_s) as channel:
            yield channel


def say_hello(channel: Channel, config: PartyConfig, key_bits: int, job: Job | None = None) -> None:
    """Refuse a peer that runs something else, naming every differing field on both sides.

    job: what this side will propose, or what it agreed to beforehand; None compares no job.

    Raises
        UsageError: a certificate of this side's configuration cannot be read.
        PeerError: what differs. PeerLeftError: the peer went away before its hello.
    """
    fields = {
        "software": f"colonnade {__version__}",
        "role": config.role,
        "psi": SUITE,
        "ids": normaliser(config.data),
        "key_bits": str(key_bits),
        "certificate": fingerprint(config.identity.certificate),
        "peer_certificate": fingerprint(config.peer(channel.remote).certificate),
        **({"job": ANY} if job is None else job.terms()),
    }
    try:
        exchange_hello(channel, fields)
    except PeerAbortedError as error:
        if error.kind == _STOPPED:
            raise PeerLeftError(str(error), error.kind) from None
        raise


def want_label_party(config: PartyConfig) -> None:
    """Refuse to start a job as a feature party.

    Raises
        UsageError: the configuration is a feature party's.
    """
    if config.role != "label":
        raise UsageError(
            f"{config.name!r} is a feature party; it takes part with 'colonnade serve'"
        )


def thread_count(config: PartyConfig) -> int:
    """Threads to compute with."""
    return config.run.threads or os.cpu_count() or 1


def resources(config: PartyConfig, job: Job) -> Resources:
    """Fresh secret streams and the key choice of this run."""
    key = KeyChoice(job.key_bits, job.insecure_key_bits)
    return Resources(Streams.from_os(), key, thread_count(config))


@contextlib.contextmanager
def prepared(means: Resources) -> Iterator[Resources]:
    """The same means with a stock of randomisers, which ends with the block."""
    with contextlib.ExitStack() as stack:

        def stocked(source: Randomisers) -> Randomisers:
            return stack.enter_context(RandomiserPool(source))

        yield dataclasses.replace(means, prepare=stocked)


def plan_of(job: Job, rows: int) -> TrainingPlan:
    """The public order of rows of a job over `rows` aligned records."""
    return TrainingPlan(
        rows,
        job.epochs,
        job.batch_size,
        job.seed_bytes,
        job.test_fraction,
        job.validation_fraction,
    )


def layer_settings(job: Job, batch_rows: int) -> LayerSettings:
    """The layer that a job means; the same on both sides."""
    return LayerSettings(
        outputs=1,
        batch_rows=batch_rows,
        learning_rate=job.learning_rate,
        momentum=job.momentum,
        weight_decay=job.weight_decay,
        engine="paillier" if job.protection == "blindfl" else job.protection,
        mask_bits=job.mask_bits,
        initial_scale=job.initial_scale,
    )


def align(
    channel: Channel,
    config: PartyConfig,
    source: Source,
    run: str,
    reporter: Reporter,
    *,
    peer_records: int,
    min_intersection: int = 1,
) -> Alignment:
    """Find the common records and their order, on all cores.

    peer_records: how many the peer said it has; it may not bring more into the alignment.

    Raises
        DataError: nothing, or too little, in common.
    """

    def progress(done: int, total: int) -> None:
        reporter.progress("align records", done, total)

    label, feature = channel.local, channel.remote
    if config.role == "feature":
        label, feature = feature, label
    context = alignment_context(run.encode(), label, feature, normaliser(config.data))
    limits = PsiLimits(max_peer_ids=max(1, peer_records))
    with ThreadPoolExecutor(thread_count(config)) as pool:
        if config.role == "label":
            aligned = align_label(
                channel, source.ids, context, limits=limits, progress=progress, map_=pool.map
            )
        else:
            try:
                aligned = align_feature(
                    channel,
                    source.ids,
                    context,
                    min_intersection=min_intersection,
                    limits=limits,
                    progress=progress,
                    map_=pool.map,
                )
            except IntersectionTooSmallError as error:
                reporter.note(
                    f"{error.size} records in common; min_intersection is {min_intersection}"
                )
                raise
    reporter.note(
        f"{aligned.size} records in common (of {len(source)} here), same order on both sides "
        f"(digest {aligned.digest.hex()[:16]})"
    )
    return aligned


def budget_notes(spec: MatMulSpec, plan: TrainingPlan, job: Job) -> list[str]:
    """The statistical budgets of a run in words; refuses a run outside them.

    Raises
        UsageError: masks too narrow or truncation failures too likely for this job.
    """
    distance, failure = plan.budgets(spec, decays=job.weight_decay > 0)
    return [
        f"masks: total statistical distance of the job 2^{distance:.0f}",
        f"truncation on shares fails with probability 2^{failure:.0f} in the whole job",
    ]


def scoring_notes(spec: MatMulSpec, rows: int) -> list[str]:
    """The statistical budget of a prediction in words; refuses one outside it.

    Raises
        UsageError: masks too narrow or truncation failures too likely for so many rows.
    """
    distance = spec.mask_distance_log2(0, rows)
    spec.truncation_failure_log2(0, rows)
    return [f"masks: total statistical distance of the prediction 2^{distance:.0f}"]


def keep_model(
    channel: Channel,
    folder: RunFolder,
    job: Job,
    source: Source,
    aligned: Alignment,
    layer: LabelMatMul | FeatureMatMul,
    top: Mapping[str, NDArray[Any]],
) -> None:
    """End the protocol of a training run: both sides keep their share, or neither is done.

    top: the label party's top model, for the same file. Afterwards the peer waits for nothing.
    """
    role: Literal["label", "feature"] = "label" if isinstance(layer, LabelMatMul) else "feature"
    pair = _exchange_pair(channel, folder.run_id, job, aligned.digest, role)
    card = ModelCard(
        role=role,
        party=channel.local,
        peer=channel.remote,
        run=folder.run_id,
        pair=pair,
        job=job.to_wire().decode(),
        columns=source.columns,
        updates=layer.updates,
    )
    tensors = {**layer.state.tensors(), **top}
    store_model(folder, card, tensors, source.preprocessor, source.mapping)
    folder.write_tensors("rows.safetensors", {"rows": aligned.rows}, {"run": folder.run_id})
    finish_exchange(channel)


def _exchange_pair(channel: Channel, run: str, job: Job, digest: bytes, role: str) -> str:
    """Both sides are done; returns the digest that pairs the two shares.

    The digest binds run, job, row order and both sides' nonces; it is a name, not a secret.
    """
    own = secrets.token_bytes(32)
    channel.send(Finished(nonce=own))
    theirs = channel.receive(Finished).nonce
    nonces = (own, theirs) if role == "label" else (theirs, own)
    parts = (b"colonnade pair/1", run.encode(), job.digest().encode(), digest, *nonces)
    framed = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
    return hashlib.sha256(framed).hexdigest()


def finish_exchange(channel: Channel) -> None:
    """Both sides say that nothing more will come, so that neither closes under the other."""
    channel.send(Finished(nonce=bytes(32)))
    channel.receive(Finished)


def new_run_id(name: str) -> str:
    """A run name that no other run has: name, UTC time, a random suffix."""
    now = dt.datetime.now(dt.UTC).strftime("%Y%m%d-%H%M%S")
    return f"{name[:60]}-{now}-{secrets.token_hex(2)}"
