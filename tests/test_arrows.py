"""The rules on who may import whom, compared with every import that the sources contain.

A new folder of `harness/` adds its name to LEVELS in tests/levels.py. A rule beyond the order of the levels is a row of
ARROWS. Imports inside functions and under TYPE_CHECKING count, and so does `importlib.import_module("...")` with a
literal name.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from numdrift.harness.records.modes.mode_registry import VENDORS

from . import draw_levels
from .levels import (
    GUEST_LEVELS,
    LEVELS,
    ROOT,
    Import,
    circles_of_rooms,
    imports,
    levels_in,
    named_modules,
    nodes_of,
    upward,
)

EVERYTHING = ""
STANDARD_LIBRARY = tuple(sorted(sys.stdlib_module_names))


def package_of(level: str) -> str:
    return f"numdrift.{level}" if level in ("kernels", "plots", "reproducers") else f"numdrift.harness.{level}"


GUESTS = tuple(package_of(level) for level in GUEST_LEVELS)


@dataclass(frozen=True, slots=True)
class Arrow:
    """The files under `of` (without those under `spared`) import nothing of `never`, except `but`.

    With `named` they name no such module in a string either.
    """

    name: str
    of: tuple[str, ...]
    never: tuple[str, ...]
    but: tuple[str, ...] = ()
    spared: tuple[str, ...] = ()
    named: bool = False


def harness(*parts: str) -> tuple[str, ...]:
    return tuple(f"numdrift.harness.{part}" for part in parts)


ARROWS = [
    Arrow(
        "guests of the training process import torch, the standard library and each other",
        of=(
            *(f"harness/{level}" for level in GUEST_LEVELS if level not in ("kernels", "errors", "compiler", "search")),
            "harness/errors.py",
            "harness/compiler.py",
            "harness/search.py",
        ),
        never=(EVERYTHING,),
        but=("torch", *GUESTS, *STANDARD_LIBRARY),
        spared=("harness/backends/xla",),
    ),
    Arrow(
        "the xla mode imports torch_xla besides",
        of=("harness/backends/xla",),
        never=(EVERYTHING,),
        but=("torch", "torch_xla", *GUESTS, *STANDARD_LIBRARY),
    ),
    Arrow(
        "observers name no backend: a mode hands over what they need of it",
        of=("harness/observers",),
        never=harness("backends"),
        named=True,
    ),
    Arrow(
        "records are read without torch",
        of=("harness/records",),
        never=(EVERYTHING,),
        but=(
            "numdrift.harness.errors",
            "numdrift.harness.records",
            "numdrift.harness.hooks.mode_protocol",  # a name for the type checker alone
            *STANDARD_LIBRARY,
        ),
    ),
    Arrow(
        "judging runs nothing and draws nothing",
        of=(
            "harness/investigate/judging",
            "harness/investigate/evidence",
        ),
        never=(*harness("launch"), "numdrift.plots", "torch"),
    ),
    Arrow(
        "the localizer starts no run and reads none",
        of=("harness/localize",),
        never=harness("launch", "investigate", "runs"),
    ),
    Arrow(
        "drift compares, it runs and draws nothing",
        of=("harness/drift",),
        never=("torch",),
    ),
    Arrow(
        "kernels stand alone",
        of=("kernels",),
        never=("numdrift.harness", "numdrift.plots"),
        but=harness("compiler", "errors", "torch_private"),
    ),
    Arrow(
        "kernels run in the training process: torch, the standard library and each other",
        of=("kernels",),
        never=(EVERYTHING,),
        but=("torch", *GUESTS, *STANDARD_LIBRARY),
        spared=("kernels/lab", "kernels/implementations/triton_tanh_backward.py"),
    ),
    Arrow(
        "nothing that runs in the training process imports the lab",
        of=(
            *(f"harness/{level}" for level in ("tape", "hooks", "script", "backends", "observers", "recorder")),
            "kernels/swaps",
            "kernels/implementations",
            "kernels/catalogue",
        ),
        never=("numdrift.kernels.lab",),
    ),
    Arrow(
        "plots draw numbers",
        of=("plots",),
        never=("numdrift.harness", "numdrift.kernels", "torch"),
        but=harness("drift"),
    ),
    Arrow("reproducers know nothing of numdrift", of=("reproducers",), never=("numdrift",)),
]


def sources(root: Path, of: tuple[str, ...], spared: tuple[str, ...] = ()) -> Iterator[Path]:
    """The Python files under these folders and files, without the spared ones."""
    without = [root / path for path in spared]
    for start in (root / path for path in of):
        for file in [start] if start.is_file() else sorted(start.rglob("*.py")):
            if not any(file.is_relative_to(one) for one in without):
                yield file


def belongs(target: str, names: tuple[str, ...]) -> bool:
    return any(name == EVERYTHING or target == name or target.startswith(f"{name}.") for name in names)


def broken(arrow: Arrow, root: Path) -> list[str]:
    """What breaks the arrow, as `file:line: imports target`."""
    return [
        f"{one.file}:{one.line}: imports {one.target}, but {arrow.name}"
        for file in sources(root, arrow.of, arrow.spared)
        for one in (*imports(root, file), *(named_modules(root, file) if arrow.named else ()))
        if belongs(one.target, arrow.never) and not belongs(one.target, arrow.but)
    ]


def private_names(root: Path, file: Path) -> Iterator[Import]:
    """Every dotted torch name with a private part that a file imports or mentions in its code."""
    found = list(imports(root, file))
    for node in nodes_of(file):
        if isinstance(node, ast.Attribute) and first_name(node) == "torch":
            found.append(Import(file.relative_to(root).as_posix(), node.lineno, ast.unparse(node)))
    for one in found:
        first, *rest = one.target.split(".")
        if first == "torch" and any(part.startswith("_") and not part.endswith("__") for part in rest):
            yield one


def first_name(node: ast.expr) -> str | None:
    """The name that an expression begins with: `torch` of `torch.zeros(3).grad`."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def private_names_beyond(allowed: str, root: Path, of: tuple[str, ...], spared: tuple[str, ...]) -> list[str]:
    return [
        f"{one.file}:{one.line}: {one.target}"
        for file in sources(root, of, spared)
        for one in private_names(root, file)
        if not (allowed and belongs(one.target, (allowed,)))
    ]


