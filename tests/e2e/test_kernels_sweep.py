"""`numdrift kernels sweep` as a user has it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ..conftest import Numdrift

KEPT = "sweep.json"


def test_all_bfloat16_values_are_measured_drawn_and_written(numdrift: Numdrift, tmp_path: Path) -> None:
    # when
    done = numdrift(
        "kernels", "sweep", "tanh", "--dtype", "bfloat16", "--kernel", "aten", "--kernel", "fp64",
        "--plot", "tanh.png", "--json", "tanh.json",
    )  # fmt: skip
    # then
    assert done.returncode == 0, done.stderr
    title, header, *rows = done.stdout.splitlines()
    assert "tanh" in title and "bfloat16" in title and "torch" in title
    assert title.endswith("reference accurate formula in float64")
    assert [row.split()[:2] for row in rows[:2]] == [["aten", "65,536"], ["fp64", "65,536"]]
    assert all(name in header for name in ("max ULP", "mean ULP", "bias", "not correctly rounded", "disagreements"))
    assert rows[-1] == "Wrote tanh.png"
    assert (tmp_path / "tanh.png").read_bytes().startswith(b"\x89PNG")
    content = json.loads((tmp_path / "tanh.json").read_text())
    assert (content["schema"], content["op"], content["dtype"], content["range"]) == (
        1,
        "tanh",
        "bfloat16",
        None,
    )
    assert [kernel["kernel"] for kernel in content["kernels"]] == ["aten", "fp64"]
    # tanh of bfloat16 computed more precisely and rounded once is correctly rounded
    assert all(kernel["not_correct"] == 0 and kernel["max_ulp"] < 0.5 for kernel in content["kernels"])
    assert (tmp_path / "runs" / "kernels" / "sweep_tanh_bfloat16_aten" / KEPT).exists()


def test_what_was_measured_is_used_again_unless_it_is_to_be_fresh(numdrift: Numdrift) -> None:
    arguments = ("kernels", "sweep", "neg", "--dtype", "float16", "--kernel", "aten", "--json", "-")
    first, second, third = numdrift(*arguments), numdrift(*arguments), numdrift(*arguments, "--fresh")
    assert first.stderr == ""
    kept = "neg=aten: using the results in runs/kernels/sweep_neg_float16_aten (--fresh measures again)"
    assert kept in second.stderr
    assert "using the results" not in third.stderr
    assert json.loads(first.stdout) == json.loads(second.stdout)
    assert json.loads(first.stdout)["kernels"][0]["bins"] == json.loads(third.stdout)["kernels"][0]["bins"]


def test_every_kernel_is_swept_by_default_and_an_argument_can_be_chosen(numdrift: Numdrift) -> None:
    done = numdrift(
        "kernels", "sweep", "tanh_backward", "--dtype", "float16", "--vary", "grad_output", "--hold", "output=0.5",
        "--range", "-1:1", "--json", "-",
    )  # fmt: skip
    content = json.loads(done.stdout)
    assert (content["varied"], content["held"], content["range"]) == ("grad_output", {"output": 0.5}, "-1:1")
    by_name = {kernel["kernel"]: kernel for kernel in content["kernels"]}
    assert by_name.keys() >= {"aten", "decomposed", "fp64"}
    # g * 0.75 in float64, rounded once
    assert by_name["fp64"]["not_correct"] == 0
    assert {kernel["inputs"] for kernel in by_name.values()} == {2 * (0x3C00 + 1)}


def test_a_float32_range_is_swept_with_every_kernel(numdrift: Numdrift) -> None:
    done = numdrift("kernels", "sweep", "tanh_backward", "--range", "0.999:1", "--kernel", "aten", "--kernel",
                    "decomposed", "--json", "-")  # fmt: skip
    aten, decomposed = json.loads(done.stdout)["kernels"]
    # aten computes g * fma(-y, y, 1), which rounds once for g = 1; 1 - y * y loses up to half of the digits
    assert aten["max_ulp"] <= 0.5
    assert 500 < decomposed["max_ulp"] < 2000


def test_what_a_kernel_of_the_users_prints_is_no_part_of_the_json(numdrift: Numdrift, tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(
        "import ctypes\nprint('when loaded')\n"
        "def tanh(x):\n    print('when called')\n    ctypes.CDLL(None).puts(b'from C')\n    return x.tanh()\n"
    )
    done = numdrift("kernels", "sweep", "aten.tanh", "--dtype", "float16", "--kernel", "tanh=loud.py", "--json", "-")
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert (content["op"], [kernel["kernel"] for kernel in content["kernels"]]) == ("tanh", ["loud"])
    for words in ("when loaded", "when called", "from C"):
        assert words in done.stderr


def test_what_the_dtype_makes_of_a_held_number_is_said_and_the_reference_named(numdrift: Numdrift) -> None:
    done = numdrift(
        "kernels", "sweep", "tanh_backward", "--vary", "grad_output", "--hold", "output=0.999", "--dtype",
        "bfloat16", "--range", "0.9:1", "--kernel", "aten",
    )  # fmt: skip
    assert done.stderr == "numdrift: output=0.999 is 1 in bfloat16\n"
    assert done.stdout.splitlines()[0].endswith("reference accurate formula in float64")
    # an op without a formula of its own
    done = numdrift("kernels", "sweep", "neg", "--dtype", "bfloat16", "--range", "1:2", "--kernel", "aten")
    assert done.stdout.splitlines()[0].endswith("reference op executed in float64")


REFUSED = {
    "unknown op": (["tahn"], ["aten.tahn", "'tanh'"]),
    "unknown kernel": (["tanh", "--kernel", "atem"], ["'atem'", "did you mean 'aten'"]),
    "unknown dtype": (["tanh", "--dtype", "float8"], ["'float8'", "bfloat16"]),
    "unknown argument": (["tanh_backward", "--vary", "outputs"], ["did you mean 'output'"]),
    "held what it has not": (["tanh", "--hold", "x=1"], ["no argument 'x'", "self"]),
    "backward range": (["tanh", "--range", "1:-1"], ["has the larger number first", "-1:1"]),
    "no range": (["tanh", "--range", "1"], ["LOW:HIGH"]),
    "a reduction": (["sum"], ["shape", "element by element"]),
    "a softmax": (["_softmax", "--hold", "dim=0", "--hold", "half_to_float=false"], ["mixes its inputs"]),
    "a softmax that nothing is known of": (
        ["_softmax"],
        ["mixes its inputs", "numdrift kernels check _softmax"],
    ),
    "a product": (["mm"], ["mixes its inputs", "numdrift kernels check mm"]),
    "no jobs": (["tanh", "--jobs", "0"], ["--jobs"]),
    "no picture": (["tanh", "--plot", "tanh.pdf"], ["tanh.pdf", ".png"]),
    "no such folder": (["tanh", "--plot", "nowhere/tanh.png"], ["nowhere"]),
    "an output that exists": (["tanh", "--json", "{notes}"], ["notes.json", "--force"]),
    "a folder that cannot be": (["neg", "--dtype", "float16", "--out", "/proc/x"], ["/proc/x", "--out"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_usage(case: str, numdrift: Numdrift, tmp_path: Path) -> None:
    arguments, expected = REFUSED[case]
    notes = tmp_path / "notes.json"
    notes.write_text("{}")
    done = numdrift("kernels", "sweep", *(text.format(notes=notes) for text in arguments))
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stdout == ""
    for words in expected:
        assert words in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["notes.json"]


@pytest.mark.slow
@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_keeps_what_is_measured_and_the_same_command_goes_on(tmp_path: Path) -> None:
    def interrupted_after(inputs: int) -> tuple[int, str]:
        """Start a full sweep, press Ctrl-C when it keeps more than so many inputs; what is kept, what was said."""
        state = tmp_path / "runs" / "kernels" / "sweep_tanh_float32_fp64" / KEPT
        process = subprocess.Popen(
            [sys.executable, "-m", "numdrift", "kernels", "sweep", "tanh", "--kernel", "fp64", "--jobs", "1"],
            cwd=tmp_path, env=os.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        deadline = time.monotonic() + 120
        while not (state.exists() and json.loads(state.read_text())["inputs"] > inputs):
            assert process.poll() is None and time.monotonic() < deadline, process.communicate()[1]
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 130
        return json.loads(state.read_text())["inputs"], said

    # when
    first, said = interrupted_after(0)
    # then
    assert f"tanh=fp64: {first:,} of 4,294,967,296 inputs are kept in" in said
    assert "Traceback" not in said
    second, said = interrupted_after(first)
    assert f"continuing after {first:,} of 4,294,967,296 inputs" in said
    assert second > first
