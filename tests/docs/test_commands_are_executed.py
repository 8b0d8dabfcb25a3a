"""Every command that a page shows is executed, page by page, and ends with the exit code that the page promises."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import tomllib

from ..accelerator.installed import install
from ..processes.forked import numdrift_in
from .shown import ROOT, ShownCommand, blocks, commands_at, shown_commands
from .walks import NOT_EXECUTED, WALKS, Walk

PLUG_IN = "docs/guide/add-a-backend.md"


def executed(walk: Walk) -> list[ShownCommand]:
    """The commands of a walk in their order, each once."""
    found = {text: ShownCommand(f"before {walk.name}", number, text) for number, text in enumerate(walk.before, 1)}
    for place in walk.places:
        for one in commands_at(place):
            if one.text not in NOT_EXECUTED:
                found.setdefault(one.text, one)
    return list(found.values())


EXHAUSTIVE = frozenset(
    (
        *("accelerators", "add-a-backend", "adopt-your-script", "analyze", "batches", "bundle", "check"),
        *("help of graph and run", "help of investigate", "help of partition", "help of profile", "help of snapshot"),
        *("help of what reads findings", "investigate", "investigate, on its own scripts", "kernels", "partition"),
        *("profile", "read-the-graphs", "run", "several processes and what reads runs", "snapshots", "swap-a-kernel"),
        *("verdict", "watch"),
    )
)
"""The walks that only the exhaustive run takes: tests of these commands are in `tests/backend` and `tests/e2e`."""


def test_every_command_of_a_page_is_executed_or_has_a_reason() -> None:
    walked = {one.place for walk in WALKS for place in walk.places for one in commands_at(place)}
    left = [one for one in shown_commands() if one.place not in walked and one.text not in NOT_EXECUTED]
    assert [f"{one.place} {one.text}" for one in left] == []


def test_no_exception_is_made_for_nothing() -> None:
    shown = {one.text for one in shown_commands()}
    assert [text for text in NOT_EXECUTED if text not in shown] == []
    for walk in WALKS:
        known = {one.text for one in executed(walk)}
        assert [text for text in walk.codes if text not in known] == [], walk.name
        assert 0 not in walk.codes.values(), walk.name


@pytest.mark.slow
@pytest.mark.parametrize(
    "walk",
    [
        pytest.param(walk, id=walk.name, marks=[pytest.mark.exhaustive] if walk.name in EXHAUSTIVE else [])
        for walk in WALKS
    ],
)
def test_the_commands_end_as_the_page_says(walk: Walk, tmp_path: Path) -> None:
    walk.lay_out(tmp_path)
    variables = {**walk.variables, **(plugged_in(tmp_path) if walk.plugged else {})}
    for one in executed(walk):
        done = numdrift_in(tmp_path, *one.arguments, timeout=600, **variables)
        said = f"{one.place} {one.text}\n{done.stdout}\n{done.stderr}"
        assert done.returncode in walk.ends_with(one.text), said
        assert "Traceback" not in done.stderr, said
        if one.redirected:
            (tmp_path / one.redirected).write_text(done.stdout)


def plugged_in(folder: Path) -> dict[str, str]:
    """Install the plug-ins of the guide, as their pyproject.toml have them, and give the variables that find them."""
    site = install(folder / "site")
    for block in blocks(PLUG_IN, "toml"):
        project = tomllib.loads(block.text)["project"]
        told = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        told.mkdir(exist_ok=True)
        facts = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
        (told / "METADATA").write_text(facts)
        points = [
            f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in named.items())
            for group, named in project["entry-points"].items()
        ]
        (told / "entry_points.txt").write_text("\n".join(points))
    shutil.copy(ROOT / "tests" / "backend" / "toy_backend.py", site)
    return {"PYTHONPATH": f"{site}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