def test_every_folder_has_a_level_and_no_import_points_up() -> None:
    assert levels_in(ROOT) == set(LEVELS)
    assert not upward(ROOT), "\n" + "\n".join(upward(ROOT))


def test_a_folder_without_level_and_an_upward_import_would_be_seen(tmp_path: Path) -> None:
    # given
    for file, text in {
        "harness/drift/one.py": "from ..cli import program",
        "harness/cli/two.py": "from ..drift import one\nfrom ..unheard import of",
        "harness/unheard/of.py": "",
        "kernels/three.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from numdrift.harness.cli import two",
    }.items():
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    # then
    assert "unheard" in levels_in(tmp_path)
    assert sorted(upward(tmp_path)) == [
        "harness/cli/two.py:2: cli imports numdrift.harness.unheard.of, which is above it",
        "harness/drift/one.py:1: drift imports numdrift.harness.cli.program, which is above it",
    ]


def test_the_picture_of_the_levels_is_of_this_tree() -> None:
    drawn_again = "draw it again: python -m tests.draw_levels"
    assert draw_levels.drawn(draw_levels.PICTURE) == draw_levels.arrows_in(ROOT), drawn_again


@pytest.mark.parametrize("arrow", ARROWS, ids=lambda arrow: arrow.name)
def test_arrow_holds(arrow: Arrow) -> None:
    without_files = [place for place in (*arrow.of, *arrow.spared) if not any(sources(ROOT, (place,)))]
    assert not without_files, "the arrow names no file there, so it checks nothing"
    assert not broken(arrow, ROOT), "\n" + "\n".join(broken(arrow, ROOT))


