"""`numdrift kernels build`, and the guide to kernels of one's own, as a user meets them."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from ..conftest import ROOT, Numdrift

GUIDE = (ROOT / "docs" / "guide" / "own-kernel.md").read_text()
MINE_C, MINE_PY = (re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)[0] for language in ("c", "python"))
COMMANDS = [
    line.removeprefix("$ ")
    for block in re.findall(r"```console\n(.*?)```", GUIDE, re.DOTALL)
    for line in block.splitlines()
]


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.c").write_text(MINE_C)
    (tmp_path / "mine.py").write_text(MINE_PY)
    monkeypatch.setenv("NUMDRIFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("CC", raising=False)


@pytest.mark.slow
@pytest.mark.parametrize("line", COMMANDS)
def test_the_commands_of_the_guide_work(line: str, numdrift: Numdrift) -> None:
    done = numdrift(*shlex.split(line)[1:])
    assert done.returncode == 0 and done.stderr == ""
    assert re.search(r"dtypes +float32, float64", done.stdout)
    if "--op" in line:
        assert re.search(r"tried float32 +\d of 6 elements equal aten's", done.stdout)


def test_what_is_built_is_described(numdrift: Numdrift, tmp_path: Path) -> None:
    # when
    done = numdrift("kernels", "build", "mine.c", "--op", "tanh_backward", "--json", "-")
    # then
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["schema"] == 1 and told["path"] == str(tmp_path / "mine.c")
    assert {"-ffp-contract=off", "-O3", "-fno-fast-math"} <= set(told["flags"])
    assert Path(told["library"]).is_relative_to(tmp_path / "cache") and Path(told["compiler"][0]).is_file()
    assert told["expects"].startswith("void kernel_float32(int64_t n, const float *grad_output, ")
    # the formula is that of aten on a CPU with the instruction
    assert told["outcomes"] == [
        ["float32", "6 of 6 elements equal aten's"],
        ["float64", "6 of 6 elements equal aten's"],
    ]


def test_a_second_build_compiles_nothing(numdrift: Numdrift, tmp_path: Path) -> None:
    numdrift("kernels", "build", "mine.c")
    (library,) = (tmp_path / "cache").iterdir()
    made = library.stat().st_mtime_ns
    assert str(library) in numdrift("kernels", "build", "mine.c").stdout
    assert [*(tmp_path / "cache").iterdir()] == [library] and library.stat().st_mtime_ns == made


HEAD = "#include <stdint.h>\n#include <stdlib.h>\n#include <unistd.h>\n"
KERNEL = HEAD + "void kernel_float32(int64_t n, const float *g, const float *y, float *r) {{ {} }}\n"
BAD = {
    "writes to address 0": ("bad.c", KERNEL.format("*(volatile int *)8 = 1;"), "bad.c crashed with SIGSEGV"),
    "leaves": ("bad.c", KERNEL.format("_exit(7);"), "bad.c ended the process with exit code 7"),
    "crashes when loaded": (
        "bad.c",
        HEAD + "__attribute__((constructor)) void f(void) { abort(); }\n",
        "bad.c crashed with SIGABRT",
    ),
    "does not compile": (
        "bad.c",
        "\nflot x;\nint y\n",
        "bad.c does not compile: bad.c:2: unknown type name 'flot'",
    ),
    "kills itself": (
        "bad.py",
        "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n",
        "bad.py crashed with SIGKILL when it was loaded and tried",
    ),
    "leaves when it is loaded": (
        "bad.py",
        "import os\nos._exit(0)\n",
        "bad.py ended the process with exit code 0 (it printed nothing) when it was loaded and tried",
    ),
    "writes to an argument": (
        "bad.py",
        "def kernel(g, y): return y.mul_(g)\n",
        "bad.py wrote to its argument 'output', which the op leaves unchanged",
    ),
    "has the name of another": (
        "fma.py",
        "def kernel(g, y): return g\n",
        "op tanh_backward already has a kernel 'fma'; give fma.py another name",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_kernel_is_one_line(case: str, numdrift: Numdrift, tmp_path: Path) -> None:
    name, text, words = BAD[case]
    (tmp_path / name).write_text(text)
    done = numdrift("kernels", "build", name, "--op", "tanh_backward")
    assert done.returncode == 2 and done.stdout == ""
    assert words in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.c"], "nowhere.c does not exist"),
        (["."], "ends in .c or .py"),
        (["mine.py"], "--op tanh_backward"),
        (["mine.c", "--op", "tanh_backwrd"], "did you mean 'tanh_backward'"),
        (["mine.c", "--op", "mm"], "computes element by element"),
        (["--op", "mm"], "PATH"),
    ],
)
def test_wrong_usage_is_one_line(arguments: list[str], words: str, numdrift: Numdrift) -> None:
    done = numdrift("kernels", "build", *arguments)
    assert done.returncode == 2 and done.stdout == ""
    assert words in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


def test_without_a_compiler_the_remedy_is_named(numdrift: Numdrift, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "/nonexistent")
    done = numdrift("kernels", "build", "mine.c")
    assert done.returncode == 3 and "unset CC" in done.stderr and len(done.stderr.splitlines()) == 1
    assert numdrift("kernels", "build", "mine.py", "--op", "tanh_backward").returncode == 0


def test_the_triton_example_builds_without_a_gpu(numdrift: Numdrift) -> None:
    example = ROOT / "kernels" / "implementations" / "triton_tanh_backward.py"
    done = numdrift("kernels", "build", example, "--op", "tanh_backward")
    assert done.returncode == 0 and re.search(r"tried(?: float32)? +(not tried|6 of 6)", done.stdout), done.stderr


BUILD = ("mine.c", "--op", "tanh_backward")
BUILD_PY = ("mine.py", "--op", "tanh_backward")
CAUSES = {
    "does not compile": (BUILD, "\n\nflot x;\n"),
    "defines neither `void": (BUILD, "static void kernel_float32(void) {}\n"),
    "crashed with SIGSEGV": (BUILD, KERNEL.format("*(volatile int *)8 = 1;")),
    "was not loaded": ((*BUILD_PY, "--timeout", "3"), "while True: pass\n"),
    "a kernel in C computes": (("mine.c", "--op", "mm"), MINE_C),
    "line 4 raises": (BUILD_PY, "\n\n\nunknown\n"),
    "wrote to its argument": (BUILD_PY, "def kernel(g, y): return y.mul_(g)\n"),
    "returned shape": (BUILD_PY, "def kernel(g, y): return g[0]\n"),
    "is this the op's kernel": (BUILD_PY, "def kernel(g, y): return g + 100\n"),
    "op tanh_backward has": (("fma.py", "--op", "tanh_backward"), "def kernel(g, y): return g\n"),
    "it imports factors": (BUILD_PY, "import factors\n"),
    "no C compiler found": (("mine.c",), MINE_C),
    "CC='nocompiler'": (("mine.c",), MINE_C),
}


@pytest.mark.exhaustive
def test_the_guide_quotes_what_is_said(numdrift: Numdrift, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quoted = re.findall(r"^\| (`+) ?(.+?) ?\1 \|", GUIDE.partition("## What can go wrong")[2], re.MULTILINE)
    assert len(quoted) == len(CAUSES)
    for _, said in quoted:
        (cause,) = [cause for cause in CAUSES if said.startswith(cause)]
        arguments, text = CAUSES[cause]
        (tmp_path / arguments[0]).write_text(text)
        with monkeypatch.context() as changed:
            if cause.startswith("CC"):
                changed.setenv("CC", "nocompiler")
            if cause.startswith("no C"):
                changed.setenv("PATH", "")
            done = numdrift("kernels", "build", *arguments)
        assert said.replace("120 s", "3 s") in done.stderr, (said, done.stderr)
        assert len(done.stderr.splitlines()) == 1
        assert done.returncode == (0 if "is this" in said else 3 if re.search("imports|CC=|no C", said) else 2)


@pytest.mark.slow
def test_a_file_that_never_ends_is_given_up(numdrift: Numdrift, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("while True: pass\n")
    done = numdrift("kernels", "build", "bad.py", "--op", "tanh_backward", "--timeout", "3")
    assert done.returncode == 2 and done.stdout == ""
    assert "bad.py was not loaded and tried within 3 s; --timeout SECONDS allows more" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "[default: 120" in numdrift("kernels", "build", "--help").stdout


def test_a_kernel_of_another_op_is_warned_of(numdrift: Numdrift, tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text("print('hello')\ndef kernel(g, y): return g + 100\n")
    done = numdrift("kernels", "build", "odd.py", "--op", "aten::tanh_backward", "--json", "-")
    assert done.returncode == 0
    assert "none of 6 elements is near aten's result" in done.stderr and len(done.stderr.splitlines()) == 1
    told = json.loads(done.stdout)
    assert told["op"] == "tanh_backward" and len(told["warnings"]) == 1


def test_what_is_not_tried_says_how_to_measure_it(numdrift: Numdrift, tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text("def kernel(*values): return values[0]\n")
    done = numdrift("kernels", "build", "odd.py", "--op", "embedding")
    assert done.returncode == 0
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("tried")]
    assert "kernels check embedding --kernel embedding=odd.py --captured RUN" in line


def test_help_has_examples(numdrift: Numdrift) -> None:
    assert re.search(r"Examples:\n +numdrift kernels build mine.c\n", numdrift("kernels", "build", "--help").stdout)
