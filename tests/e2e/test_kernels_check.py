"""`numdrift kernels list` and `check` as they are typed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from ..conftest import Numdrift
from ..processes.forked import numdrift_in

FAST = ("--samples", "64", "--inputs", "random,special")


def parsed(done: subprocess.CompletedProcess[str]) -> Any:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(done.stdout, parse_constant=refuse)


def test_check_prints_one_line_a_kernel_under_what_it_is_held_against(numdrift: Numdrift) -> None:
    done = numdrift("kernels", "check", "tanh_backward", *FAST)
    assert done.returncode == 0, done.stderr
    first, _, head, *lines = done.stdout.splitlines()
    assert "exact" in first and "float32 on cpu" in first and "64 samples" in first and "seed 0" in first
    for column in ("max ULP", "p99", "median", "rho", "bias", "differs", "non-finite"):
        assert column in head
    names = [line.split()[0] for line in lines]
    assert len(names) == len(set(names)) and {"aten", "decomposed", "fma", "fp64"} <= set(names)
    assert done.stderr == ""


def test_json_has_every_input_set_and_output(numdrift: Numdrift) -> None:
    done = numdrift(
        "kernels", "check", "native_layer_norm", "--samples", "64", "--kernel", "aten", "--kernel", "fp64", "--json", "-"
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = parsed(done)
    assert found["schema"] == 1 and found["op"] == "native_layer_norm" and "float64" in found["reference"]
    assert {row["kernel"] for row in found["rows"]} == {"aten", "fp64"}
    assert len({row["inputs"] for row in found["rows"]}) == 8
    row = found["rows"][0]
    assert [one["output"] for one in row["outputs"]] == ["output 0", "output 1", "output 2"]
    assert row["outputs"][0]["differs_from_aten"] == 0
    assert {"max_ulp", "p99_ulp", "median_ulp", "rho", "bias_up", "bias_from_zero", "non_finite"} <= set(
        row["outputs"][0]
    )


@pytest.mark.slow
def test_equal_seeds_give_equal_numbers(numdrift: Numdrift) -> None:
    args = ("kernels", "check", "exp", *FAST, "--json", "-")
    one, again, other = numdrift(*args), numdrift(*args), numdrift(*args, "--seed", "1")
    assert one.stdout == again.stdout
    assert parsed(one)["rows"] != parsed(other)["rows"]


@pytest.mark.slow
def test_verbose_has_a_line_for_each_input_set_and_plots_are_written_once(numdrift: Numdrift, tmp_path: Path) -> None:
    args = ("kernels", "check", "mul", *FAST, "--kernel", "aten", "--verbose", "--plot", "errors.png")
    done = numdrift(*args)
    assert done.returncode == 0, done.stderr
    assert [line.split()[:2] for line in done.stdout.splitlines()[3:5]] == [
        ["aten", "random"],
        ["aten", "special"],
    ]
    assert done.stdout.splitlines()[-1] == "Wrote errors.png"
    assert (tmp_path / "errors.png").read_bytes()[:4] == b"\x89PNG"
    # when it is there already
    again = numdrift(*args)
    assert again.returncode == 2 and again.stdout == "" and "--force" in again.stderr
    assert numdrift(*args, "--force").returncode == 0


@pytest.mark.slow
def test_kernels_of_the_users_own_are_rows_whatever_they_do(numdrift: Numdrift, tmp_path: Path) -> None:
    # given one that is right, one that raises, one that returns too little and one that crashes
    for name, body in {
        "right": "return g * (1 - y * y)",
        "raises": "raise RuntimeError('not today')",
        "short": "return g[:1]",
        "crash": "import ctypes; ctypes.string_at(0)",
    }.items():
        (tmp_path / f"{name}.py").write_text(f"def tanh_backward(g, y):\n    {body}\n")
    files = [f"--kernel=tanh_backward={name}.py" for name in ("right", "raises", "short", "crash")]
    # when
    done = numdrift("kernels", "check", "tanh_backward", "--samples", "64", "--inputs", "random", *files)
    # then
    assert done.returncode == 3
    lines = {line.split()[0]: line for line in done.stdout.splitlines()[3:]}
    assert list(lines) == ["aten", "right", "raises", "short", "crash"]
    assert "agrees" in lines["right"]
    assert "failed: raised RuntimeError: not today" in lines["raises"]
    assert "failed: returned shape [1], but the op returns [65]" in lines["short"]
    assert "failed: crashed with SIGSEGV" in lines["crash"]


def test_what_a_kernel_of_the_users_prints_is_no_part_of_the_json(numdrift: Numdrift, tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(
        "import ctypes, sys\nprint('when loaded')\n"
        "def tanh_backward(g, y):\n    print('when called')\n    ctypes.CDLL(None).puts(b'from C')\n"
        "    return g * (1 - y * y)\n"
    )
    done = numdrift("kernels", "check", "tanh_backward", "--kernel=loud.py", *FAST, "--json", "-")
    assert done.returncode == 0 and {row["kernel"] for row in parsed(done)["rows"]} == {"aten", "loud"}
    for words in ("when loaded", "when called", "from C"):
        assert words in done.stderr


LOADED = {
    "while True: pass\n": "mine.py was not loaded within 4 s; --timeout SECONDS allows more",
    "import os\nos._exit(0)\n": "mine.py ended its process with exit code 0 when it was loaded",
    "import ctypes\nctypes.string_at(0)\n": "mine.py crashed with SIGSEGV when it was loaded",
}


@pytest.mark.slow
@pytest.mark.parametrize("text", LOADED)
@pytest.mark.parametrize("command", ["check", "sweep"])
def test_a_file_that_cannot_be_loaded_is_one_line(command: str, text: str, numdrift: Numdrift, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(text)
    limit = "4" if "while" in text else "120"
    done = numdrift("kernels", command, "tanh", "--kernel", "tanh=mine.py", "--timeout", limit)
    assert done.returncode == 2 and done.stdout == ""
    assert LOADED[text] in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


def test_a_kernel_that_is_not_available_is_no_failure(numdrift: Numdrift) -> None:
    done = numdrift("kernels", "check", "argmax", *FAST)
    assert done.returncode == 0
    assert "not available: torch ships no decomposition" in done.stdout


def test_captured_calls_are_measured_in_their_own_dtype(numdrift: Numdrift, tmp_path: Path) -> None:
    folder = tmp_path / "run" / "kernels" / "embedding"
    folder.mkdir(parents=True)
    weight = torch.rand(5, 3, generator=torch.Generator().manual_seed(0)).bfloat16()
    torch.save({"op": "embedding", "args": [weight, torch.tensor([1, 4])], "kwargs": {}}, folder / "0.pt")
    # an op whose arguments nobody can guess
    done = numdrift("kernels", "check", "embedding", "--captured", "run", "--json", "-")
    assert done.returncode == 0, done.stderr
    assert {row["inputs"] for row in parsed(done)["rows"]} == {"captured"}
    assert all(row["outputs"][0]["max_ulp"] == 0 for row in parsed(done)["rows"])


def test_no_compiler_stops_nobody(tmp_path: Path) -> None:
    # given a machine without a compiler, and nothing compiled before
    (tmp_path / "mine.c").write_text("void kernel_float32(void) {}\n")
    arguments = ["kernels", "check", "tanh_backward", *FAST, "--kernel", "fma", "--kernel", "mine.c"]
    done = numdrift_in(
        tmp_path, *arguments, PATH=str(tmp_path), CC=str(tmp_path / "no-cc"), NUMDRIFT_CACHE=str(tmp_path / "cache")
    )
    assert done.returncode == 0, done.stderr
    fma, mine = done.stdout.splitlines()[3:5]
    assert fma.startswith("fma") and "agrees" in fma
    assert mine.startswith("mine ") and "not available: " in mine


def test_list_names_ops_and_kernels_without_torch() -> None:
    code = (
        "import sys; sys.argv = ['numdrift', 'kernels', 'list']\n"
        "from numdrift.harness.cli.program import program\n"
        "program.main(standalone_mode=False)\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *lines, torch_is_there = done.stdout.splitlines()
    assert torch_is_there == "False"
    (line,) = [line for line in lines if line.startswith("tanh_backward ")]
    assert "decomposed" in line and "fma" in line and "activation" in line


def test_list_of_an_op_says_what_can_run_here(numdrift: Numdrift) -> None:
    done = numdrift("kernels", "list", "tanh_backward")
    assert done.returncode == 0, done.stderr
    assert "g*fma(-y, y, 1)" in done.stdout and "available here" in done.stdout
    assert "Kernels in C are computed by" in done.stdout.splitlines()[-1]
    # any op of aten has the generic ones
    found = parsed(numdrift("kernels", "list", "argmax", "--json", "-"))
    assert {one["name"]: one["not_available"] for one in found["kernels"]} == {
        "aten": None,
        "decomposed": "torch ships no decomposition",
        "fp64": None,
        "inductor": None,
    }


def test_list_as_json_has_every_op(numdrift: Numdrift) -> None:
    found = parsed(numdrift("kernels", "list", "--json", "-"))
    kernels = {one["name"]: [kernel["name"] for kernel in one["kernels"]] for one in found["operations"]}
    assert found["schema"] == 1
    assert {"aten", "fma", "fp64"} <= set(kernels["tanh_backward"])


CHECK = ("kernels", "check")
WRONG = {
    "unknown op": ([*CHECK, "tanh_backwards"], ["'tanh_backward'"]),
    "unknown op to list": (["kernels", "list", "tanh_backwards"], ["'tanh_backward'"]),
    "unknown kernel": ([*CHECK, "tanh_backward", "--kernel", "fmaa"], ["did you mean 'fma'"]),
    "kernel of another op": ([*CHECK, "tanh", "--kernel", "gelu=aten"], ["'gelu'", "tanh=aten"]),
    "kernel file that is not there": ([*CHECK, "tanh", "--kernel", "tanh=no.py"], ["no.py"]),
    "kernel file of no kind": ([*CHECK, "tanh", "--kernel", "tanh=a/b.rs"], [".c or .py"]),
    "kernel file without the op": ([*CHECK, "tanh", "--kernel", "{empty}", *FAST], ["empty.py", "tanh"]),
    "unknown input set": ([*CHECK, "tanh", "--inputs", "saturatd"], ["did you mean 'saturated'"]),
    "captured without a run": ([*CHECK, "tanh", "--inputs", "captured"], ["--captured"]),
    "run that is not there": ([*CHECK, "tanh", "--captured", "nowhere"], ["nowhere"]),
    "op without arguments": (
        [*CHECK, "embedding"],
        ["cannot generate arguments", "--trace-kernel embedding", "--captured"],
    ),
    "op of a run without calls": (
        [*CHECK, "tanh", "--captured", "."],
        ["--trace-kernel tanh", "a lazy run keeps none"],
    ),
    "op that writes what it draws": ([*CHECK, "bernoulli_"], ["op bernoulli_ draws random numbers"]),
    "kernel file named as a kernel": (
        [*CHECK, "tanh", "--kernel", "a/fp64.py"],
        ["op tanh already has a kernel 'fp64'; give a/fp64.py another"],
    ),
    "kernel files of one name": (
        [*CHECK, "tanh", "--kernel", "{empty}", "--kernel", "a/empty.py"],
        ["also named 'empty'; give a/empty.py"],
    ),
    "device of no kind": (
        [*CHECK, "tanh", "--device", "cudda"],
        ["--device cudda is not a torch device", "'cuda'"],
    ),
    "op that draws": ([*CHECK, "rand_like"], ["rand_like", "random numbers"]),
    "unknown dtype": ([*CHECK, "tanh", "--dtype", "float8"], ["float8", "bfloat16"]),
    "plot of no kind": ([*CHECK, "tanh", "--plot", "a.gif"], ["a.gif", ".png"]),
    "plot in no folder": ([*CHECK, "tanh", "--plot", "no/a.png"], ["no folder"]),
    "too few samples": ([*CHECK, "tanh", "--samples", "1"], ["--samples"]),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_usage(case: str, numdrift: Numdrift, tmp_path: Path) -> None:
    arguments, expected = WRONG[case]
    (tmp_path / "empty.py").touch()
    (tmp_path / "a").mkdir()
    for name in ("empty.py", "fp64.py"):
        (tmp_path / "a" / name).touch()
    done = numdrift(*(text.format(empty="empty.py") for text in arguments))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stdout == ""
    for words in expected:
        assert words in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "empty.py"]


def test_a_device_that_is_not_there_is_named(numdrift: Numdrift) -> None:
    done = numdrift(*CHECK, "tanh", "--device", "mtia")
    assert done.returncode == 3
    assert len(done.stderr.splitlines()) == 1 and "--device mtia is not available: this machine has none" in done.stderr


def test_both_spellings_of_an_op_are_understood(numdrift: Numdrift) -> None:
    plain = numdrift("kernels", "list", "gelu").stdout
    assert plain.startswith("gelu: ")
    for op in ("aten.gelu", "aten::gelu"):
        assert numdrift("kernels", "list", op).stdout == plain
    done = numdrift(*CHECK, "aten::tanh", "--kernel", "aten.tanh=aten", *FAST)
    assert done.returncode == 0 and done.stdout.startswith("tanh: "), done.stderr


def test_the_list_says_what_every_other_op_has(numdrift: Numdrift) -> None:
    last = numdrift("kernels", "list").stdout.splitlines()[-1]
    for words in ("aten, fp64 (unless it draws", "decomposed (where torch ships", "and inductor"):
        assert words in last
