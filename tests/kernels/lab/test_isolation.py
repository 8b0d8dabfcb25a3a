from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
import torch

from numdrift.harness.errors import KernelError, NotAvailable, UsageError
from numdrift.kernels.lab.calls import LabCall
from numdrift.kernels.lab.isolation import IsolatedKernel

X, Y = torch.arange(6.0).reshape(2, 3), torch.full((2, 3), 0.5)
CALL = LabCall((X, Y), {})

GOOD = "def mul(x, y):\n    print('hello')\n    return x * y\n"
C = """
#include <stdint.h>
void kernel_float32(int64_t n, const float *x, const float *y, float *result) {
    for (int64_t i = 0; i < n; i++) result[i] = x[i] * y[i];
}
"""
SEGFAULT = "import ctypes\ndef mul(x, y):\n    if x[0, 0] == 0: ctypes.string_at(0)\n    return x * y\n"
EXIT = "import os\ndef mul(x, y):\n    os._exit(5)\n"
HANG = "import time\ndef mul(x, y):\n    time.sleep(600)\n"

pytestmark = pytest.mark.usefixtures("trainings_are_forked")
needs_compiler = pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")


def source(folder: Path, text: str, suffix: str = ".py") -> Path:
    path = folder / f"mine{suffix}"
    path.write_text(text)
    return path


def test_results_come_back_and_the_process_serves_again(tmp_path: Path) -> None:
    with IsolatedKernel("mul", source(tmp_path, GOOD)) as kernel:
        for _ in range(2):
            results = kernel.run([CALL, LabCall((X.t(), Y.t()), {})])
            assert [one.name for result in results for one in result] == ["", ""]
            assert torch.equal(results[0][0].tensors[0], X * Y)
            assert torch.equal(results[1][0].tensors[0], (X * Y).t())


@needs_compiler
def test_c_is_compiled_and_called(tmp_path: Path) -> None:
    with IsolatedKernel("mul", source(tmp_path, C, ".c")) as kernel:
        assert torch.equal(kernel.run([CALL])[0][0].tensors[0], X * Y)
        with pytest.raises(NotAvailable, match="it computes float32 on"):
            kernel.run([LabCall((X.double(), Y.double()), {})])


def test_a_crash_is_an_error_and_the_next_call_starts_anew(tmp_path: Path) -> None:
    with IsolatedKernel("mul", source(tmp_path, SEGFAULT)) as kernel:
        with pytest.raises(KernelError, match="crashed with SIGSEGV"):
            kernel.run([CALL])
        assert torch.equal(kernel.run([LabCall((Y, X), {})])[0][0].tensors[0], X * Y)


def test_an_exit_is_an_error(tmp_path: Path) -> None:
    with (
        IsolatedKernel("mul", source(tmp_path, EXIT)) as kernel,
        pytest.raises(KernelError, match="ended its process with exit code 5"),
    ):
        kernel.run([CALL])


@pytest.mark.slow
def test_a_kernel_that_never_returns_is_stopped(tmp_path: Path) -> None:
    with IsolatedKernel("mul", source(tmp_path, HANG), seconds=5) as kernel:
        with pytest.raises(KernelError, match="did not return within 5 s; --timeout SECONDS allows more"):
            kernel.run([CALL])
        # and it is not waited for again
        before = time.monotonic()
        with pytest.raises(KernelError, match="did not return within 5 s"):
            kernel.run([CALL])
        assert time.monotonic() - before < 1


IMPORTS = {
    "import os\nos._exit(0)\n": "ended its process with exit code 0 when it was loaded",
    "import ctypes\nctypes.string_at(0)\n": "crashed with SIGSEGV when it was loaded",
    "while True: pass\n": "was not loaded within 4 s; --timeout SECONDS allows more",
    "input()\n": "line 1 raises EOFError",
}


@pytest.mark.slow
@pytest.mark.parametrize("text", IMPORTS)
def test_what_happens_when_a_file_is_loaded_is_told_as_that(text: str, tmp_path: Path) -> None:
    path = source(tmp_path, text)
    with (
        IsolatedKernel("mul", path, seconds=4 if "while" in text else 120) as kernel,
        pytest.raises(UsageError) as raised,
    ):
        kernel.load()
    assert str(path) in str(raised.value) and IMPORTS[text] in str(raised.value)


@pytest.mark.parametrize(
    ("text", "suffix", "error", "why"),
    [
        (
            "def mul(x, y):\n    return 1 / 0\n",
            ".py",
            KernelError,
            "raised ZeroDivisionError: division by zero",
        ),
        ("def mul(x, y):\n    return x\n\nraise OSError('gone')", ".py", UsageError, "OSError: gone"),
        ("def mul(x, y:\n", ".py", UsageError, "mine.py:1"),
        ("other = 1\n", ".py", UsageError, "mul"),
        ("import no_such_module\n", ".py", NotAvailable, "no_such_module"),
    ],
)
def test_what_is_wrong_with_a_file_is_told(
    text: str, suffix: str, error: type[Exception], why: str, tmp_path: Path
) -> None:
    with IsolatedKernel("mul", source(tmp_path, text, suffix)) as kernel, pytest.raises(error, match=why):
        kernel.run([CALL])


@needs_compiler
def test_the_compilers_first_error_is_told(tmp_path: Path) -> None:
    path = source(tmp_path, C.replace("y[i];", "y[i]"), ".c")
    with IsolatedKernel("mul", path) as kernel, pytest.raises(UsageError, match=r"mine\.c.*expected"):
        kernel.run([CALL])
