"""What the trial of a user's kernel finds; that it survives a crash is tested with the command."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from numdrift.harness.errors import NotAvailable
from numdrift.kernels.lab.calls import LabCall
from numdrift.kernels.lab.trial import attempt, tried
from numdrift.kernels.native import library
from numdrift.kernels.native.binding import signature_of
from numdrift.kernels.registry import Kernel, built_in

needs_compiler = pytest.mark.skipif(
    not library.status().startswith("native"), reason=f"no C compiler here: {library.status()}"
)


def written(folder: Path, text: str, name: str = "mine.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_kernel_that_equals_aten_and_one_that_does_not(tmp_path: Path) -> None:
    head = "DTYPES = ('float32',)\ndef tanh_backward(g, y): return g * (1 - y * y)"
    assert tried(written(tmp_path, "import torch\ndef neg(x): return -x\n", "neg.py"), "neg").outcomes == tuple(
        (dtype, "6 of 6 elements equal aten's") for dtype in ("float32", "float64", "bfloat16", "float16")
    )
    ((dtype, outcome),) = tried(written(tmp_path, f"{head} + 1\n"), "tanh_backward").outcomes
    assert (dtype, outcome) == ("float32", "0 of 6 elements equal aten's")


WRONG = {
    "def kernel(g, y): return (g * y)[0]\n": "returned shape [3], but the op returns [2, 3]",
    "def kernel(g, y): return (g * y).double()\n": "returned float64, but the op returns float32",
    "def kernel(g, y): pass\n": "returned 0 tensors, but the op returns 1",
    "def kernel(g, y): return 1 / 0\n": "raised ZeroDivisionError: division by zero",
    "def kernel(g, y): return y.mul_(g)\n": "wrote to its argument 'output', which the op leaves unchanged",
    "raise ValueError('two\\nlines')\n": "line 1 raises ValueError: two lines",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_kernel_is_wrong_usage(text: str, tmp_path: Path) -> None:
    trial = tried(written(tmp_path, text), "tanh_backward")
    assert trial.exit_code == 2 and WRONG[text] in trial.error and "mine.py" in trial.error


@needs_compiler
def test_without_an_op_the_exported_dtypes_are_told(tmp_path: Path) -> None:
    path = written(tmp_path, "void kernel_float64(void) {}\nvoid kernel_float16(void) {}\n", "mine.c")
    assert tried(path, "").dtypes == ("float64", "float16")
    path = written(tmp_path, "void kernel(void) {}\n", "mine.c")
    assert "defines neither kernel_float32" in tried(path, "").error


@pytest.mark.parametrize(
    ("op", "text", "elements"),
    [
        ("mm", "def mm(a, b): return a @ b", 36),
        ("sum", "def sum(x, dim, keepdim=False): return x.sum(dim, keepdim)", 41),
        ("_softmax", "import torch\ndef _softmax(x, dim, wide): return torch.softmax(x, dim)", 1711),
    ],
)
def test_an_op_that_is_not_elementwise_is_tried_on_what_check_makes_for_it(
    op: str, text: str, elements: int, tmp_path: Path
) -> None:
    trial = tried(written(tmp_path, f"DTYPES = ('float32',)\n{text}\n"), op)
    assert trial.error == "" and trial.warnings == ()
    assert trial.outcomes == (("float32", f"{elements} of {elements} elements equal aten's"),)


def test_a_write_is_seen_in_an_op_that_is_not_elementwise(tmp_path: Path) -> None:
    trial = tried(written(tmp_path, "def mm(a, b): return a.add_(1) @ b\n"), "mm")
    assert trial.exit_code == 2 and "wrote to its argument 'self'" in trial.error


@pytest.mark.parametrize(
    ("op", "why"),
    [
        (
            "embedding",
            "embedding does not work element by element; "
            + "numdrift kernels check embedding --kernel embedding=mine.py --captured RUN measures it",
        ),
        ("bernoulli", "bernoulli draws random numbers"),
    ],
)
def test_an_op_that_nothing_is_known_of_is_not_tried(op: str, why: str, tmp_path: Path) -> None:
    trial = tried(written(tmp_path, "def kernel(*values): return values[0]\n"), op)
    assert not trial.error and {outcome for _, outcome in trial.outcomes} == {f"not tried on an input: {why}"}


def test_a_kernel_that_is_nowhere_near_is_warned_of_once(tmp_path: Path) -> None:
    path = written(tmp_path, "def tanh_backward(g, y): return g + 100\n")
    assert tried(path, "tanh_backward").warnings == (
        f"{path}: is this the op's kernel? none of 6 elements is near aten's result",
    )
    # a coarse one is no reason
    path = written(tmp_path, "def tanh_backward(g, y): return (g * (1 - y * y)).bfloat16().to(g.dtype)\n")
    assert tried(path, "tanh_backward").warnings == ()


def test_a_device_that_is_not_there_is_not_tried(tmp_path: Path) -> None:
    text = "DEVICES = ('hpu',)\ndef neg(x): return -x\n"
    trial = tried(written(tmp_path, text), "neg")
    assert not trial.error and all(outcome.startswith("not tried") for _, outcome in trial.outcomes)


ELEMENTWISE = "tanh_backward gelu clamp addcdiv hardtanh_backward elu_backward pow lerp.Scalar mul add"
OTHERS = "mm sum _softmax native_layer_norm dropout isnan where t cumsum sort"


@pytest.mark.parametrize(
    ("op", "elementwise"),
    [*((op, True) for op in ELEMENTWISE.split()), *((op, False) for op in OTHERS.split())],
)
def test_which_ops_are_elementwise(op: str, elementwise: bool) -> None:
    assert signature_of(op).is_elementwise() is elementwise


@pytest.mark.parametrize("op", ["tanh_backward", "add", "addcmul", "gelu_backward", "leaky_relu_backward", "clamp"])
def test_the_example_is_a_call_of_the_op(op: str) -> None:
    signature = signature_of(op)
    args, kwargs = signature.example(torch.float64)
    result = signature.overload(*args, **kwargs)
    assert result.shape == (2, 3) and result.dtype == torch.float64
    assert list(signature.values(args, kwargs)) == [one.name for one in signature.arguments]


def first_of(value: torch.Tensor, *rest: object) -> torch.Tensor:
    return value


def test_an_op_that_a_device_lacks_is_not_available() -> None:
    q = torch.ones(1, 1, 4, 8)
    kernel = Kernel("_scaled_dot_product_efficient_attention", "mine", "", "", f"{__name__}:first_of")
    with pytest.raises(NotAvailable, match="torch has no _scaled_dot_product_efficient_attention on cpu"):
        attempt(kernel, [LabCall((q, q, q, None, False), {})], "cpu")


def test_a_kernel_that_needs_an_op_that_a_device_lacks_is_not_available() -> None:
    op = "_scaled_dot_product_efficient_attention"
    q = torch.ones(1, 1, 4, 8)
    with pytest.raises(NotAvailable, match=f"Could not run 'aten::{op}' with arguments from the 'CPU' backend$"):
        attempt(built_in().kernel(op, "aten"), [LabCall((q, q, q, None, False), {})], "cpu")


def norm_backward(gradient: torch.Tensor, x: torch.Tensor, *rest: object) -> tuple[torch.Tensor, None, None]:
    return gradient + x, None, None


def test_arguments_that_torchs_own_kernel_refuses_on_a_device_are_said() -> None:
    # given statistics in float32 of a norm in bfloat16, as GPUs save them and the CPU does not take them
    x, statistics = torch.ones(4, 8, dtype=torch.bfloat16), torch.ones(4, 1)
    arguments = (x, x, [8], statistics, statistics, None, None, [True, False, False])
    kernel = Kernel("native_layer_norm_backward", "mine", "", "", f"{__name__}:norm_backward")
    # when and then
    with pytest.raises(NotAvailable, match="torch's own native_layer_norm_backward refuses these arguments on cpu"):
        attempt(kernel, [LabCall(arguments, {})], "cpu")
