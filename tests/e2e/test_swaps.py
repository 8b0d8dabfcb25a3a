"""Kernels swapped from the command line: what they change, what the run says of it, and what is refused."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from .lazy_bits import lazy_is_eager

Numdrift = Callable[..., "subprocess.CompletedProcess[str]"]
SAM_TANH = Path(__file__).parents[2] / "reproducers" / "sam_tanh.py"

CRASHING = """
#include <stdint.h>
void kernel_float32(int64_t n, const float *grad_output, const float *output, float *result)
{
    *(volatile int *)0 = 1;
}
"""
OWN = """
#include <stdint.h>
void kernel_float32(int64_t n, const float *grad_output, const float *output, float *result)
{
    for (int64_t i = 0; i < n; i++) result[i] = 2 * grad_output[i] * (1 - output[i] * output[i]);
}
"""


def manifest(folder: Path, name: str, mode: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((folder / "runs" / name / mode / "run.json").read_text())
    return data


def test_the_manifest_proves_the_effect_per_phase(numdrift: Numdrift, tmp_path: Path) -> None:
    # when three kernels are swapped in eager and lazy mode, one of them at one module only
    kernels = "kernel.tanh_backward=fp64,kernel.addmm@layers.0=fp64,kernel.tanh=aten"
    done = numdrift(
        "run",
        SAM_TANH,
        "--mode",
        f"cpu,{kernels}",
        "--mode",
        f"lazy,{kernels}",
        "--name",
        "s",
        "-q",
        "--",
        "--epochs",
        "2",
    )
    # then each says how often it ran: two tanh, two passes a step
    assert done.returncode == 0, done.stderr
    for mode in ("cpu", "lazy"):
        calls = {one["swap"]: one["calls"] for one in manifest(tmp_path, "s", mode)["swaps"]}
        assert calls["kernel.tanh_backward=fp64"] == {
            "forward": 0,
            "backward": 8,
            "optimizer": 0,
            "traced": 0,
        }
        assert calls["kernel.addmm@layers.0=fp64"]["forward"] >= 4
        assert calls["kernel.tanh=aten"]["forward"] >= 8


def test_a_swap_that_never_ran_is_an_error(numdrift: Numdrift, tmp_path: Path) -> None:
    done = numdrift(
        "run", SAM_TANH, "--mode", "cpu", "--mode", "b=cpu,kernel.gelu=fp64", "--mode",
        "c=cpu,kernel.tanh_backward@layers.9=fp64", "--name", "s", "-q", "--", "--epochs", "2",
    )  # fmt: skip
    assert done.returncode == 2
    assert "kernel.gelu=fp64 was never executed: in this mode, the script never calls aten.gelu" in done.stderr
    assert "aten.tanh_backward is called in layers.3, layers.1" in done.stderr
    assert manifest(tmp_path, "s", "b")["status"] == "complete" and manifest(tmp_path, "s", "b")["problems"]
    assert not manifest(tmp_path, "s", "cpu")["problems"]


def test_first_calls_are_shown_and_kept(numdrift: Numdrift, tmp_path: Path) -> None:
    done = numdrift(
        "run", SAM_TANH, "--mode", "cpu,kernel.tanh_backward@layers.1=mac", "--trace-kernel", "tanh_backward",
        "--name", "s", "--json", "calls.json", "--", "--epochs", "2",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shown = [line.split() for line in done.stdout.splitlines() if line.split()[1:2] == ["tanh_backward"]]
    assert [(row[2], row[3], row[4]) for row in shown[:2]] == [
        ("aten", "backward", "layers.3"),
        ("mac", "backward", "layers.1"),
    ]
    calls = json.loads((tmp_path / "calls.json").read_text())["runs"][0]["kernel_calls"]
    assert calls[0]["arguments"][0].startswith("float32[1437, 32] -0.000")
    kept = torch.load(tmp_path / "runs/s/cpu/kernels" / calls[1]["inputs"], weights_only=True)
    gradient, y = kept["args"]
    assert torch.equal(kept["results"][0], torch.ops.aten.tanh_backward(gradient, y)) is False
    assert torch.allclose(kept["results"][0], torch.ops.aten.tanh_backward(gradient, y), rtol=1e-3)
    # and the lab measures the kernels on them
    checked = numdrift(
        "kernels", "check", "tanh_backward", "--inputs", "zero", "--captured", "runs/s/cpu", "--kernel", "fma",
        "--verbose",
    )  # fmt: skip
    assert checked.returncode == 0, checked.stderr
    assert "captured" in checked.stdout and "agrees" in checked.stdout


@pytest.mark.slow
def test_an_own_kernel_in_c_is_used_and_named_by_its_stem(numdrift: Numdrift, tmp_path: Path) -> None:
    (tmp_path / "mine.c").write_text(OWN)
    done = numdrift(
        "run", SAM_TANH, "--mode", "cpu", "--mode", "a=cpu,kernel.tanh_backward=mine", "--mode",
        "b=cpu,kernel.tanh_backward=mine.c", "--mode", "c=lazy,kernel.tanh_backward=mine.c", "--mode",
        "lazy", "--kernel", "tanh_backward=mine.c", "--name", "s", "-q", "--", "--epochs", "2",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for mode in ("a", "b", "c"):
        assert manifest(tmp_path, "s", mode)["swaps"][0]["calls"]["backward"] == 8
    # Whether the other kernels of lazy mode have eager's bits depends on the processor: it is compared with itself.
    assert "parameters and buffers differ" in numdrift("compare", "runs/s/lazy", "runs/s/c").stdout
    assert "identical bit for bit" in numdrift("compare", "runs/s/a", "runs/s/b").stdout
    assert "parameters and buffers differ" in numdrift("compare", "runs/s/cpu", "runs/s/a").stdout


def test_a_kernel_that_crashes_the_process_is_named_and_other_modes_go_on(numdrift: Numdrift, tmp_path: Path) -> None:
    (tmp_path / "bad.c").write_text(CRASHING)
    done = numdrift(
        "run", SAM_TANH, "--mode", "b=cpu,kernel.tanh_backward=bad.c", "--mode", "cpu", "--name", "s", "-q", "--",
        "--epochs", "2",
    )  # fmt: skip
    assert done.returncode == 3
    assert "by SIGSEGV, inside the kernel of kernel.tanh_backward=bad.c" in done.stderr
    assert manifest(tmp_path, "s", "b")["status"] == "killed"
    assert manifest(tmp_path, "s", "cpu")["status"] == "complete"


def test_a_kernel_that_raises_is_a_crash_that_names_it(numdrift: Numdrift, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(
        "def tanh_backward(grad_output, output):\n    return grad_output[0, 0].item() / 0\n"
    )
    done = numdrift(
        "run",
        SAM_TANH,
        "--mode",
        "b=cpu,kernel.tanh_backward=bad.py",
        "--name",
        "s",
        "-q",
        "--",
        "--epochs",
        "2",
    )
    assert done.returncode == 3
    assert "kernel tanh_backward=bad raised ZeroDivisionError" in done.stderr
    assert manifest(tmp_path, "s", "b")["status"] == "crashed"


def test_without_a_compiler_torch_formulas_stand_in_and_are_named(numdrift: Numdrift, tmp_path: Path) -> None:
    swap = "kernel.tanh_backward=mac"
    done = numdrift(
        "run", SAM_TANH, "--mode", f"a=cpu,{swap}", "--mode", f"b=cpu,{swap},env.CC=/nonexistent", "--name", "s",
        "--", "--epochs", "2",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "b: kernel.tanh_backward=mac is computed by torch formulas (" in done.stderr
    assert "a: kernel.tanh_backward=mac" not in done.stderr
    assert "identical bit for bit" in numdrift("compare", "runs/s/a", "runs/s/b").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--mode", "cpu,kernel.tanh_backwar=fma"], "no op aten.tanh_backwar; did you mean 'tanh_backward'"),
        (["--mode", "cpu,kernel.tanh_backward=fmma"], "has no kernel 'fmma'; did you mean 'fma'"),
        (["--mode", "cpu,kernel.tanh_backward@=fma"], "names no module after @"),
        (["--mode", "cpu,kernel.tanh_backward=none.c"], "none.c"),
        (["--mode", "cpu", "--kernel", "tanh_backward"], "is not OP=PATH"),
        (["--mode", "cpu", "--kernel", "tanh_backward=mine.c"], "no mode uses --kernel tanh_backward=mine.c; add one"),
        (["--mode", "cpu,kernel.tanh_backward=broken.c"], "broken.c:1:"),
        (["--mode", "cpu", "--trace-kernel", "tanhbackward"], "no op aten.tanhbackward; did you mean"),
        (["--mode", "compile,decompose.tanh=off"], "Inductor does not decompose aten.tanh"),
        (
            ["--mode", "cpu,kernel.view=fp64"],
            "view cannot be swapped: it takes no tensor, or only returns a view of one",
        ),
        (["--mode", "cpu,kernel.arange=fp64"], "arange cannot be swapped"),
        (["--mode", "cpu,kernel.addcmul_=fma"], "kernel.addcmul=fma covers the in-place form"),
        (["--mode", "cpu,kernel.tanh_backward=triton"], "runs on cuda, but this mode runs on cpu"),
        (["--mode", "cpu,kernel.tanh_backward=fma.py"], "already has a kernel 'fma'"),
        (["--mode", "cpu,kernel.tanh_backward=broken.py"], "broken.py:1:"),
        (["--mode", "cpu,kernel.gelu@:-1=fp64"], "OP@:N"),
        (["--mode", "compile,backend=eager,kernel.gelu@net=fp64"], "has no module paths"),
        (["--mode", "compile,backend=aot_eager,decompose.gelu=off"], "backend aot_eager decomposes nothing"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], said: str, numdrift: Numdrift, tmp_path: Path) -> None:
    (tmp_path / "mine.c").write_text(OWN)
    (tmp_path / "broken.c").write_text("void kernel_float32(int n {}\n")
    (tmp_path / "broken.py").write_text("def tanh_backward(:\n")
    done = numdrift("run", SAM_TANH, *arguments, "--name", "s", "-q", "--", "--epochs", "1")
    assert done.returncode == 2, done.stderr
    assert said in done.stderr and "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.slow
def test_an_own_kernel_in_python_runs_in_the_process_of_its_mode_only(numdrift: Numdrift, tmp_path: Path) -> None:
    """One that never ends is stopped with its run, one that leaves takes nothing else with it."""
    (tmp_path / "endless.py").write_text("while True: pass\n")
    (tmp_path / "leaving.py").write_text("import os\nprint('loud', flush=True)\nos._exit(5)\n")
    done = numdrift(
        "run", SAM_TANH, "--mode", "e=cpu,kernel.tanh_backward=endless.py,timeout=8", "--mode",
        "l=cpu,kernel.tanh_backward=leaving.py", "--mode", "cpu", "--name", "s", "--json", "-", "--", "--epochs", "1",
        timeout=120,
    )  # fmt: skip
    assert done.returncode == 3
    statuses = {run["mode"]: (run["status"], run["exit_code"]) for run in json.loads(done.stdout)["runs"]}
    assert statuses["e"][0] == "timeout" and statuses["l"] == ("crashed", 5)
    assert statuses["cpu"] == ("complete", 0)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "output.zero_(); return grad_output * 1",
            "wrote to its argument 'output', which the op leaves unchanged",
        ),
        ("import os; os._exit(7)", "exit code 7: it printed nothing, inside the kernel of"),
    ],
)
def test_what_a_kernel_must_not_do_is_named(body: str, said: str, numdrift: Numdrift, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(f"def tanh_backward(grad_output, output):\n    {body}\n")
    done = numdrift(
        "run",
        SAM_TANH,
        "--mode",
        "b=cpu,kernel.tanh_backward=bad.py",
        "--name",
        "s",
        "-q",
        "--",
        "--epochs",
        "1",
    )
    assert done.returncode == 3
    assert said in done.stderr


@pytest.mark.exhaustive
def test_the_numbers_of_the_guide(numdrift: Numdrift) -> None:
    """docs/guide/swap-a-kernel.md: each sentence with a number in it."""
    torchs = "kernel.tanh=aten,kernel.tanh_backward=aten"
    modes = [
        "cpu", "lazy", "compile", "cpu_dec=cpu,kernel.tanh_backward=decomposed",
        "lazy_dec=lazy,kernel.tanh_backward=decomposed", f"two=compile,{torchs}",
        f"three=compile,{torchs},kernel.sum=aten",
        "in=cpu,kernel.tanh=inductor,kernel.tanh_backward=inductor,kernel.sum=inductor",
    ]  # fmt: skip
    listed = [part for mode in modes for part in ("--mode", mode)]
    done = numdrift("run", SAM_TANH, *listed, "--name", "s", "-q", "--", "--epochs", "20")
    assert done.returncode == 0, done.stderr

    def identical(a: str, b: str) -> bool:
        return "identical bit for bit" in numdrift("compare", f"runs/s/{a}", f"runs/s/{b}").stdout

    # lazy mode is eager where the library has one path for transposed views and for their copies, as the guide says
    is_eager = lazy_is_eager(numdrift, "runs/s", SAM_TANH, "--epochs", "20")
    assert identical("cpu", "lazy") == is_eager
    assert not identical("cpu", "cpu_dec") and not identical("lazy", "lazy_dec")
    assert identical("cpu_dec", "lazy_dec") == is_eager
    assert not identical("cpu", "compile")
    assert not identical("cpu", "two")
    assert identical("cpu", "three")
    assert identical("compile", "in")
