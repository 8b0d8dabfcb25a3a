"""Kernels that a user brings: what works, and what is said about what does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from numdrift.harness.errors import CompileError, KernelError, KernelNotFound, NotAvailable, UsageError
from numdrift.harness.records.modes.mode_registry import DEVICES_GROUP, OWN, VENDORS
from numdrift.kernels.native import library
from numdrift.kernels.native.binding import signature_of
from numdrift.kernels.registry import ANY_DEVICE
from numdrift.kernels.user import DEVICES, PLUGINS, user_kernel

aten = torch.ops.aten
needs_compiler = pytest.mark.skipif(
    not library.status().startswith("native"), reason=f"no C compiler here: {library.status()}"
)

C = """#include <math.h>
#include <stdint.h>

#define KERNEL(T, dtype, fma)                                                                     \\
    void kernel_##dtype(int64_t n, const T *grad_output, const T *output, T *result) {            \\
        for (int64_t i = 0; i < n; i++) result[i] = grad_output[i] * fma(-output[i], output[i], 1); \\
    }
KERNEL(float, float32, fmaf)
KERNEL(double, float64, fma)
"""

PYTHON = """import sys

sys.counted_loads = getattr(sys, "counted_loads", 0) + 1
DESCRIPTION = "the derivative in two factors"
FORMULA = "g * ((1 - y) * (1 + y))"
DTYPES = ["float32", "float64"]
DEVICES = ("cpu",)
SOURCE = "a textbook"

def tanh_backward(grad_output, output):
    return grad_output * ((1 - output) * (1 + output))
"""


def written(folder: Path, text: str, name: str = "mine.c") -> Path:
    path = folder / name
    path.write_text(text)
    return path


@needs_compiler
def test_a_kernel_in_c(tmp_path: Path) -> None:
    # given
    kernel = user_kernel("tanh_backward", written(tmp_path, C))
    # then its record says what the file holds
    assert (kernel.op, kernel.name, kernel.dtypes) == ("tanh_backward", "mine", ("float32", "float64"))
    assert kernel.native and kernel.needs_compiler and kernel.path == str(tmp_path / "mine.c")
    assert str(tmp_path) in kernel.source and "SHA-256" in kernel.source
    # and its function is called as the op is
    for dtype in (torch.float32, torch.float64):
        g, y = torch.randn(4, 1, dtype=dtype), torch.randn(3, 5, dtype=dtype).tanh()[::2, ::2].reshape(-1)
        wide = torch.broadcast_tensors(g, y)
        function = kernel.load()
        assert torch.equal(function(g, y), wide[0] * fused(wide[1]))
        assert torch.equal(function(grad_output=g, output=y), function(g, y))
    assert function(torch.ones(2, 0), torch.ones(1)).shape == (2, 0)


def fused(y: torch.Tensor) -> torch.Tensor:
    result = library.elementwise("fma", [-y, y, torch.ones_like(y)])
    assert result is not None
    return result


@needs_compiler
def test_numbers_come_before_tensors_in_the_order_of_the_schema(tmp_path: Path) -> None:
    text = """#include <stdint.h>
#include <string.h>
void kernel_float32(int64_t n, double value, const float *self, const float *tensor1, const float *tensor2,
                    float *result) {
    for (int64_t i = 0; i < n; i++) result[i] = self[i] + (float)value * tensor1[i] * tensor2[i];
}"""
    function = user_kernel("addcmul", written(tmp_path, text)).load()
    one, two, three = torch.full((3,), 1.0), torch.full((3,), 2.0), torch.full((), 3.0, dtype=torch.float64)
    assert function(one, two, three, value=10).tolist() == [61.0] * 3
    assert function(one, two, three).tolist() == [7.0] * 3
    gelu = """#include <stdint.h>
#include <string.h>
void kernel_float64(int64_t n, const char *approximate, const double *self, double *result) {
    for (int64_t i = 0; i < n; i++) result[i] = strcmp(approximate, "tanh") ? 1 : 2;
}"""
    function = user_kernel("gelu", written(tmp_path, gelu, "gelu.c")).load()
    wide = torch.zeros(1, dtype=torch.float64)
    assert function(wide).tolist() == [1.0] and function(wide, approximate="tanh").tolist() == [2.0]
    clamp = """#include <math.h>
#include <stdint.h>
void kernel_float32(int64_t n, double min, double max, const float *self, float *result) {
    for (int64_t i = 0; i < n; i++) result[i] = isnan(min) + 2 * isnan(max);
}"""
    function = user_kernel("clamp", written(tmp_path, clamp, "clamp.c")).load()
    assert [float(function(one, *limits)[0]) for limits in [(0.5,), (None, 2), (0, 1)]] == [2.0, 1.0, 0.0]


@needs_compiler
def test_another_overload_reaches_the_same_kernel(tmp_path: Path) -> None:
    text = """#include <stdint.h>
