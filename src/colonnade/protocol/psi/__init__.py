"""Private set intersection: two parties find their shared records and put them in one order.

`ids` gives key columns their exact, typed normal form; `dh` holds the protocol and its leak table;
`group` is ristretto255.
"""

from colonnade.protocol.psi.dh import (
    SUITE,
    Alignment,
    ChunkMap,
    IntersectionTooSmallError,
    align_feature,
    align_label,
    alignment_context,
    order_digest,
)
from colonnade.protocol.psi.exchange import PsiLimits
from colonnade.protocol.psi.ids import (
    NORMALISER,
    DuplicatePolicy,
    IdType,
    KeptRows,
    apply_duplicate_policy,
    encode_ids,
    normal_form,
    normaliser_id,
)

__all__ = [
    "NORMALISER",
    "SUITE",
    "Alignment",
    "ChunkMap",
    "DuplicatePolicy",
    "IdType",
    "IntersectionTooSmallError",
    "KeptRows",
    "PsiLimits",
    "align_feature",
    "align_label",
    "alignment_context",
    "apply_duplicate_policy",
    "encode_ids",
    "normal_form",
    "normaliser_id",
    "order_digest",
]
