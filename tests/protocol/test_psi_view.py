"""What each side's recorded view shows about ids that it does not hold, with controls."""

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from psi_roles import CONTEXT, ONE, Side, align, numbered

from colonnade.protocol.psi import (
    dh,
    group,
)

LABEL_IDS, FEATURE_IDS = numbered(*range(30)), numbered(*range(25, 60))


def dictionary_attack(view: Side, candidates: list[bytes]) -> set[bytes]:
    """Ids whose hash stands in the view: what a receiver can test offline."""
    points = set(view.points())
    dst = dh.domain_separation_tag(CONTEXT)
    return {code for code in candidates if group.hash_to_group(code, dst) in points}


def test_masked_ids_resist_a_dictionary_of_all_candidates():
    label, feature = align(LABEL_IDS, FEATURE_IDS)
    assert len(label.points()) == 35
    assert dictionary_attack(label, FEATURE_IDS) == set()
    assert dictionary_attack(feature, LABEL_IDS) == set()


def test_control_the_dictionary_finds_ids_that_are_not_masked():
    label, feature = align(LABEL_IDS, FEATURE_IDS, scalars=(ONE, ONE))
    assert dictionary_attack(label, FEATURE_IDS) == set(FEATURE_IDS)
    assert dictionary_attack(feature, LABEL_IDS) == set(LABEL_IDS)


def repeated_points(scalars: tuple[bytes | None, bytes | None]) -> tuple[int, int]:
    """How many points of a run each side saw in another run on the same sets already."""
    one, two = (align(LABEL_IDS, FEATURE_IDS, scalars=scalars) for _ in range(2))
    return tuple(len(set(a.points()) & set(b.points())) for a, b in zip(one, two, strict=True))


def test_masked_ids_never_repeat_between_runs():
    assert repeated_points((None, None)) == (0, 0)


def test_control_a_scalar_used_twice_links_the_runs():
    fixed = group.random_scalar()
    assert repeated_points((fixed, None)) == (0, 30)
    assert repeated_points((None, fixed)) == (35, 0)


def test_the_view_has_the_same_shape_whatever_the_other_ids_are():
    def shape(side: Side) -> list[tuple[type, list[int]]]:
        return [
            (
                type(m),
                [
                    len(value)
                    for value in (getattr(m, name) for name in m.__struct_fields__)
                    if isinstance(value, bytes)
                ],
            )
            for m in side.view
        ]

    shared = numbered(1, 2)
    runs = [
        align([*shared, *extra], [*shared, b"only-the-feature-party"])
        for extra in ([b"x"], [b"a very much longer id" * 100])
    ]
    for one, two in zip(*runs, strict=True):
        assert shape(one) == shape(two)


def rank_correlation_with_input(side: Side, ids: list[bytes], scalar: bytes) -> float:
    """How far the order of the received points follows the sender's rows (1: entirely)."""
    row_of = {dh.mask(scalar, CONTEXT, [code]): row for row, code in enumerate(ids)}
    return float(np.corrcoef([row_of[point] for point in side.points()], range(len(ids)))[0, 1])


def test_the_order_of_the_points_does_not_follow_the_rows():
    ids, scalar = numbered(*range(100)), group.random_scalar()
    label, feature = align(ids, ids, scalars=(scalar, scalar))
    # A uniform order of 100 exceeds 0.5 with a chance below 2^-20.
    assert abs(rank_correlation_with_input(label, ids, scalar)) < 0.5
    assert abs(rank_correlation_with_input(feature, ids, scalar)) < 0.5


def test_control_points_sent_in_row_order_are_recognised(monkeypatch):
    monkeypatch.setattr(dh, "_secret_order", lambda count: list(range(count)))
    ids, scalar = numbered(*range(100)), group.random_scalar()
    label, _ = align(ids, ids, scalars=(scalar, scalar))
    assert rank_correlation_with_input(label, ids, scalar) > 0.99


_P = 2**255 - 19


def curve_class(encoding: bytes) -> bool:
    """Whether `encoding`, read as u, lies on curve25519 (else on its twist): an algebraic bit."""
    u = int.from_bytes(encoding, "little") % 2**255 % _P
    return pow(u * (u * u + 486662 * u + 1), (_P - 1) // 2, _P) == 1


def class_agreement(unmasked: list[bytes], masked: list[bytes]) -> float:
    pairs = zip(unmasked, masked, strict=True)
    return sum(curve_class(one) == curve_class(other) for one, other in pairs) / len(masked)


def test_masked_ids_keep_no_algebraic_class_of_their_hash():
    ids, dst = numbered(*range(400)), dh.domain_separation_tag(CONTEXT)
    packed = dh.mask(group.random_scalar(), CONTEXT, ids)
    masked = [packed[start : start + 32] for start in range(0, len(packed), 32)]
    unmasked = [group.hash_to_group(code, dst) for code in ids]
    assert abs(class_agreement(unmasked, masked) - 0.5) < 6 * 0.5 / 400**0.5


def test_control_hashing_straight_to_x25519_keeps_the_class():
    # The mistake of a widely used library: any 32 hashed bytes taken for u, on the curve or not.
    unmasked = [group.expand_message(code, b"u", 32) for code in numbered(*range(100))]
    key = X25519PrivateKey.generate()
    masked = [key.exchange(X25519PublicKey.from_public_bytes(u)) for u in unmasked]
    assert class_agreement(unmasked, masked) == 1