void kernel_float32(int64_t n, const float *self, const float *end, const float *weight, float *result) {
    for (int64_t i = 0; i < n; i++) result[i] = 100 * self[i] + 10 * end[i] + weight[i];
}"""
    kernel = user_kernel("lerp", written(tmp_path, text))
    one = torch.ones(2)
    assert kernel.load()(one, one * 2, one * 3).tolist() == [123.0] * 2
    assert kernel.load("lerp.Scalar")(one, one * 2, 3).tolist() == [123.0] * 2


@needs_compiler
def test_sixteen_bits_where_the_file_has_them(tmp_path: Path) -> None:
    text = """#include <stdint.h>
void kernel_bfloat16(int64_t n, const uint16_t *self, uint16_t *result) {
    for (int64_t i = 0; i < n; i++) result[i] = self[i] ^ 0x8000;
}"""
    kernel = user_kernel("neg", written(tmp_path, text))
    assert kernel.dtypes == ("bfloat16",)
    assert kernel.load()(torch.tensor([1.5, -2.0], dtype=torch.bfloat16)).tolist() == [-1.5, 2.0]
    with pytest.raises(KernelError, match=r"kernel neg=mine computes bfloat16, but was called with float32"):
        kernel.load()(torch.ones(1))


@needs_compiler
def test_what_a_kernel_in_c_cannot_take(tmp_path: Path) -> None:
    function = user_kernel("tanh_backward", written(tmp_path, C)).load()
    ones = torch.ones(2)
    with pytest.raises(KernelError, match=r"computes float32, float64, but was called with float16"):
        function(ones.half(), ones.half())
    with pytest.raises(KernelError, match="float32 and float64"):
        function(ones, ones.double())
    with pytest.raises(KernelError, match="do not match aten"):
        function(ones)
    with pytest.raises(KernelError, match="cannot be traced"), torch._subclasses.FakeTensorMode():
        function(torch.ones(2), torch.ones(2))
    with pytest.raises(KernelError, match="no values"):
        function(ones.to("meta"), ones.to("meta"))


@pytest.mark.slow
@needs_compiler
def test_lazy_tensors_are_computed_and_the_result_is_lazy(tmp_path: Path) -> None:
    path = written(tmp_path, C)
    code = f"""
import torch, torch._lazy.ts_backend as backend
from pathlib import Path
backend.init()
from numdrift.kernels.registry import ANY_DEVICE
from numdrift.kernels.user import DEVICES, PLUGINS, user_kernel
function = user_kernel("tanh_backward", Path({str(path)!r})).load()
g, y = torch.tensor([3.0], device="lazy"), torch.tensor([0.5, 0.25], device="lazy")
result = function(g * 2, y)
print(result.device.type, result.cpu().tolist())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "lazy [4.5, 5.625]\n"


def test_a_kernel_in_python(tmp_path: Path) -> None:
    kernel = user_kernel("tanh_backward", written(tmp_path, PYTHON, "factors.py"))
    assert (kernel.name, kernel.description) == ("factors", "the derivative in two factors")
    assert (kernel.formula, kernel.source) == ("g * ((1 - y) * (1 + y))", "a textbook")
    assert (kernel.dtypes, kernel.devices) == (("float32", "float64"), ("cpu",))
    assert kernel.load()(torch.tensor([2.0]), torch.tensor([0.5])).tolist() == [1.5]
    assert [path.name for path in tmp_path.iterdir()] == ["factors.py"], "nothing is left beside the file"


def test_a_python_file_says_nothing_but_its_function(tmp_path: Path) -> None:
    kernel = user_kernel("mm", written(tmp_path, "def kernel(a, b): return a + b\n", "own.py"))
    assert kernel.dtypes == ("float32", "float64", "bfloat16", "float16") and kernel.devices == ("any",)
    assert "own.py" in kernel.source and kernel.load()(1, 2) == 3


def test_a_python_file_is_executed_once_as_long_as_it_stays_the_same(tmp_path: Path) -> None:
    path = written(tmp_path, PYTHON, "counted.py")
    (tmp_path / "link.py").symlink_to(path)
    before = getattr(sys, "counted_loads", 0)
    for name in ("counted.py", "counted.py", "link.py"):
        user_kernel("tanh_backward", tmp_path / name).load()
    assert getattr(sys, "counted_loads", 0) == before + 1
    # when it changes, in the same second and to the same length
    stat = path.stat()
    path.write_text(PYTHON.replace("(1 + output)", "(2 + output)"))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert user_kernel("tanh_backward", path).load()(1.0, 0.0) == 2.0
    assert getattr(sys, "counted_loads", 0) == before + 2


def test_a_relative_path_and_one_with_a_link_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, PYTHON, "factors.py")
    (tmp_path / "my own.py").symlink_to("factors.py")
    monkeypatch.chdir(tmp_path)
    kernel = user_kernel("tanh_backward", Path("my own.py"))
    monkeypatch.chdir("/")
    assert kernel.name == "my own" and kernel.load()(1.0, 0.0) == 1.0


