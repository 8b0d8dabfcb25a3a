"""Digests inside somebody's training: tensors without values, modes and autograd state."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from numdrift.harness.observers.values.digest import Digester
from numdrift.harness.records.values.digest_record import iter_unpack, unreadable

NATIVE = Digester()
TORCH = Digester(native=False)
BOTH = pytest.mark.parametrize("digester", [NATIVE, TORCH], ids=["native", "torch"])


@BOTH
def test_tensors_without_values_are_unreadable(digester: Digester) -> None:
    with FakeTensorMode():
        fake = torch.ones(4)
    base = torch.ones(100)
    view, strided = base[50:60], base[50:60:2]
    base.untyped_storage().resize_(0)
    without = [torch.ones(3, device="meta"), fake, base, view, strided]
    *digests, lazy, real = iter_unpack(digester.digest([*without, torch.nn.UninitializedParameter(), torch.ones(2)]))
    assert [(digest.hash, digest.numel) for digest in digests] == [(0, n) for n in (3, 4, 100, 10, 5)]
    assert repr(digests[0]) == repr(unreadable(3))
    assert lazy.numel == 0
    assert real.readable and real.mean == 1.0


@BOTH
def test_sparse_and_quantized_tensors_by_their_dense_contents(digester: Digester) -> None:
    dense = torch.eye(5)
    records = digester.digest([dense.to_sparse(), dense.to_sparse_csr(), dense])
    assert records[:64] == records[64:128] == records[128:]
    quantized = torch.quantize_per_tensor(dense, 0.1, 0, torch.qint8)
    assert digester.digest([quantized]) == digester.digest([quantized.int_repr()])


@BOTH
def test_modes_do_not_see_it(digester: Digester) -> None:
    seen: list[Any] = []

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    class Operations(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    tensors = [torch.randn(3, 4), torch.randn(3, 4).t(), torch.eye(3).to_sparse()]
    expected = digester.digest(tensors)
    with Functions(), Operations():  # type: ignore[no-untyped-call]
        assert digester.digest(tensors) == expected
    with torch.device("meta"), torch.inference_mode():
        assert digester.digest(tensors) == expected
    assert not seen


@BOTH
def test_autograd_does_not_notice(digester: Digester) -> None:
    weight = torch.nn.Parameter(torch.randn(3, 4))
    loss = (weight.t() * 2).sum()
    state = torch.get_rng_state()
    digester.digest([weight, weight.t(), loss])
    assert weight._version == 0 and torch.is_grad_enabled() and torch.equal(torch.get_rng_state(), state)
    loss.backward()
    assert weight.grad is not None and weight.grad.eq(2).all()


def test_subnormals_keep_their_meaning_after_the_library_is_loaded() -> None:
    assert NATIVE.implementation == "native"
    assert float(torch.tensor(1e-40) * torch.tensor(0.5)) > 0


def test_threads_share_a_digester() -> None:
    tensors = [torch.randn(size) for size in range(1, 300)]
    expected = NATIVE.digest(tensors)
    results: list[bytes] = []
    threads = [threading.Thread(target=lambda: results.append(NATIVE.digest(tensors))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 8
