"""Split, chunk and unbind of lazy tensors, against the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
from torch import Tensor

from numdrift.harness.backends.lazy.tensor_lists import give_lists_of_lazy_tensors
from numdrift.harness.torch_private.deferred.lazy import start_lazy_backend

WAYS: dict[str, Callable[[Tensor], Sequence[Tensor]]] = {
    "split": lambda x: x.split(2),
    "a part that is smaller": lambda x: x.split(4, 1),
    "one part": lambda x: x.split(9, 1),
    "sizes, one of them 0": lambda x: x.split([1, 4, 0], 1),
    "from the end": lambda x: x.split(4, -1),
    "chunk": lambda x: x.chunk(4, -2),
    "unbind": lambda x: x.unbind(),
    "unbind from the end": lambda x: x.unbind(-1),
    "no views": lambda x: x.unsafe_split(4, 1),
    "no views, of sizes": lambda x: x.unsafe_split_with_sizes([1, 4], 1),
    "of nothing": lambda x: x[:0].split(2),
}


@pytest.fixture(autouse=True)
def _given() -> Iterator[None]:
    start_lazy_backend()
    undo = give_lists_of_lazy_tensors()
    yield
    undo()


@pytest.mark.parametrize("way", WAYS)
def test_parts_and_their_gradient_are_those_of_the_cpu(way: str) -> None:
    values, results = torch.randn(4, 5, 6), []
    for device in ("cpu", "lazy"):
        x = values.clone().to(device).requires_grad_()
        parts = WAYS[way](x * 2)
        loss = sum((part * place).sum() for place, part in enumerate(parts, 1))
        assert isinstance(loss, Tensor)
        loss.backward()
        assert x.grad is not None
        results.append([*(part.detach().cpu() for part in parts), x.grad.cpu()])
    assert len(results[0]) == len(results[1])
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


def test_an_attention_of_split_projections_stays_lazy_and_learns() -> None:
    """As in nanoGPT and minGPT (issue 21), whose products fail or are of the CPU with torch's own."""
    x = torch.randn(2, 8, 24).to("lazy").requires_grad_()
    q, k, v = (part.view(2, 8, 2, 4).transpose(1, 2) for part in x.split(8, dim=2))
    mask = torch.ones(8, 8).tril().to("lazy") == 0
    weights = (q @ k.transpose(-2, -1)).masked_fill(mask, float("-inf")).softmax(-1)
    result = weights @ v
    result.sum().backward()
    assert (weights.device.type, result.device.type) == ("lazy", "lazy")
    assert x.grad is not None and bool(x.grad.cpu().isfinite().all())


def test_a_part_that_is_written_to_is_a_view() -> None:
    x = torch.zeros(4, 3).to("lazy")
    x.split(2)[1].add_(1)
    assert x.cpu().tolist() == [[0.0] * 3] * 2 + [[1.0] * 3] * 2
