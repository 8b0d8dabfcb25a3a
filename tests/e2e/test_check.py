"""`numdrift check`: calls of functions, modules and reproducers in several modes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import numdrift as package
from numdrift.testing import assert_equivalent

from ..conftest import Numdrift

FUNCTIONS = """
import os
import signal
import torch

FAULT = os.environ.get("FAULT", "")


def scaled(x, weight):
    y = torch.tanh(x @ weight)
    return y.sum(-1), y > 0


def faulty(x, out):
    if FAULT == "raises":
        raise ValueError("a bad value")
    if FAULT == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    y = torch.exp(x)
    if FAULT == "value":
        y = y * 1.001
    if FAULT == "dtype":
        y = y.double()
    if FAULT == "memory":
        y = torch.exp_(x)
    if FAULT != "unwritten":
        out.copy_(y)
    return y


def undefined(x):
    bits = -4194304 if FAULT == "bits" else 0x7FC00000
    return torch.full((2,), bits, dtype=torch.int32).view(torch.float32).clone(), x + 1


def unwritten(x):
    if FAULT == "memory":
        return x + int.from_bytes(os.urandom(2), "little")
    return x + 1


def viewed(x):
    x.add_(1)
    return x[::2]


def integers(x):
    y = (x * 4).long()
    return y + 1 if FAULT == "value" else y


def nothing(x):
    return 3


def generated(x):
    yield x


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(width, width), torch.nn.BatchNorm1d(width)

    def forward(self, x):
        return torch.tanh(self.norm(self.linear(x)))


def get_init_inputs():
    return [4]


def get_inputs():
    return [torch.randn(6, 4)]
"""

FLOOR = """
import torch

def bucket(value, width):
    return value // width

value = torch.tensor([1.0, 0.5, 6.0, 1.0])
width = torch.tensor([0.1, 0.1, 0.2, 1 / 3])
assert torch.equal(bucket(value, width), torch.compile(bucket)(value, width)), "other buckets"
"""

ANY_SIZE = """
import torch

@torch.compile
def f(x, w):
    return torch.nn.functional.conv2d(x, w, stride=(2, 2), padding=2)
w = torch.ones(3, 3, 3, 3, requires_grad=True)
f(torch.ones(1, 3, 4, 4, requires_grad=True), w)
f(torch.ones(3, 4, 4, requires_grad=True), w)
"""

SHADOWED = """
import torch

class Wrapper(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4, bias=False)

    def forward(self, x):
        return self.inner(x)