def test_the_python_head_has_keywords_and_defaults() -> None:
    assert signature_of("gelu").in_python() == "def gelu(self, *, approximate='none'):"
    assert signature_of("lerp.Scalar").in_python() == "def lerp(self, end, weight):"


BAD_PYTHON = {
    "def tanh_backward(g, y):\n    return g +\n": (CompileError, "bad.py:2: invalid syntax"),
    "\nunknown\n": (UsageError, "line 2 raises NameError: name 'unknown' is not defined"),
    "import sys\nsys.exit(3)\n": (UsageError, "line 2 raises SystemExit: 3"),
    "import not_there_at_all\n": (
        NotAvailable,
        "imports not_there_at_all, which is neither installed nor in the same folder",
    ),
    "def other(g, y): pass\n": (UsageError, "it needs `def tanh_backward(grad_output, output):`"),
    "tanh_backward = 3\n": (UsageError, "neither tanh_backward nor kernel"),
    "def tanh_backward(g): pass\n": (UsageError, "calls it as `def tanh_backward(grad_output, output):`"),
    "DTYPES = ('float23',)\ndef kernel(g, y): pass\n": (UsageError, "did you mean 'float32'"),
    "DEVICES = 'cuda'\ndef kernel(g, y): pass\n": (UsageError, "DEVICES is 'cuda'; it must be a tuple"),
    "FORMULA = 3\ndef kernel(g, y): pass\n": (UsageError, "FORMULA is 3; it must be a string"),
    "\0": (UsageError, "null bytes"),
}


@pytest.mark.parametrize("text", BAD_PYTHON)
def test_what_is_wrong_with_a_python_file_is_one_line(text: str, tmp_path: Path) -> None:
    kind, words = BAD_PYTHON[text]
    path = written(tmp_path, text, "bad.py")
    with pytest.raises(kind) as caught:
        user_kernel("tanh_backward", path)
    assert words in str(caught.value) and str(path) in str(caught.value) and "\n" not in str(caught.value)


@needs_compiler
@pytest.mark.parametrize(
    ("op", "text", "words"),
    [
        (
            "tanh_backward",
            "int other;\n",
            "`void kernel_float32(int64_t n, const float *grad_output, const float *",
        ),
        (
            "addcmul",
            "int other;\n",
            "kernel_float32(int64_t n, double value, const float *self, const float *",
        ),
        ("tanh_backward", "static void kernel_float32(void) {}\n", "defines neither `void kernel_float32("),
        (
            "tanh_backward",
            "void kernel_float32(flot x) {}\n",
            "does not compile: mine.c:1: unknown type name",
        ),
        ("mm", C, "aten.mm does not; write it in Python: `def mm(self, mat2):`"),
        ("_softmax", C, "computes element by element"),
        ("native_dropout", C, "computes element by element"),
    ],
)
def test_what_is_wrong_with_a_c_file_is_one_line(op: str, text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        user_kernel(op, written(tmp_path, text))
    assert words in str(caught.value) and str(tmp_path / "mine.c") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_op_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(KernelNotFound, match="did you mean 'tanh_backward'"):
        user_kernel("tanh_backwrd", written(tmp_path, PYTHON, "mine.py"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nowhere.c", "does not exist"),
        ("notes.txt", "ends in .c or .py"),
        ("folder.py", "is not a file"),
        ("no", ".py"),
    ],
)
def test_a_path_that_is_no_kernel(name: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("notes")
    (tmp_path / "folder.py").mkdir()
    with pytest.raises(UsageError) as caught:
        user_kernel("tanh_backward", tmp_path / name)
    assert words in str(caught.value) and name in str(caught.value)


def test_without_a_compiler_a_kernel_in_c_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "/nonexistent")
    with pytest.raises(NotAvailable, match=r"CC='/nonexistent' names no program \(unset CC"):
        user_kernel("tanh_backward", written(tmp_path, C))


def test_the_triton_example_says_what_it_lacks() -> None:
    from numdrift.kernels.implementations import triton_tanh_backward as example

    kernel = user_kernel("tanh_backward", Path(example.__file__))
    assert kernel.devices == ("cuda",) and kernel.formula == "g * fma(-y, y, 1)"
    ones = torch.ones(3)
    with pytest.raises(NotAvailable, match=r"triton is not installed|needs a GPU"):
        kernel.load()(ones, ones)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="Triton kernels run on a GPU")
def test_the_triton_example_equals_the_c_kernel() -> None:
    from numdrift.kernels.implementations.triton_tanh_backward import tanh_backward

    for dtype in (torch.float32, torch.float64):
        g, y = torch.randn(700, 1, dtype=dtype), (4 * torch.randn(300, dtype=dtype)).tanh()
        wide = torch.broadcast_tensors(g, y)
        assert torch.equal(tanh_backward(g.cuda(), y.cuda()).cpu(), wide[0] * fused(wide[1]))


def test_a_kernel_may_name_the_device_of_every_mode() -> None:
    assert {entry.device for entry in OWN} | set(VENDORS) == set(DEVICES) - set(ANY_DEVICE)
    assert PLUGINS == DEVICES_GROUP
