"""Threads that share the digest of a large tensor compute the record of one thread."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

import pytest
import torch

from numdrift.harness.observers.values.digest import Digester, load, native_codes
from numdrift.harness.records.values.digest_record import RECORD_BYTES

DIGEST = Digester()
PARALLEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Team:
    """Threads that execute a function of the library at the same time, as GOMP_parallel does."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.parallel = PARALLEL(self._execute)

    def _execute(self, task: int, argument: int, threads: int, flags: int) -> None:
        self.sizes.append(threads)
        function: Callable[[int], None] = TASK(task)
        started = [threading.Thread(target=function, args=(argument,)) for _ in range(threads)]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join()


def record(tensor: torch.Tensor, team: Team, threads: int) -> bytes:
    """Return the record that several threads compute for a contiguous tensor."""
    code = native_codes()[str(tensor.dtype).removeprefix("torch.")][1]
    item = (ctypes.c_uint64 * 4)(tensor.data_ptr(), tensor.numel(), code, 0)
    found = ctypes.create_string_buffer(RECORD_BYTES)
    library, reason = load()
    assert library is not None, reason
    library.numdrift_digest_in_parallel(item, ctypes.c_size_t(1), found, team.parallel, ctypes.c_uint(threads))
    return found.raw


@pytest.mark.parametrize("threads", [2, 5])
@pytest.mark.parametrize("numel", [2**18, 2**18 + 1, 2**20 - 1, 1_300_007])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int16, torch.complex64])
def test_the_record_does_not_depend_on_the_number_of_threads(dtype: torch.dtype, numel: int, threads: int) -> None:
    tensor = (100 * torch.randn(numel, generator=torch.Generator().manual_seed(numel))).to(dtype)
    if dtype.is_floating_point:
        tensor[numel // 2], tensor[numel // 3], tensor[-1] = float("nan"), float("inf"), 1e4
    team = Team()
    assert record(tensor, team, threads) == DIGEST.digest([tensor])
    assert team.sizes == ([threads] if tensor.nbytes > 3 * 2**18 else [])


def test_a_small_tensor_wakes_no_thread() -> None:
    tensor, team = torch.randn(3 * 2**16), Team()
    assert record(tensor, team, 2) == DIGEST.digest([tensor])
    assert not team.sizes
