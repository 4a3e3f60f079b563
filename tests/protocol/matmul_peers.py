"""Honest ends of a MatMul layer over eight rows, for the tests of peers that are not."""

from typing import Any

import numpy as np

from colonnade.errors import ColonnadeError, PeerError
from colonnade.nn.plan import TrainingPlan
from colonnade.protocol.agreement import LayerSettings, agree_feature, agree_label
from colonnade.protocol.matmul import FeatureMatMul, LabelMatMul
from colonnade.ring import FixedMatrix
from colonnade.wire.channel import Channel
from matmul_runs import Side, mixed_columns, resources, whole_columns

ROWS = 8
RNG = np.random.default_rng(6)
X_A, X_B = whole_columns(ROWS, 3, RNG), mixed_columns(ROWS, RNG)
PLAN = TrainingPlan(ROWS, 1, 4, b"roles", test_fraction=0.0)
BITS = 512
WIDTH = BITS // 4  # bytes of a ciphertext


def agreed_label(channel: Channel, made: LayerSettings, x_b: FixedMatrix = X_B) -> LabelMatMul:
    return agree_label(
        channel, x_b, made, resources("label", None, BITS), kept_rows=ROWS, expected_calls=4
    )


def agreed_feature(channel: Channel, **options: Any) -> FeatureMatMul:
    return agree_feature(channel, X_A, resources("feature", None, BITS), kept_rows=ROWS, **options)


def check_refused(side: Side, message: str, kind: type[ColonnadeError] = PeerError) -> None:
    assert type(side.error) is kind, side.error
    assert message in str(side.error)
