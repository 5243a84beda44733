import subprocess
import sys

import torch
from torch import nn

from erda.learning.adam import Adam


def parameters() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(3)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((4, 3), (5,), (2, 2))]


def loss(values: list[nn.Parameter], step: int) -> torch.Tensor:
    used = values if step % 3 else values[:2]  # now and then one has no gradient
    return torch.stack([(one * (step + 1)).sin().square().sum() for one in used]).sum()


def test_it_is_pytorchs_fused_adam_bit_for_bit() -> None:
    ours, theirs = parameters(), parameters()
    adam, reference = Adam(ours, learning_rate=1e-2), torch.optim.Adam(theirs, lr=1e-2, fused=True)
    for step in range(20):
        for optimizer, values in ((adam, ours), (reference, theirs)):
            optimizer.zero_grad()
            loss(values, step).backward()
            optimizer.step()
    for one, other in zip(ours, theirs, strict=True):
        assert torch.equal(one, other)


def test_parameters_may_have_rates_of_their_own() -> None:
    ours, theirs = parameters(), parameters()
    adam = Adam(ours, learning_rate=[1e-2, 1e-1, 1e-2])
    groups = [{"params": [theirs[0], theirs[2]], "lr": 1e-2}, {"params": [theirs[1]], "lr": 1e-1}]
    reference = torch.optim.Adam(groups, fused=True)
    for step in range(5):
        for optimizer, values in ((adam, ours), (reference, theirs)):
            optimizer.zero_grad()
            loss(values, step).backward()
            optimizer.step()
    for one, other in zip(ours, theirs, strict=True):
        assert torch.equal(one, other)


def test_it_does_not_load_the_compiler() -> None:
    code = (
        "import sys, torch; from erda.learning.loop import descend\n"
        "value = torch.nn.Parameter(torch.ones(3))\n"
        "generator = torch.Generator().manual_seed(0)\n"
        "descend([1], lambda batch: value.square().sum(), [value], learning_rate=0.1, generator=generator)\n"
        "assert value.max() < 1\n"
        "print('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