module = Wrapper()
compiled = torch.compile(module)
compiled(torch.arange(4.0))
replacement = torch.nn.Linear(4, 4, bias=False)
torch.nn.init.constant_(replacement.weight, 5.0)
object.__setattr__(module, "inner", replacement)
compiled(torch.arange(4.0))
"""

INPUTS = ("--inputs", "randn(5, 3), randn(3, 4)")
TWO = ("--mode", "a=cpu", "--mode")


@pytest.fixture
def functions(tmp_path: Path) -> Path:
    path = tmp_path / "ops.py"
    path.write_text(FUNCTIONS)
    return path


def checked(numdrift: Numdrift, folder: Path, *arguments: str, code: int) -> dict[str, Any]:
    """Run a check, and return its JSON."""
    done = numdrift("check", *arguments, "--json", "found.json", "--force")
    assert done.returncode == code, done.stdout + done.stderr
    content: dict[str, Any] = json.loads((folder / "found.json").read_text())
    return content


@pytest.mark.slow
def test_a_reproducer_of_a_fault_of_the_compiler(numdrift: Numdrift, tmp_path: Path) -> None:
    # given pytorch#197895; its last line, which fails when it is compiled, passes while the calls are noted
    (tmp_path / "issue.py").write_text(FLOOR)

    done = numdrift("check", "issue.py", "--json", "found.json", "--markdown", "issue.md")

    assert done.returncode == 1, done.stdout + done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    (mode,) = found["modes"]
    assert mode["verdict"] == "beyond-rounding"
    (cause,) = mode["pair"]["culprits"]
    assert (cause["op"], cause["status"]) == ("aten.floor_divide", "culprit")
    assert "floor_divide less exactly (issue.py:5): a proven fault" in done.stdout.splitlines()[0]
    issue = (tmp_path / "issue.md").read_text()
    assert "return value // width" in issue
    assert "aten.floor_divide" in issue
    assert f"torch: {torch.__version__}" in issue


@pytest.mark.slow
def test_compiled_code_of_an_earlier_call_is_told_apart(numdrift: Numdrift, tmp_path: Path) -> None:
    # given pytorch#197859: dynamo does not see that an attribute takes the place of a submodule
    (tmp_path / "issue.py").write_text(SHADOWED)
    (mode,) = checked(numdrift, tmp_path, "issue.py", code=1)["modes"]
    line = f"issue.py:{SHADOWED.rstrip().count(chr(10)) + 1}"
    assert f"uses the compiled code of an earlier call in {line}" in mode["answer"]
    assert mode["text"][0].startswith(f"made alone, in a process that has compiled nothing before, {line} computes")


@pytest.mark.exhaustive
def test_a_call_that_cannot_be_compiled_after_other_calls(numdrift: Numdrift, tmp_path: Path) -> None:
    # given an image without a batch after one with a batch, which Inductor of torch 2.13 cannot compile for any size
    (tmp_path / "issue.py").write_text(ANY_SIZE)
    (mode,) = checked(numdrift, tmp_path, "issue.py", "--shrink", code=1)["modes"]
    assert mode["verdict"] == "raises"
    assert "cannot compile issue.py:9 after the earlier calls" in mode["answer"]
    assert "InductorError" in mode["differences"][0]
    # the script makes both calls, and raises the error without numdrift and issue.py
    (script,) = mode["shrunk"]
    text = Path(tmp_path, script["path"]).read_text()
    assert text.count("torch.conv2d(") == 1 and text.count("calls") == 3
    (tmp_path / "alone").mkdir()
    done = subprocess.run(
        [sys.executable, "-I", tmp_path / script["path"]],
        cwd=tmp_path / "alone", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("cpu returns\ncompile raises InductorError: ")


@pytest.mark.exhaustive
def test_a_process_that_ends_where_the_reference_raises_an_error(numdrift: Numdrift, tmp_path: Path) -> None:
    # given a division of integers by zero, which compiled code executes
    (tmp_path / "ops.py").write_text(
        "import torch\n\n\ndef divided(x, y):\n    z = torch.div(x, y, rounding_mode='trunc')\n    return z.abs() + 1\n\n\n"
        "def inputs():\n    return [torch.arange(6), torch.arange(6)]\n"
    )
    (mode,) = checked(numdrift, tmp_path, "ops.py:divided", "--seeds", "1", "--shrink", code=1)["modes"]
    assert mode["verdict"] == "raises"
    assert mode["answer"] == (
        "compile ends its process in the call, where cpu raises RuntimeError: ZeroDivisionError: killed by SIGFPE"
    )
    (script,) = mode["shrunk"]
    done = subprocess.run(
        [sys.executable, "-I", tmp_path / script["path"]], capture_output=True, text=True, check=False
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (-8, "cpu raises RuntimeError: ZeroDivisionError\n")


@pytest.mark.slow
def test_a_formula_that_autograd_takes_only_while_ops_are_recorded_is_rounding(
    numdrift: Numdrift, tmp_path: Path
) -> None:
    # given the gradient of a product: with a dispatch mode, autograd computes it from products of the other elements
    (tmp_path / "ops.py").write_text("def product(x):\n    return x.prod()\n")
    drawn = ("--inputs", "randn(50)", "--seeds", "4")
    (mode,) = checked(numdrift, tmp_path, "ops.py:product", *drawn, code=0)["modes"]
    assert mode["verdict"] in ("identical", "rounding")
    assert not any("does not repeat" in sentence for sentence in mode["text"])
    assert any("while its ops are recorded" in sentence for sentence in mode["text"])


@pytest.mark.slow
def test_half_complex_numbers_and_draws(numdrift: Numdrift, tmp_path: Path) -> None:
    # given a dtype that NumPy lacks
    (tmp_path / "ops.py").write_text(
        "import torch\ndef drawn(x):\n    return x.to(torch.complex32), torch.nn.functional.dropout(x.real, 0.5)\n"
    )
    drawn = ("--inputs", "randn(5, dtype=complex64)", "--seeds", "1", "--no-gradients")
    found = checked(numdrift, tmp_path, "ops.py:drawn", *drawn, code=0)
    assert [mode["verdict"] for mode in found["modes"]] == ["identical"]
    assert any("draws the random numbers of eager mode" in note for note in found["notes"])
    # when a mode has been asked for its own numbers
    own = ("--mode", "cpu", "--mode", "compile,fallback_random=off")
    found = checked(numdrift, tmp_path, "ops.py:drawn", *drawn, *own, code=1)
    assert [mode["verdict"] for mode in found["modes"]] == ["different-setup"]
    assert not any("draws" in note for note in found["notes"])


EVALUATION = """
import torch

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh())
with torch.no_grad():
    for _ in range(2):
        print(net(torch.randn(2, 4)))
