"""Memory of the device: closed to the host, filled with no values, counted, limited."""

from __future__ import annotations

import ctypes
import os
import signal
from typing import Any
from unittest.mock import patch

import pytest
import torch

from numdrift.harness.observers.values.fetched_values import fetching
from numdrift.harness.tape.recording.probed_graph import Probes

MEGABYTE = 1 << 20


def check_a_host_that_reads_dies(standin: Any) -> None:
    tensor = torch.ones(3, device="standin")
    standin.synchronize()
    ctypes.string_at(tensor.data_ptr(), 4)


def check_a_host_that_writes_dies(standin: Any) -> None:
    tensor = torch.ones(3, device="standin")
    standin.synchronize()
    ctypes.memset(tensor.data_ptr(), 0, 4)


def check_a_host_that_reads_while_kernels_wait_dies(standin: Any) -> None:
    tensor = torch.ones(3, device="standin")
    ctypes.string_at(tensor.data_ptr(), 4)


def check_new_memory_has_no_values(standin: Any) -> None:
    tensor = torch.empty(1000, device="standin")
    assert tensor.cpu().isnan().all()
    assert (torch.empty(1000, device="standin", dtype=torch.int64).cpu() == -1).all()


def check_memory_is_reused_without_its_values(standin: Any) -> None:
    tensor = torch.ones(1000, device="standin")
    place = tensor.data_ptr()
    del tensor
    again = torch.empty(1000, device="standin")
    assert again.data_ptr() == place
    assert again.cpu().isnan().all()


def check_memory_is_reused_after_what_waits(standin: Any) -> None:
    tensor = torch.ones(1000, device="standin")
    doubled = tensor * 2
    del tensor  # before anything has run
    torch.full((1000,), 7.0, device="standin")
    assert (doubled.cpu() == 2).all()


def check_memory_is_counted(standin: Any) -> None:
    standin.reset_peak_memory_stats()
    tensor = torch.empty(MEGABYTE, dtype=torch.uint8, device="standin")
    other = torch.empty(MEGABYTE, dtype=torch.uint8, device="standin:1")
    assert standin.memory_allocated() == standin.memory_allocated("standin:1") == MEGABYTE
    del tensor, other
    assert standin.memory_allocated() == 0
    assert standin.max_memory_allocated() == MEGABYTE == standin.memory_reserved()
    standin.reset_peak_memory_stats()
    assert standin.max_memory_allocated() == 0
    standin.empty_cache()
    assert standin.memory_reserved() == 0
    assert torch.ones(MEGABYTE, dtype=torch.uint8, device="standin").sum().item() == MEGABYTE


def check_more_than_there_is_is_refused(standin: Any) -> None:
    kept = torch.ones(MEGABYTE, dtype=torch.uint8, device="standin")
    with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate"):
        torch.empty(MEGABYTE, dtype=torch.uint8, device="standin")
    torch.empty(MEGABYTE, dtype=torch.uint8, device="standin:1")
    assert standin.mem_get_info() == (MEGABYTE // 2, MEGABYTE * 3 // 2)
    assert kept.sum().item() == MEGABYTE
    del kept
    torch.empty(MEGABYTE, dtype=torch.uint8, device="standin")


def check_a_storage_is_resized_and_shared(standin: Any) -> None:
    tensor = torch.arange(4.0, device="standin")
    tensor.untyped_storage().resize_(40)
    assert tensor.tolist() == [0, 1, 2, 3]
    tensor.resize_(2, 3)
    assert tensor.flatten()[:4].tolist() == [0, 1, 2, 3]
    part = torch.empty(0, device="standin").set_(tensor.untyped_storage(), 1, (2,), (2,))
    part.zero_()
    assert tensor.flatten()[:4].tolist() == [0, 0, 2, 0]


def check_pinned_memory_is_the_hosts(standin: Any) -> None:
    tensor = torch.arange(3.0)
    assert tensor.pin_memory().is_pinned()
    assert not tensor.is_pinned()
    assert tensor.pin_memory().to("standin", non_blocking=True).tolist() == [0, 1, 2]


def check_a_forked_process_has_no_device(standin: Any) -> None:
    tensor = torch.ones(3, device="standin") + 1
    child = os.fork()
    if child == 0:
        with pytest.raises(RuntimeError, match="Cannot re-initialize standin in forked subprocess"):
            tensor + 1
        torch.manual_seed(0)
        del tensor
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert tensor.tolist() == [2, 2, 2]


VARIABLES = {"check_more_than_there_is_is_refused": {"STANDIN_MEMORY": str(MEGABYTE * 3 // 2)}}
SIGNALS = {
    "check_a_host_that_reads_dies": signal.SIGSEGV,
    "check_a_host_that_writes_dies": signal.SIGSEGV,
    "check_a_host_that_reads_while_kernels_wait_dies": signal.SIGSEGV,
}


def check_what_probes_show_lies_in_the_hosts_memory(standin: Any) -> None:
    values, probes = torch.arange(8.0, device="standin"), Probes()
    before = standin.memory_allocated()
    _, seen = probes.seen(lambda: torch.ops.numdrift.probe(values, 3))
    assert standin.memory_allocated() == before
    assert seen[3].device.type == "cpu" and torch.equal(seen[3], values.cpu())


def check_values_are_fetched_by_a_host_that_cannot_pin_memory(standin: Any) -> None:
    empty = torch.empty

    def refusing(*args: Any, **kwargs: Any) -> torch.Tensor:
        if kwargs.get("pin_memory"):
            raise RuntimeError("cannot pin memory")
        return empty(*args, **kwargs)

    values = torch.arange(1000.0, device="standin")
    with patch.object(torch, "empty", refusing):
        fetched = fetching(values)
    assert fetched().device.type == "cpu" and fetched().tolist() == list(range(1000))
