"""What the trial of a user's kernel finds; that it survives a crash is tested with the command."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from numdrift.kernels.native import library
from numdrift.kernels.native.signature import signature_of
from numdrift.kernels.native.trial import attempt

needs_compiler = pytest.mark.skipif(
    not library.status().startswith("native"), reason=f"no C compiler here: {library.status()}"
)


def written(folder: Path, text: str, name: str = "mine.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_kernel_that_equals_aten_and_one_that_does_not(tmp_path: Path) -> None:
    head = "DTYPES = ('float32',)\ndef tanh_backward(g, y): return g * (1 - y * y)"
    assert attempt(
        written(tmp_path, "import torch\ndef neg(x): return -x\n", "neg.py"), "neg"
    ).outcomes == tuple(
        (dtype, "6 of 6 elements equal aten's") for dtype in ("float32", "float64", "bfloat16", "float16")
    )
    ((dtype, outcome),) = attempt(written(tmp_path, f"{head} + 1\n"), "tanh_backward").outcomes
    assert (dtype, outcome) == ("float32", "0 of 6 elements equal aten's")


WRONG = {
    "def kernel(g, y): return (g * y)[0]\n": "[3] float32 for float32; aten.tanh_backward returns [2, 3] float32",
    "def kernel(g, y): return (g * y).double()\n": "returned [2, 3] float64 for float32",
    "def kernel(g, y): pass\n": "returned NoneType",
    "def kernel(g, y): return 1 / 0\n": "raised ZeroDivisionError when it was called: division by zero",
    "raise ValueError('two\\nlines')\n": "line 1 raises ValueError: two lines",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_kernel_is_wrong_usage(text: str, tmp_path: Path) -> None:
    trial = attempt(written(tmp_path, text), "tanh_backward")
    assert trial.exit_code == 2 and WRONG[text] in trial.error and "mine.py" in trial.error


@needs_compiler
def test_without_an_op_the_exported_dtypes_are_told(tmp_path: Path) -> None:
    path = written(tmp_path, "void kernel_float64(void) {}\nvoid kernel_float16(void) {}\n", "mine.c")
    assert attempt(path, "").dtypes == ("float64", "float16")
    path = written(tmp_path, "void kernel(void) {}\n", "mine.c")
    assert "defines no kernel_float32" in attempt(path, "").error


def test_an_op_without_a_general_input_is_not_tried(tmp_path: Path) -> None:
    trial = attempt(written(tmp_path, "def mm(a, b): return a @ b\n"), "mm")
    assert not trial.error and all(outcome.startswith("not tried") for _, outcome in trial.outcomes)


def test_a_device_that_is_not_there_is_not_tried(tmp_path: Path) -> None:
    text = "DEVICES = ('hpu',)\ndef neg(x): return -x\n"
    trial = attempt(written(tmp_path, text), "neg")
    assert not trial.error and all(outcome.startswith("not tried") for _, outcome in trial.outcomes)


ELEMENTWISE = "tanh_backward gelu clamp addcdiv hardtanh_backward elu_backward pow lerp.Scalar mul add"
OTHERS = "mm sum _softmax native_layer_norm dropout isnan where t cumsum sort"


@pytest.mark.parametrize(
    ("op", "elementwise"),
    [*((op, True) for op in ELEMENTWISE.split()), *((op, False) for op in OTHERS.split())],
)
def test_which_ops_are_elementwise(op: str, elementwise: bool) -> None:
    assert signature_of(op).is_elementwise() is elementwise


@pytest.mark.parametrize(
    "op", ["tanh_backward", "add", "addcmul", "gelu_backward", "leaky_relu_backward", "clamp"]
)
def test_the_example_is_a_call_of_the_op(op: str) -> None:
    signature = signature_of(op)
    args, kwargs = signature.example(torch.float64)
    result = signature.overload(*args, **kwargs)
    assert result.shape == (2, 3) and result.dtype == torch.float64
    assert list(signature.values(args, kwargs)) == [one.name for one in signature.arguments]