@pytest.mark.parametrize("arrow", ARROWS, ids=lambda arrow: arrow.name)
def test_arrow_would_be_seen_to_break(arrow: Arrow, tmp_path: Path) -> None:
    # given a file under each place that the arrow starts from, which imports what it must not
    forbidden = [name or "numpy" for name in arrow.never]
    files = [tmp_path / place if place.endswith(".py") else tmp_path / place / "a.py" for place in arrow.of]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n" + "".join(f"import {name}.inner\n" for name in forbidden))
    # when
    found = broken(arrow, tmp_path)
    # then each import is named by its file and line
    expected = {
        f"{file.relative_to(tmp_path).as_posix()}:{line}: imports {name}.inner, but {arrow.name}"
        for file in files
        for line, name in enumerate(forbidden, 2)
    }
    assert set(found) == expected


def test_a_backend_that_an_observer_names_in_any_way_would_be_seen(tmp_path: Path) -> None:
    # given one line a form, and lines that look similar
    (tmp_path / "harness" / "observers" / "profile").mkdir(parents=True)
    (tmp_path / "harness" / "observers" / "profile" / "a.py").write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n"
        "    from ...backends.lazy import mode\n"
        "def late() -> None:\n"
        "    from numdrift.harness.backends import one_node\n"
        "STEPS = 'numdrift.harness.backends.compiled.node_kernels'\n"
        "MODE = 'numdrift.harness.backends.eager.mode:EagerMode'\n"
        "from ...hooks import backend_adapter\n"
        "TEXT = 'see numdrift.harness.backends.eager'\n"
    )
    # when
    found = [line for arrow in ARROWS if arrow.named for line in broken(arrow, tmp_path)]
    # then
    assert sorted(int(line.split(":")[1]) for line in found) == [3, 5, 6, 7]


def test_rooms_form_no_circle() -> None:
    assert not circles_of_rooms(ROOT), "\n" + "\n".join(circles_of_rooms(ROOT))


def test_a_circle_of_rooms_would_be_seen(tmp_path: Path) -> None:
    # given a circle of two rooms with the files beside them, a circle within a room, and arrows in one direction
    for file, text in {
        "harness/graphs/page/one.py": "from ..diff import two",
        "harness/graphs/diff/two.py": "def late() -> None:\n    from .. import three",
        "harness/graphs/three.py": "from .page.one import four",
        "harness/graphs/drawing/five.py": "from ..three import six",
        "harness/runs/a/b/seven.py": "from ..c import eight",
        "harness/runs/a/c/eight.py": "from ..b.seven import nine",
        "harness/runs/a/c/typed.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ...d import ten",
        "harness/runs/d/ten.py": "from ..a import c",
    }.items():
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    # then
    assert circles_of_rooms(tmp_path) == [
        "harness/graphs/three.py:1: . imports page, which imports .",
        "harness/graphs/diff/two.py:2: diff imports ., which imports diff",
        "harness/graphs/page/one.py:1: page imports diff, which imports page",
        "harness/runs/a/b/seven.py:1: b imports c, which imports b",
        "harness/runs/a/c/eight.py:1: c imports b, which imports c",
    ]


def test_every_form_of_import_is_resolved(tmp_path: Path) -> None:
    # given
    file = tmp_path / "harness" / "runs" / "one.py"
    file.parent.mkdir(parents=True)
    file.write_text(
        "import os.path as p, json\n"
        "from ..batch import plan\n"
        "from . import find\n"
        "from .journal import Journal\n"
        "def late() -> None:\n"
        "    from numdrift.plots import curve\n"
        "importlib.import_module('numdrift.kernels')\n"
    )
    # when
    found = [(one.line, one.target) for one in imports(tmp_path, file)]
    # then
    assert sorted(found) == [
        (1, "json"),
        (1, "os.path"),
        (2, "numdrift.harness.batch.plan"),
        (3, "numdrift.harness.runs.find"),
        (4, "numdrift.harness.runs.journal.Journal"),
        (6, "numdrift.plots.curve"),
        (7, "numdrift.kernels"),
    ]


