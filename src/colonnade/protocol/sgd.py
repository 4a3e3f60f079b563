"""Momentum SGD on additive shares: every step is linear, so each party updates its own piece.

Same order of operations as `torch.optim.SGD`: d = g + decay w; m = momentum m + d; w = w - lr m.
Constants are public with 24 significant bits; products with them are truncated locally, which on
Z_2^128 shares fails with probability 2^(k-127) per element (docs/protocol.md, "Numbers").
"""

from __future__ import annotations

from dataclasses import dataclass

from colonnade.errors import UsageError
from colonnade.ring import Z128, PublicConstant

__all__ = ["DecayFactor", "SharedSgd"]


@dataclass(frozen=True)
class SharedSgd:
    """Public constants of the optimiser."""

    learning_rate: PublicConstant
    momentum: PublicConstant
    weight_decay: PublicConstant

    @classmethod
    def from_floats(
        cls, learning_rate: float, momentum: float = 0.0, weight_decay: float = 0.0
    ) -> SharedSgd:
        """Round the constants to 24 significant bits.

        Raises
            UsageError: learning_rate <= 0, momentum outside [0, 1), weight_decay < 0.
        """
        if not learning_rate > 0 or not 0 <= momentum < 1 or not weight_decay >= 0:
            raise UsageError(
                f"got learning rate {learning_rate}, momentum {momentum}, weight decay "
                f"{weight_decay}; want > 0, in [0, 1), >= 0"
            )
        return cls(
            PublicConstant.from_float(learning_rate),
            PublicConstant.from_float(momentum),
            PublicConstant.from_float(weight_decay),
        )

    def step(self, weight: Z128, buffer: Z128, gradient: Z128) -> tuple[Z128, Z128]:
        """One update of one share; all at scale 40. Returns the new weight and momentum buffer."""
        direction = gradient
        if self.weight_decay.mantissa:
            direction = direction + self.weight_decay.apply(weight)
        if self.momentum.mantissa:
            direction = self.momentum.apply(buffer) + direction
        return weight - self.learning_rate.apply(direction), direction


@dataclass(frozen=True)
class DecayFactor:
    """s_t with V(t) = s_t V(0) for a share that only ever decays (V_B of MatMul).

    Public, computed alike on both sides in float64: the scalar recurrence of the optimiser.
    """

    value: float = 1.0
    buffer: float = 0.0

    def step(self, sgd: SharedSgd) -> DecayFactor:
        """The factor after one more update."""
        if not sgd.weight_decay.mantissa:
            return self
        buffer = sgd.momentum.value * self.buffer + sgd.weight_decay.value * self.value
        return DecayFactor(self.value - sgd.learning_rate.value * buffer, buffer)

    def apply(self, tensor: Z128) -> Z128:
        """Scale a share by s_t rounded to 24 significant bits (fewer once it is tiny)."""
        if self.value == 1.0:
            return tensor
        return PublicConstant.nearest(self.value).apply(tensor)
