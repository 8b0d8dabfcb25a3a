"""What `numdrift investigate` finds on an accelerator: the failures of issue 39, each on the stand-in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import Standin
from .ledger import peak_bytes
from .scripts_trained import DROPPING, INDEXED, WIDE

pytestmark = pytest.mark.slow


def written(standin: Standin, text: str) -> Path:
    path = standin.folder / "train.py"
    path.write_text(text)
    return path


def investigated(standin: Standin, script: Path, *options: str, **variables: Any) -> tuple[Any, str]:
    """The findings, and what the command said."""
    done = standin("investigate", script, *options, "--name", "found", "--json", "found.json", **variables)
    assert done.returncode in (0, 1), done.stderr
    assert "could not" not in done.stdout + done.stderr
    return json.loads((standin.folder / "found.json").read_text()), done.stdout + done.stderr


def proven(culprit: Any) -> bool:
    return all(culprit["proof"][way]["holds"] for way in ("swap_in", "swap_out"))


def test_a_planted_kernel_is_named_in_eager_and_compiled_execution(standin: Standin, tmp_path_factory: Any) -> None:
    ledgers = tmp_path_factory.mktemp("ledgers")  # numdrift keeps what is written into the working folder apart
    script = written(standin, WIDE)
    program = standin.folder / "bare.py"
    program.write_text(BARE)
    bare = standin.python(program, script, STANDIN_LEDGER=str(ledgers / "bare"))
    assert bare.returncode == 0, bare.stderr
    planted = "kernel.tanh_backward=bf16"
    modes = ("standin", f"bad=standin,{planted}", f"compiled=compile,device=standin,backend=aot_eager,{planted}")
    memory = peak_bytes(ledgers / "bare")
    # when the device has three times the memory that the training alone needs
    variables = {"STANDIN_LEDGER": str(ledgers / "all"), "STANDIN_MEMORY": str(3 * memory)}
    found, _ = investigated(standin, script, *(word for mode in modes for word in ("--mode", mode)), **variables)
    # then each has that kernel as its cause, proven both ways, by a training without it and by a script of its own
    for pair in found["pairs"]:
        assert pair["verdict"] == "beyond-rounding", pair["b"]
        (culprit,) = pair["culprits"]
        assert (culprit["op"], culprit["phase"]) == ("aten.tanh_backward", "backward")
        assert proven(culprit)
        assert pair["without"]["identical"], "a training to the end without it"
        assert culprit["script"]["reproduces"], culprit["script"]["output"]
    assert memory < peak_bytes(ledgers / "all") <= 3 * memory


BARE = "import runpy, sys, torch, standin_device; torch.nn.Module.cuda = lambda m: m.to('standin'); " + (
    "torch.Tensor.cuda = lambda t, **_: t.to('standin'); runpy.run_path(sys.argv[1])"
)


def test_two_devices_draw_alike_and_what_their_kernels_round_is_explained(standin: Standin) -> None:
    found, said = investigated(standin, written(standin, DROPPING), "--modes", "cpu,standin")

    (pair,) = found["pairs"]
    assert "standin draws the CPU's random numbers (draws=cpu), because the modes run on different devices" in said
    assert pair["verdict"] == "rounding"
    assert pair["culprits"] and all(proven(culprit) for culprit in pair["culprits"])
    assert not any("scaled_dot_product" in culprit["op"] and culprit["phase"] == "data" for culprit in pair["culprits"])
    assert "the drift disappears completely when all culprits are swapped out together" in said


def test_a_kernel_that_does_not_repeat_is_named_and_counts_as_noise(standin: Standin) -> None:
    found, said = investigated(standin, written(standin, INDEXED), "--modes", "cpu,standin", STANDIN_UNREPEATABLE="1")

    (pair,) = found["pairs"]
    assert pair["verdict"] == "rounding" and not pair["controls"]["standin"]["repeatable"]
    assert 0 < pair["controls"]["standin"]["score"] < pair["threshold"]
    sentence = next(line for line in said.splitlines() if "standin does not repeat its own bits: " in line)
    assert "aten.index_add in the forward, " in sentence and "of the step's spread" in sentence


def test_a_fault_is_found_beneath_the_noise_of_kernels_that_do_not_repeat(standin: Standin) -> None:
    faulty = INDEXED.replace("h = torch.zeros", "h = 1.0005 * torch.zeros").replace(
        "1.0005", "float(__import__('os').environ.get('SCALE', '1.0'))"
    )
    modes = ("--mode", "standin", "--mode", "b=standin,env.SCALE=1.0005", "--mode", "c=standin,env.SCALE=1.0")
    found, said = investigated(standin, written(standin, faulty), *modes, STANDIN_UNREPEATABLE="1")

    wrong, right = found["pairs"]
    assert (wrong["verdict"], right["verdict"]) == ("beyond-rounding", "rounding"), said
    first, *others = wrong["culprits"]
    assert first["op"] == "aten.mul" and first["significance"] == "beyond-rounding" and proven(first)
    assert not any(culprit["significance"] == "beyond-rounding" for culprit in (*others, *right["culprits"]))
    assert wrong["explained"] is None or wrong["explained"] > 0.995


def test_numdrifts_own_process_knows_no_device(standin: Standin) -> None:
    program = standin.folder / "program.py"
    program.write_text(OWN_PROCESS)
    done = standin.python(program, written(standin, WIDE))

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


OWN_PROCESS = """
import sys
from numdrift.harness.cli.program import main

sys.argv[1:] = ["investigate", sys.argv[1], "--modes", "cpu,standin", "--max-steps", "2", "--name", "found"]
try:
    main()
except SystemExit:
    pass
print([name for name in sys.modules if name.startswith("standin")])
"""