PRIVATE = ("harness/torch_private",)


def test_private_torch_names_are_in_one_place() -> None:
    found = private_names_beyond("", ROOT, ("harness", "kernels", "plots"), PRIVATE)
    assert not found, "these belong into harness/torch_private:\n" + "\n".join(found)


def test_reproducers_use_no_private_torch_name_but_lazy() -> None:
    found = private_names_beyond("torch._lazy", ROOT, ("reproducers",), ())
    assert not found, "\n" + "\n".join(found)


def test_private_torch_names_would_be_seen(tmp_path: Path) -> None:
    # given one line a form, and public names that look similar
    lines = [
        "from torch._dynamo import reset",
        "import torch._lazy.ts_backend",
        "from torch import _C",
        "from torch.utils._python_dispatch import TorchDispatchMode",
        "x = torch._C._lazy",
        "y = torch.nn.Module.__call__, torch.__version__, self._torch",
    ]
    (tmp_path / "plots").mkdir()
    (tmp_path / "plots" / "a.py").write_text("\n".join(lines))
    # when
    found = private_names_beyond("", tmp_path, ("plots",), ())
    # then
    assert {int(one.split(":")[1]) for one in found} == {1, 2, 3, 4, 5}


HOSTS = tuple(f"harness/{level}" for level in LEVELS if level not in GUEST_LEVELS and level != "plots")
DEVICES = re.compile(rf"({'|'.join((*VENDORS, 'privateuseone'))})(:\d+)?")


def devices_named(root: Path, folders: Sequence[str]) -> list[str]:
    """The places whose code names an accelerator: as a whole string, or as a module of torch's."""
    found = []
    for file in (file for folder in folders for file in sorted((root / folder).rglob("*.py"))):
        for node in nodes_of(file):
            text: object
            if isinstance(node, ast.Constant):
                text = node.value
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch":
                text = node.attr
            else:
                continue
            if isinstance(text, str) and DEVICES.fullmatch(text):
                found.append(f"{file.relative_to(root)}:{node.lineno}: {ast.unparse(node)}")
    return found


def test_no_file_above_the_border_names_a_device_but_cpu() -> None:
    found = devices_named(ROOT, HOSTS)
    assert not found, "only a process of a mode touches its device (docs/architecture.md):\n" + "\n".join(found)


def test_a_device_above_the_border_would_be_seen(tmp_path: Path) -> None:
    # given one line a form, and names that look similar
    lines = [
        'tensor.to("cuda")',
        "torch.zeros(3, device='xpu:1')",
        "torch.cuda.synchronize()",
        "torch.mps.empty_cache()",
        'kind = "cpu"; print("on cuda"); run.cuda_version',
    ]
    (tmp_path / "harness").mkdir()
    (tmp_path / "harness" / "a.py").write_text("\n".join(lines))
    # when
    found = devices_named(tmp_path, ("harness",))
    # then
    assert {int(place.split(":")[1]) for place in found} == {1, 2, 3, 4}


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("numdrift", ["torch", "numpy", "click"]),
        ("numdrift.harness.records.modes.mode_spec", ["torch", "numpy", "click"]),
        ("numdrift.kernels.registry", ["torch", "numpy", "click"]),
        ("numdrift.kernels.swaps.request", ["torch", "numpy", "click"]),
        ("numdrift.harness.records.run.run_config", ["torch", "numpy"]),
        ("numdrift.harness.launch.supervise", ["torch", "numpy"]),
    ],
)
def test_import_stays_light(module: str, absent: list[str]) -> None:
    code = f"import sys, {module}; print([name for name in {absent} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]", f"importing {module} loads {done.stdout.strip()}"
