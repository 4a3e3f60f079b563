"""The optimiser on shares beside torch's, and the factor of a share that only decays."""

import numpy as np
import pytest
import torch

from colonnade.errors import UsageError
from colonnade.protocol.matmul_spec import Columns, MatMulSpec
from colonnade.protocol.sgd import DecayFactor, SharedSgd
from colonnade.ring import Z128, Csprng


@pytest.mark.parametrize(("momentum", "decay"), [(0.0, 0.0), (0.9, 0.0), (0.9, 0.01), (0.0, 0.1)])
def test_shares_follow_torch(momentum, decay):
    sgd = SharedSgd.from_floats(0.05, momentum, decay)
    rng = np.random.default_rng(1)
    weight = torch.nn.Parameter(torch.from_numpy(rng.normal(size=(4, 2))))
    optimizer = torch.optim.SGD(
        [weight],
        lr=sgd.learning_rate.value,
        momentum=sgd.momentum.value,
        weight_decay=sgd.weight_decay.value,
    )
    mask = Z128.from_bytes(Csprng.from_os().bytes(4 * 2 * 16), (4, 2))
    start = Z128.from_int64(np.rint(weight.detach().numpy() * 2.0**40).astype(np.int64))
    shares = [mask, start - mask]
    buffers = [Z128.zeros((4, 2))] * 2
    for _ in range(30):
        gradient = rng.normal(size=(4, 2))
        weight.grad = torch.from_numpy(gradient)
        optimizer.step()
        encoded = Z128.from_int64(np.rint(gradient * 2.0**40).astype(np.int64))
        cut = Z128.from_bytes(Csprng.from_os().bytes(4 * 2 * 16), (4, 2))
        for i, piece in enumerate((cut, encoded - cut)):
            shares[i], buffers[i] = sgd.step(shares[i], buffers[i], piece)
    np.testing.assert_allclose(
        (shares[0] + shares[1]).to_float(40), weight.detach().numpy(), atol=1e-9, rtol=0
    )


def test_a_share_that_decays_for_ever_goes_to_zero():
    sgd = SharedSgd.from_floats(0.1, 0.9, 0.01)
    factor, weight = DecayFactor(), 1.0
    buffer = 0.0
    start = Z128.from_int64(np.array([[1 << 40], [-(1 << 44)]], dtype=np.int64))
    for step in range(100_000):
        factor = factor.step(sgd)
        buffer = sgd.momentum.value * buffer + sgd.weight_decay.value * weight
        weight -= sgd.learning_rate.value * buffer
        if step % 1000 == 0 or step < 10:
            got = factor.apply(start).to_float(40)[:, 0]
            np.testing.assert_allclose(got, [weight, -16 * weight], atol=2e-6 * abs(weight) + 1e-11)
    assert factor.apply(start).to_ints() == [0, 0]


def test_the_truncation_budget_follows_ranges_and_momentum():
    def failure(bound: int, momentum: float, **more: object) -> float:
        spec = MatMulSpec(
            Columns((16,) * 5, (bound,) * 5), Columns((), ()), 1, 32, momentum=momentum
        )
        return spec.truncation_failure_log2(1000, 10_000, **more)

    # Twice the range or twice 1 / (1 - momentum) is one bit more for the momentum buffer.
    assert failure(1 << 23, 0.9) == pytest.approx(failure(1 << 22, 0.9) + 1, abs=0.01)
    assert failure(1 << 22, 0.95) == pytest.approx(failure(1 << 22, 0.9) + 1, abs=0.01)
    assert failure(1 << 22, 0.9, decays=True) > failure(1 << 22, 0.9)
    with pytest.raises(UsageError, match=r"truncations fail with probability 2\^-"):
        failure(1 << 28, 0.9999)
