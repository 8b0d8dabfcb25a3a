"""Kernels run on a device that a plug-in brings: those of the catalogue, and those of the user's own."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from .conftest import Standin

MEASURED = Path(__file__).with_name("kernels_measured.py")

SCRIPT = """
import torch

torch.manual_seed(0)
layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = layers

    def forward(self, x):
        return self.layers(x)


net = Net().to("cuda")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(32, 8).to("cuda"), torch.randn(32, 4).to("cuda")
for step in range(2):
    optimizer.zero_grad()
    (net(x) - y).square().mean().backward()
    optimizer.step()
"""

IN_C = """
#include <stdint.h>
void kernel_float32(int64_t n, const float *g, const float *y, float *result) {
    for (int64_t i = 0; i < n; i++) result[i] = g[i] * (1.0f - y[i] * y[i]);
}
"""

FOR_THE_DEVICE = """
DEVICES = ("standin",)

def tanh_backward(g, y):
    assert g.device.type == "standin"
    return g * ((1 - y) * (1 + y))
"""

pytestmark = pytest.mark.slow
needs_compiler = pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")


@dataclass(frozen=True, slots=True)
class SwappedRuns:
    """A training in modes with other kernels: the folder of its runs, and what the command said."""

    folder: Path
    standin: Standin
    said: str

    def shown(self, mode: str) -> str:
        """Return what `runs show` says of a run."""
        done = self.standin("runs", "show", self.folder / mode)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def journal(self, mode: str) -> str:
        return "".join(path.read_text() for path in (self.folder / mode / "journal").glob("*.jsonl"))


@pytest.fixture(scope="module")
def swapped(tmp_path_factory: pytest.TempPathFactory, standin_site: Path) -> SwappedRuns:
    folder = tmp_path_factory.mktemp("swapped")
    for name, text in {"train.py": SCRIPT, "mine.c": IN_C, "there.py": FOR_THE_DEVICE}.items():
        (folder / name).write_text(text)
    standin = Standin(folder, standin_site)
    modes = {
        "fma": "standin,kernel.tanh_backward=fma",
        "c": "standin,kernel.tanh_backward=mine.c",
        "there": "standin,kernel.tanh_backward=there.py",
        "compiled": "compile,device=standin,backend=aot_eager,kernel.tanh_backward=fma",
    }
    stated = [word for name, mode in modes.items() for word in ("--mode", f"{name}={mode}")]
    done = standin("run", "train.py", *stated, "--trace-kernel", "tanh_backward", "--name", "swapped")
    assert done.returncode == 0, done.stderr
    return SwappedRuns(folder / "runs" / "swapped", standin, done.stdout + done.stderr)


@needs_compiler
@pytest.mark.parametrize("mode", ["fma", "c", "there", "compiled"])
def test_each_run_counts_its_kernel(swapped: SwappedRuns, mode: str) -> None:
    (line,) = [line for line in swapped.shown(mode).splitlines() if line.startswith("kernel.tanh_backward=")]
    assert line.rstrip().endswith("calls: 2 in the backward")


@needs_compiler
def test_the_first_calls_are_shown_with_their_values(swapped: SwappedRuns) -> None:
    rows = [line.split() for line in swapped.said.splitlines() if " tanh_backward " in line]
    assert [row[:4] for row in rows if row[0] == "fma"] == [["fma", "tanh_backward", "fma", "backward"]] * 2
    assert all(row[5:7] == ["float32[32,", "16]"] for row in rows)

    kept = swapped.standin("kernels", "check", "tanh_backward", "--captured", swapped.folder / "fma", "--kernel", "fma")
    assert kept.returncode == 0, kept.stderr


@needs_compiler
def test_c_code_says_that_it_is_the_cpus(swapped: SwappedRuns) -> None:
    said = "c: kernel.tanh_backward=mine.c is computed by C code on the CPU: its tensors are copied from standin"
    assert said in swapped.said
    assert '"computed_by":"C code on the CPU"' in swapped.journal("c")
    assert '"computed_by":"torch formulas (its tensors are on standin)"' in swapped.journal("fma")


@needs_compiler
def test_a_kernel_of_ones_own_is_measured_on_the_device(swapped: SwappedRuns) -> None:
    own = [f"tanh_backward={swapped.folder.parents[1] / name}" for name in ("mine.c", "there.py")]
    check = ["kernels", "check", "tanh_backward", "--device", "standin", "--inputs", "random", "--samples", "16"]
    done = swapped.standin(*check, "--kernel", own[0], "--kernel", own[1], "--json", "-")
    assert done.returncode == 0, done.stderr
    assert {row["kernel"]: row["status"] for row in json.loads(done.stdout)["rows"]} == dict.fromkeys(
        ("aten", "mine", "there"), "measured"
    )

    built = swapped.standin("kernels", "build", swapped.folder.parents[1] / "there.py", "--op", "tanh_backward")
    assert "of 6 elements equal aten's" in built.stdout


def test_a_device_that_is_not_there_is_told(standin: Standin) -> None:
    done = standin("kernels", "check", "tanh", "--device", "standing")
    assert done.returncode == 2
    assert "--device standing is not a torch device; did you mean 'standin'?" in done.stderr
    done = standin("kernels", "check", "tanh", "--device", "standin:7")
    assert done.returncode == 3
    assert "--device standin:7 is not available: torch finds standin:0, standin:1" in done.stderr


def test_every_kernel_of_the_catalogue_runs_on_the_device(standin: Standin) -> None:
    done = standin.python(MEASURED, "standin", "float32", "bfloat16")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])

    assert found["generator"]
    elsewhere = ("on devices of type cuda", "on devices of type cpu")
    draws = "cannot replace an op that draws random numbers"
    for dtype, reasons in found["not measured"].items():
        wrong = {kernel: why for kernel, why in reasons.items() if not why.endswith(elsewhere) and draws not in why}
        assert not wrong, (dtype, wrong)
