from __future__ import annotations

import torch
from torch import nn

from numdrift.harness.observers.values.tensor_sample import SAMPLE_BYTES, SAMPLE_TENSORS, sample_of
from numdrift.harness.script.named_tensors import NamedTensor


def named(module: nn.Module) -> list[NamedTensor]:
    return [
        *(NamedTensor(name, "parameter", tensor) for name, tensor in module.named_parameters()),
        *(NamedTensor(name, "buffer", tensor) for name, tensor in module.named_buffers()),
    ]


def test_a_sample_has_the_smallest_parameter_of_each_module() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Sequential(nn.Linear(8, 2, bias=False)))
    assert [entry.name for entry in sample_of(named(model))] == ["0.bias", "1.weight", "2.0.weight"]


def test_a_sample_is_small_whatever_the_model() -> None:
    with torch.device("meta"):
        deep = nn.Sequential(*(nn.Linear(4, 4) for _ in range(3 * SAMPLE_TENSORS + 1)))
        wide = nn.ModuleList(
            [nn.Embedding(SAMPLE_BYTES // 16, 4), nn.Linear(4, 4), nn.Embedding(SAMPLE_BYTES // 16, 4)]
        )
        single = nn.Embedding(SAMPLE_BYTES, 4)
    of_deep = [entry.name for entry in sample_of(named(deep))]
    assert SAMPLE_TENSORS // 2 <= len(of_deep) <= SAMPLE_TENSORS and of_deep[:2] == ["0.bias", "4.bias"]
    assert [entry.name for entry in sample_of(named(wide))] == ["1.bias"]
    assert [entry.name for entry in sample_of(named(single))] == ["weight"]
    assert sample_of([]) == []
