"""The tools of a bring-up on an accelerator."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from ..processes.forked import numdrift_in
from .conftest import Standin
from .scripts_trained import WIDE

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def recorded(standin_site: Path, tmp_path_factory: pytest.TempPathFactory) -> Standin:
    """A folder with a run on the CPU and on the device, and graphs of both."""
    standin = Standin(tmp_path_factory.mktemp("recorded"), standin_site)
    (standin.folder / "train.py").write_text(WIDE)
    done = standin("run", "train.py", "--modes", "cpu,standin", "--graphs", "--name", "recorded")
    assert done.returncode == 0, done.stderr
    return standin


def answer(standin: Standin, *arguments: str, code: int = 0) -> Any:
    done = standin(*arguments, "--json", "-")
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_what_a_device_trains_is_compared_and_drawn(recorded: Standin) -> None:
    found = answer(recorded, "compare", "runs/recorded", code=1)  # nothing is decided
    drawn = recorded("plot", "runs/recorded")

    (pair,) = found["pairs"]
    assert (pair["verdict"], pair["first_differing_step"]) == (None, 0)
    assert drawn.returncode == 0 and "png" in drawn.stdout


def test_its_graphs_are_those_of_the_cpu(recorded: Standin) -> None:
    done = recorded("graph", "diff", "runs/recorded/cpu", "runs/recorded/standin")

    assert done.returncode == 0, done.stdout + done.stderr


def test_its_operators_are_analyzed_and_partitioned(recorded: Standin) -> None:
    analyzed = recorded("analyze", "train.py", "--mode", "standin", "--max-steps", "2")
    parted = recorded("partition", "train.py", "--mode", "standin", "--max-steps", "2", "--name", "parted")

    assert analyzed.returncode == 0 and "standin supports" in analyzed.stdout, analyzed.stderr
    # neither what the script computes on the CPU before it moves its model, nor what numdrift reads
    assert " on cpu" not in analyzed.stdout and "aten::uniform_" not in analyzed.stdout
    assert re.search(r"aten::_local_scalar_dense +1 ", analyzed.stdout), "the script reads one value"
    assert parted.returncode == 0 and "are supported by standin" in parted.stdout, parted.stderr


def test_a_snapshot_gives_every_bit_again_on_its_device_and_others_on_the_cpu(recorded: Standin) -> None:
    taken = recorded("snapshot", "take", "train.py", "--modes", "standin", "--steps", "2", "--name", "kept")
    assert taken.returncode == 0, taken.stderr
    forward, backward = sorted((recorded.folder / "runs/kept/standin/snapshots").glob("*.safetensors"))[:2]
    # then
    for path in (forward, backward):
        assert answer(recorded, "snapshot", "replay", str(path))["identical"]
        assert answer(recorded, "snapshot", "replay", str(path), "--mode", "standin:1")["identical"]
    there = answer(recorded, "snapshot", "replay", str(backward), "--mode", "cpu")  # where it is rounding
    assert not there["identical"] and there["comparable"]
    # and where no package tells torch of the device, that is said in a line
    alone = numdrift_in(recorded.folder, "snapshot", "replay", forward)
    assert alone.returncode == 2 and alone.stderr.count("\n") == 1 and "standin" in alone.stderr


def test_a_step_is_localized_by_itself_and_bundled(recorded: Standin) -> None:
    found = answer(recorded, "localize", "runs/recorded/cpu", "runs/recorded/standin", "--step", "1")
    (pair,) = found["pairs"]
    assert pair["culprits"] and all(culprit["script"]["reproduces"] for culprit in pair["culprits"])
    bundled = recorded("bundle", "make", "runs/recorded")
    assert bundled.returncode == 0, bundled.stderr
    # then where no package tells torch of the device, what is in the bundle is read all the same
    opened = numdrift_in(recorded.folder, "bundle", "open", "recorded.numdrift.zip")
    assert opened.returncode == 0, opened.stdout + opened.stderr


SHARED = """
import torch


def doubled(whole, part, repeated):
    whole.mul_(2)
    return part + 1, repeated.stride(0) * torch.ones(3)


def inputs():
    buffer = torch.randn(16)
    return [buffer, buffer[::2], torch.randn(8).expand(4, 8)]
"""


def test_the_inputs_of_a_call_share_memory_on_the_device_as_they_do_on_the_cpu(standin: Standin) -> None:
    (standin.folder / "shared.py").write_text(SHARED)
    found = answer(
        standin, "check", "shared.py:doubled", "--modes", "cpu,standin", "--seeds", "1", "--quick", "--no-gradients"
    )

    (mode,) = found["modes"]
    assert not mode["differences"]
    assert mode["verdict"] in ("identical", "rounding")


def test_an_error_that_only_the_device_raises_is_shrunk_to_one_op(standin: Standin) -> None:
    graph = {
        "imports": [],
        "inputs": {"x": torch.randn(6, 8)},
        "body": ["y = torch.relu(x)", "z = torch.from_numpy(y.numpy())", "w = z.sum()"],
        "returns": ["w"],
    }
    torch.save([{"graphs": [graph], "grad": True, "under": [], "compiled_with": {}}], standin.folder / "calls.pt")
    error = "TypeError: can't convert standin:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."
    request = {
        "traced": "calls.pt", "target": "shrunk.py", "spec": "standin", "labels": ["cpu", "standin"],
        "errors": ["", error], "heading": ["Only standin raises an error."],
    }  # fmt: skip
    (standin.folder / "request.json").write_text(json.dumps(request))

    done = standin.python("-m", "numdrift.harness.localize.scripts.shrunk_error", "request.json")
    alone = standin.python("shrunk.py")

    assert done.stdout.startswith("3 ops to 1; 48 elements to 1; "), done.stdout + done.stderr
    assert (alone.returncode, alone.stdout.splitlines()[0]) == (1, "cpu returns"), alone.stderr
    assert alone.stdout.splitlines()[1] == f"standin raises {error}"
