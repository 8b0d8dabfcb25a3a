from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest
import torch

from numdrift.harness.errors import NotAvailable
from numdrift.harness.launch.running_process import free_port, rank_variables
from numdrift.harness.records.run.adoption_facts import AdoptionFacts
from numdrift.harness.script.parallel import backend_on, install, let_go, plain_name, wrapper_paths
from numdrift.harness.tape.op_names import UNREPLAYED, unreplayed
from numdrift.harness.tape.shards import is_sharded, local_tensor, shard_of


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ("nccl", "gloo"),
        ("NCCL", "gloo"),
        ("gloo", "gloo"),
        ("mpi", "mpi"),
        ("cpu:gloo,cuda:nccl", "gloo"),
        ("cuda:nccl,cpu:mpi", "mpi"),
        ("cuda:nccl", "gloo"),
        ("xccl", "gloo"),
    ],
)
def test_the_backend_on_the_cpu(asked: str, given: str) -> None:
    assert backend_on("cpu", asked) == given


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ("nccl", "vendors"),
        ("gloo", "cpu:gloo,xpu:vendors"),
        ("mpi", "mpi"),
        ("cpu:gloo,cuda:nccl", "cpu:gloo,xpu:vendors"),
        ("cuda:nccl,cpu:mpi", "cpu:mpi,xpu:vendors"),
        ("cuda:nccl", "vendors"),
    ],
)
def test_the_backend_on_an_accelerator(asked: str, given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "get_default_backend_for_device", lambda device: "vendors")
    assert backend_on("xpu", asked) == given


def test_an_accelerator_without_collectives_is_told() -> None:
    with pytest.raises(NotAvailable, match=r"torch.distributed on the device 'meta'.*no backend for this device"):
        backend_on("meta", "nccl")


@pytest.mark.parametrize(
    ("name", "wrappers", "plain"),
    [
        ("module.fc.weight", {""}, "fc.weight"),
        ("module._orig_mod.fc.weight", {""}, "fc.weight"),
        ("_orig_mod.module.fc.weight", {"_orig_mod"}, "fc.weight"),
        ("module.module.weight", {""}, "module.weight"),
        ("module.fc.weight", set(), "module.fc.weight"),
        ("inner.module.fc.weight", {"inner"}, "inner.fc.weight"),
        ("block._checkpoint_wrapped_module.weight", set(), "block.weight"),
    ],
)
def test_names_are_those_of_the_model_alone(name: str, wrappers: set[str], plain: str) -> None:
    assert plain_name(name, frozenset(wrappers)) == plain


def test_a_module_of_that_name_is_no_wrapper() -> None:
    class Holder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = torch.nn.Linear(2, 2)

    assert wrapper_paths(Holder()) == frozenset()


def test_a_plain_tensor_is_no_shard() -> None:
    tensor = torch.zeros(3)
    assert not is_sharded(tensor)
    assert shard_of(tensor) is None
    assert local_tensor(tensor) is tensor


def test_a_rank_is_told_what_torchrun_tells() -> None:
    variables = rank_variables(1, 3, 2345)
    assert {name: variables[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")} == {
        "RANK": "1",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "3",
        "LOCAL_WORLD_SIZE": "3",
    }
    assert (variables["GROUP_RANK"], variables["MASTER_ADDR"], variables["MASTER_PORT"]) == (
        "0",
        "127.0.0.1",
        "2345",
    )
    assert variables["TORCHELASTIC_RUN_ID"]
    assert 1024 <= free_port() < 65536


def test_a_collective_is_named_without_its_namespace() -> None:
    assert unreplayed("c10d::allreduce_") == f"the step calls allreduce: {UNREPLAYED}"
    assert unreplayed("_c10d_functional::all_reduce").startswith("the step calls all_reduce: ")


def test_a_destroyed_group_is_there_until_the_script_has_ended(tmp_path: Path) -> None:
    # given a script that destroys its process group: torch's own last reference would wait for a thread of it
    undo = install("cpu", AdoptionFacts(lambda *_, **__: None))
    try:
        torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
        group = weakref.ref(torch.distributed.group.WORLD)
        torch.distributed.destroy_process_group()
    finally:
        undo()
    gc.collect()
    assert group() is not None
    # when it has ended
    let_go()
    gc.collect()
    assert group() is None
