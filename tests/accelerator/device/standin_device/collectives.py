"""Collectives of the device: what the ranks exchange is copied to the host, where gloo exchanges it, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import Store


class Done(dist.Work):
    """Work that was waited for where it was begun."""

    def __init__(self, tensors: list[Any]) -> None:
        super().__init__()
        self._tensors = tensors
        self._future: torch.futures.Future[Any] | None = None

    def wait(self, timeout: Any = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def get_future(self) -> torch.futures.Future[Any]:
        if self._future is None:
            devices = sorted({str(tensor.device) for tensor in flat(self._tensors)})
            self._future = torch.futures.Future(devices=devices)  # type: ignore[arg-type]
            self._future.set_result(self._tensors)
        return self._future


def flat(tensors: Any) -> list[torch.Tensor]:
    if isinstance(tensors, torch.Tensor):
        return [tensors]
    return [tensor for part in tensors for tensor in flat(part)]


def received(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in memory of its own, as what comes from other ranks is made by no op of this one."""
    return torch.frombuffer(bytearray(tensor.numpy().tobytes()), dtype=tensor.dtype).view(tensor.shape)


class Collectives(dist.ProcessGroup):
    """The collectives of one group of ranks."""

    def __init__(self, store: Store, rank: int, size: int, timeout: Any) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]
        self._gloo: Any = dist.ProcessGroupGloo(store, rank, size, timeout)

    def getBackendName(self) -> str:
        return "standin"

    def allreduce(self, tensors: Any, options: Any = None) -> Done:  # type: ignore[override]
        return self._with_copies(self._gloo.allreduce, tensors, options or dist.AllreduceOptions())

    def broadcast(self, tensors: Any, options: Any = None) -> Done:  # type: ignore[override]
        return self._with_copies(self._gloo.broadcast, tensors, options or dist.BroadcastOptions())

    def reduce(self, tensors: Any, options: Any = None) -> Done:  # type: ignore[override]
        return self._with_copies(self._gloo.reduce, tensors, options or dist.ReduceOptions())

    def allgather(self, outputs: Any, inputs: Any, options: Any = None) -> Done:
        hosts = [[tensor.cpu() for tensor in part] for part in outputs]
        self._gloo.allgather(hosts, [tensor.cpu() for tensor in inputs]).wait()
        for part, host in zip(outputs, hosts, strict=True):
            for tensor, value in zip(part, host, strict=True):
                tensor.copy_(received(value))
        return Done(outputs)

    def barrier(self, options: Any = None) -> Done:
        self._gloo.barrier().wait()
        return Done([])

    def _with_copies(self, collective: Callable[..., Any], tensors: Any, options: Any) -> Done:
        hosts = [tensor.cpu() for tensor in tensors]
        collective(hosts, options).wait()
        for tensor, host in zip(tensors, hosts, strict=True):
            tensor.copy_(received(host))
        return Done(tensors)


def register() -> None:
    """Make them torch's collectives of the device."""
    dist.Backend.register_backend("standin", Collectives, devices=["standin"])