"""


@pytest.mark.slow
def test_the_calls_of_a_script_that_never_trains(numdrift: Numdrift, tmp_path: Path) -> None:
    (tmp_path / "evaluate.py").write_text(EVALUATION)
    swapped = ("--mode", "cpu", "--mode", "bad=cpu,kernel.tanh=bf16")
    done = numdrift("investigate", str(tmp_path / "evaluate.py"), *swapped, "--out", str(tmp_path / "runs"))
    assert done.returncode == 1
    assert "never trains" in done.stderr
    assert "bad computes tanh" in done.stdout and "2 calls" in done.stdout


CENTRED = """
import torch


def centred(x):
    return (x - x.max()).log()


def get_inputs():
    return [torch.tensor([0.5, UNDEFINED, -1.0, 2.0, 0.25])]
"""


@pytest.mark.exhaustive
def test_nan_in_other_elements_is_a_fault_although_recording_hides_it(numdrift: Numdrift, tmp_path: Path) -> None:
    # given a gradient with NaN at the maximum alone in eager mode, and everywhere while a dispatch mode is active, as
    # in a compiled graph (torch 2.13)
    (tmp_path / "ops.py").write_text(CENTRED.replace("UNDEFINED", "-0.5"))
    (mode,) = checked(numdrift, tmp_path, "ops.py:centred", code=1)["modes"]
    assert mode["verdict"] == "beyond-rounding"
    assert "stage aot_eager" in mode["answer"]
    assert any("eager 0, aot_eager inf" in sentence for sentence in mode["text"])


@pytest.mark.slow
def test_a_nan_whose_bits_change_while_ops_are_recorded(numdrift: Numdrift, tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text(CENTRED.replace("UNDEFINED", 'float("nan")'))
    (mode,) = checked(numdrift, tmp_path, "ops.py:centred", code=0)["modes"]
    assert (mode["verdict"], "but for the bits of NaN" in mode["answer"]) == ("identical", True)


@pytest.mark.slow
def test_a_swapped_kernel_is_found_in_the_gradients(numdrift: Numdrift, tmp_path: Path, functions: Path) -> None:
    found = checked(
        numdrift, tmp_path, "ops.py:scaled", *INPUTS, *TWO, "bad=cpu,kernel.tanh_backward=bf16", "--mode", "same=cpu",
        code=1,
    )  # fmt: skip
    bad, same = found["modes"]
    assert (bad["verdict"], same["verdict"]) == ("beyond-rounding", "identical")
    assert {result["name"] for result in bad["results"]} == {"the gradient of x", "the gradient of weight"}
    assert bad["pair"]["culprits"][0]["op"] == "aten.tanh_backward"
    assert found["calls"] == ["seed 0", "seed 1"]


def test_the_recorded_results_are_those_of_plain_python(numdrift: Numdrift, tmp_path: Path, functions: Path) -> None:
    found = checked(numdrift, tmp_path, "ops.py:scaled", *INPUTS, *TWO, "same=cpu", code=0)
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(shape, generator=generator) for shape in ((5, 3), (3, 4)))
    values = package.load_run(tmp_path / found["folder"] / "a").parameters(0)
    y = torch.tanh(x @ weight)
    assert values["output_0"].tobytes() == y.sum(-1).numpy().tobytes()
    assert values["output_1"].tobytes() == (y > 0).numpy().tobytes()


def test_memory_that_cannot_be_seen_is_not_compared(numdrift: Numdrift, tmp_path: Path, functions: Path) -> None:
    found = checked(
        numdrift, tmp_path, "ops.py:viewed", "--inputs", "randn(4, grad=False)", *TWO, "lazy", "--seeds", "1", code=0
    )
    assert found["modes"][0]["verdict"] == "identical"


def test_inputs_that_share_memory_do_so_on_a_device_that_defers_ops(numdrift: Numdrift, tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text(
        "import torch\n\n\ndef doubled(whole, part):\n    whole.mul_(2)\n    return part + 1\n\n\n"
        "def inputs():\n    buffer = torch.arange(6.0)\n    return [buffer, buffer[1::2]]\n"
    )
    found = checked(numdrift, tmp_path, "ops.py:doubled", *TWO, "lazy", "--seeds", "1", "--no-gradients", code=0)
    assert found["modes"][0]["verdict"] == "identical"
    values = package.load_run(tmp_path / "runs/ops/lazy").parameters(0)
    assert values["output"].tolist() == [3, 7, 11]


@pytest.mark.parametrize(
    ("fault", "verdict", "words"),
    [
        ("raises", "raises", "raises ValueError: a bad value, where a returns"),
        ("killed", "raises", "b does not return where a does: killed"),
        ("dtype", "other-results", "output has dtype float64, where a has float32"),
        ("memory", "other-results", "output has the memory of x, where a has memory of its own"),
        ("unwritten", "other-results", "leaves out as it is, which a writes to"),
    ],
)
def test_calls_that_do_something_else(
    numdrift: Numdrift, tmp_path: Path, functions: Path, fault: str, verdict: str, words: str
) -> None:
    found = checked(
        numdrift, tmp_path, "ops.py:faulty", "--inputs", "randn(4, grad=False), zeros(4, grad=False)",
        *TWO, f"b=cpu,env.FAULT={fault}", "--seeds", "1", code=1,
    )  # fmt: skip
    (mode,) = found["modes"]
    assert mode["verdict"] == verdict
    assert any(words in text for text in (mode["answer"], *mode["differences"])), mode
    if fault == "raises":
        assert mode["answer"] == "b raises ValueError: a bad value, where a returns (the call)"


@pytest.mark.slow
def test_force_leaves_nothing_of_another_function(numdrift: Numdrift, tmp_path: Path, functions: Path) -> None:
    options = (*TWO, "b=cpu,env.FAULT=value", "--name", "same", "--seeds", "1")
    one = checked(numdrift, tmp_path, "ops.py:integers", "--inputs", "randn(3)", *options, code=1)
    two = checked(numdrift, tmp_path, "ops.py:faulty", "--inputs", "randn(4), zeros(4, grad=False)", *options, code=1)
    ops = [{culprit["op"] for culprit in found["modes"][0]["pair"]["culprits"]} for found in (one, two)]
    assert ops[0].isdisjoint(ops[1])
    assert "aten.mul" in ops[1]


@pytest.mark.slow
def test_whole_numbers_are_compared(numdrift: Numdrift, tmp_path: Path, functions: Path) -> None:
    found = checked(
        numdrift, tmp_path, "ops.py:integers", "--inputs", "randn(3)", *TWO, "b=cpu,env.FAULT=value", code=1
    )
    (mode,) = found["modes"]
    assert mode["verdict"] == "beyond-rounding"
    assert [result["name"] for result in mode["results"]] == ["output"]


@pytest.mark.slow
def test_the_bits_of_nan_are_equal(numdrift: Numdrift, tmp_path: Path, functions: Path) -> None:
    found = checked(
        numdrift, tmp_path, "ops.py:undefined", "--inputs", "randn(3)", *TWO, "b=cpu,env.FAULT=bits", code=0
    )
    (mode,) = found["modes"]
    assert (mode["verdict"], "but for the bits of NaN" in mode["answer"]) == ("identical", True)


@pytest.mark.slow
def test_results_that_only_one_mode_does_not_repeat(numdrift: Numdrift, tmp_path: Path, functions: Path) -> None:
    found = checked(
        numdrift, tmp_path, "ops.py:unwritten", "--inputs", "randn(3)", *TWO, "b=cpu,env.FAULT=memory", code=1
    )
    (mode,) = found["modes"]
    assert mode["verdict"] == "nondeterministic"
    assert mode["answer"].startswith("b computes other bits of output each time, where a repeats its own")


@pytest.mark.slow
def test_a_wrong_value_is_found_in_each_result_that_has_it(numdrift: Numdrift, tmp_path: Path, functions: Path) -> None:
    found = checked(
        numdrift, tmp_path, "ops.py:faulty", "--inputs", "randn(4), zeros(4, grad=False)", *TWO, "b=cpu,env.FAULT=value",
        code=1,
    )  # fmt: skip
    (mode,) = found["modes"]
    results = {result["name"]: result["difference"] for result in mode["results"]}
    assert mode["verdict"] == "beyond-rounding"
    assert {"output", "out after the call", "the gradient of x"} <= results.keys()
    assert all(difference == pytest.approx(0.001, rel=1e-3) for difference in results.values())


@pytest.mark.slow
def test_a_module_is_compared_with_its_parameters_and_buffers(
    numdrift: Numdrift, tmp_path: Path, functions: Path
) -> None:
    found = checked(numdrift, tmp_path, "ops.py:Block", *TWO, "bad=cpu,kernel.tanh_backward=bf16", code=1)
    names = {result["name"] for result in found["modes"][0]["results"]}
    assert {"the gradient of linear.weight", "the gradient of norm.bias", "the gradient of x"} <= names
    assert "norm.running_mean" not in names  # the forward is the same


@pytest.mark.exhaustive
def test_a_library_of_ops(numdrift: Numdrift, tmp_path: Path) -> None:
    pytest.importorskip("expecttest")
    command = (
        "check",
        "--ops",
        "^(tanh|sinh)$",
        "--samples",
        "1",
        *TWO,
        "bad=cpu,kernel.tanh=bf16",
        "--json",
        "t.json",
    )
    done = numdrift(*command)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stderr.splitlines() == ["sinh: bad identical", "tanh: bad beyond-rounding"]
    assert "2 ops: 1 beyond-rounding, 1 identical." in done.stdout
    rows = {row["op"]: row for row in json.loads((tmp_path / "t.json").read_text())["rows"]}
    assert rows["tanh"]["cause"] == "aten.tanh"

    again = numdrift(*(word.replace("sinh", "sinh|exp2").replace("t.json", "more.json") for word in command))
    more = json.loads((tmp_path / "more.json").read_text())
    assert again.stderr.splitlines() == ["exp2: bad identical"]
    assert (more["reused"], len(more["rows"])) == (2, 3)

    # a job of an engine goes on from there, and checks only what is new
    pytest.importorskip("submitit")
    words = [word.replace("sinh", "sinh|exp2|abs").replace("t.json", "job.json") for word in command]
    job = numdrift(*words, "--engine", "submitit", "--engine-option", "cluster=local")
    found = json.loads((tmp_path / "job.json").read_text())
    assert job.stderr.splitlines() == ["1 of 4 ops to check, on the engine submitit", "abs: bad identical"], job.stderr
    assert (found["reused"], [row["op"] for row in found["rows"]]) == (3, ["abs", "exp2", "sinh", "tanh"])


def test_the_inputs_of_a_snapshot(numdrift: Numdrift, tmp_path: Path, functions: Path) -> None:
    # given a snapshot of the forward of a training, with an input of another size than get_inputs() of the file
    (tmp_path / "train.py").write_text(
        "import torch\ntorch.manual_seed(0)\nmodel = torch.nn.Linear(4, 2)\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "model(torch.arange(20.0).reshape(5, 4)).sum().backward()\noptimizer.step()\n"
    )
    taken = numdrift("snapshot", "take", "train.py", "--modes", "cpu", "--steps", "0", "--name", "t")
    (forward,) = (tmp_path / "runs/t/cpu/snapshots").glob("*forward*")

    arguments = ("ops.py:Block", "--load", str(forward), "--seeds", "1")
    (bad,) = checked(numdrift, tmp_path, *arguments, *TWO, "bad=cpu,kernel.tanh_backward=bf16", code=1)["modes"]
    results = package.load_run(tmp_path / "runs/ops/a").parameters(0)
    shapes = {value.shape for name, value in results.items() if name in ("grad_x", "output")}
    forward.write_bytes(forward.read_bytes()[:-1])
    damaged = numdrift("check", *arguments, *TWO, "b=cpu", "--force")

    assert taken.returncode == 0, taken.stderr
    assert bad["pair"]["culprits"][0]["op"] == "aten.tanh_backward"
    assert shapes == {(5, 4)}
    assert damaged.returncode == 2
    assert len(damaged.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("ops.py",), "compiles nothing and calls no module"),
        (("ops.py:scaled", "--load", "none.pt"), "there is no file none.pt of inputs"),
        (("ops.py:scaled", "--inputs", "randn(5, 3)"), "does not take these inputs"),
        (("ops.py:scaled", "--inputs", "randn(5, 3), randn(5, 3)"), "raises an error in every mode (RuntimeError"),
        (("ops.py:nothing", "--inputs", "randn(2)"), "returns no tensor"),
        (("ops.py:generated", "--inputs", "randn(2)"), "is a generator"),
        (("ops.py:scald",), "did you mean 'scaled'"),
        (("ops.py", "--inputs", "randn(2)"), "makes its own calls"),
        (("train.py",), "numdrift investigate"),
        ((), "no target is given"),
    ],
)
def test_bad_input_is_one_line(
    numdrift: Numdrift, tmp_path: Path, functions: Path, arguments: tuple[str, ...], words: str
) -> None:
    (tmp_path / "train.py").write_text(
        "import torch\nmodel = torch.nn.Linear(2, 2)\noptimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "model(torch.ones(1, 2)).sum().backward()\noptimizer.step()\n"
    )
    done = numdrift("check", *arguments, *TWO, "b=cpu")
    assert done.returncode == 2, done.stdout + done.stderr
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("trainings_are_forked")
def test_a_failing_assertion_is_the_answer(tmp_path: Path, functions: Path) -> None:
    inputs = (torch.randn(5, 3), torch.randn(3, 4))
    target, out = f"{functions}:scaled", tmp_path / "runs"
    assert_equivalent(target, inputs, ["a=cpu", "b=cpu"], out=out)
    with pytest.raises(AssertionError, match=r"bad computes tanh_backward less exactly .*ops.py:10.*: a proven fault"):
        assert_equivalent(target, inputs, ["a=cpu", "bad=cpu,kernel.tanh_backward=bf16"], out=out)


def test_a_function_that_another_process_cannot_import() -> None:
    with pytest.raises(package.harness.errors.UsageError, match="defined at the top level of a file"):
        package.check(lambda x: x, "randn(2)")
