"""Both roles of the intersection protocol in two threads, for the tests beside this file."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from colonnade.errors import ColonnadeError
from colonnade.protocol.psi import PsiLimits, align_feature, align_label, alignment_context
from colonnade.protocol.psi.messages import Points
from colonnade.transport.memory import memory_pair
from colonnade.wire.channel import Channel, Meter, RecordingChannel

CONTEXT = alignment_context(b"session", "bank", "telecom", "colonnade-ids/1(text)")
SMALL_CHUNKS = PsiLimits(chunk_ids=3)
ONE = (1).to_bytes(32, "little")


@dataclass
class Side:
    """What one side returned or raised, and everything it received."""

    result: Any = None
    error: ColonnadeError | None = None
    view: tuple[Any, ...] = ()
    meter: Meter = field(default_factory=Meter)

    def received(self, kind: type) -> list[Any]:
        return [message for message in self.view if isinstance(message, kind)]

    def points(self) -> list[bytes]:
        packed = b"".join(message.points for message in self.received(Points))
        return [packed[start : start + 32] for start in range(0, len(packed), 32)]


def run_pair(
    label: Callable[[Channel], Any], feature: Callable[[Channel], Any]
) -> tuple[Side, Side]:
    """Run both roles in two threads; an error at one side closes its channel, as a runner does."""
    channels = [RecordingChannel(end) for end in memory_pair(timeout_s=20)]
    sides = (Side(), Side())

    def play(side: Side, channel: RecordingChannel, role: Callable[[Channel], Any]) -> None:
        try:
            side.result = role(channel)
        except ColonnadeError as error:
            side.error = error
        finally:
            side.view, side.meter = tuple(channel.view), channel.meter
            channel.close()

    threads = [
        threading.Thread(target=play, args=args)
        for args in zip(sides, channels, (label, feature), strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    return sides


def align(
    label_ids: list[bytes],
    feature_ids: list[bytes],
    *,
    min_intersection: int = 1,
    limits: PsiLimits = SMALL_CHUNKS,
    scalars: tuple[bytes | None, bytes | None] = (None, None),
    **options: Any,
) -> tuple[Side, Side]:
    options["limits"] = limits
    return run_pair(
        lambda channel: align_label(
            channel, label_ids, CONTEXT, insecure_scalar_for_tests=scalars[0], **options
        ),
        lambda channel: align_feature(
            channel,
            feature_ids,
            CONTEXT,
            min_intersection=min_intersection,
            insecure_scalar_for_tests=scalars[1],
            **options,
        ),
    )


def numbered(*numbers: int) -> list[bytes]:
    return [b"id-%d" % number for number in numbers]


def check_aligned(
    label: Side, feature: Side, label_ids: list[bytes], feature_ids: list[bytes]
) -> list[bytes]:
    """Check a finished run against Python's sets; returns the shared ids in the common order."""
    assert (label.error, feature.error) == (None, None)
    shared = [label_ids[row] for row in label.result.rows]
    assert shared == [feature_ids[row] for row in feature.result.rows]
    assert len(shared) == len(set(shared)) == label.result.size == feature.result.size
    assert set(shared) == set(label_ids) & set(feature_ids)
    assert label.result.digest == feature.result.digest
    assert len(label.result.digest) == 32
    assert label.result.rows.dtype == feature.result.rows.dtype == np.int64
    return shared
