"""Standalone scripts for culprits: plain torch on the recorded inputs, executed once in a bare interpreter to see what they show."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from ..records.culprit import Culprit, CulpritScript
from ..tape.ensemble import in_words
from ..tape.tensor_file import write_tensors
from .localize_step import LocalizedStep
from .localized_values import NotShown, ShownBlock, show_blocks
from .script_ways import Mode, script_in, ways
from .storage_flow import SIDES, Side

MOST_SCRIPTS = 8
AT_ONCE = min(4, os.cpu_count() or 1)
"""Scripts that are executed side by side: most of their time is starting torch."""

PATIENCE = 120.0
"""Seconds that a script may take."""


def write_scripts(found: LocalizedStep, modes: Mapping[Side, Mode], folder: Path) -> list[str]:
    """Write one for each of the first culprits that can be shown alone, and say so in the culprits; gives their names.

    Nothing that goes wrong with them is raised.
    """
    leads = [one.lead for one in found.culprits[:MOST_SCRIPTS] if one.lead is not None]
    chosen = [lead for lead in leads if lead in found.examined]
    try:
        blocks = show_blocks(found.pair, {lead: found.examined[lead].suspect for lead in chosen})
    except Exception as error:  # noqa: BLE001, the culprits are found, and are told without scripts
        blocks = {lead: NotShown(in_words(error)) for lead in chosen}
    paths = [folder / f"culprit-{number}.py" for number in range(1, len(found.culprits) + 1)]

    def told(culprit: Culprit, path: Path) -> CulpritScript:
        lead = -1 if culprit.lead is None else culprit.lead
        return _told(found, culprit, modes, blocks.get(lead), path)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(told, found.culprits, paths))
    for answer, path in zip(answers, paths, strict=True):
        if answer.path is None:
            _remove(path)
    found.culprits[:] = [
        replace(one, script=answer) for one, answer in zip(found.culprits, answers, strict=True)
    ]
    return [path.name for path, answer in zip(paths, answers, strict=True) if answer.path is not None]


def _told(
    found: LocalizedStep,
    culprit: Culprit,
    modes: Mapping[Side, Mode],
    block: ShownBlock | NotShown | None,
    path: Path,
) -> CulpritScript:
    if block is None or culprit.lead is None:
        few = f"only the first {MOST_SCRIPTS} culprits have one"
        return _without("no block of calls is behind it" if culprit.lead is None else few)
    if isinstance(block, NotShown):
        return _without(str(block))
    try:
        return _shown(found, culprit, modes, block, culprit.lead, path)
    except Exception as error:  # noqa: BLE001, a culprit is told without a script then
        return _without(str(error) if isinstance(error, NotShown) else in_words(error))


def _without(why: str) -> CulpritScript:
    return CulpritScript(None, why=why)


def _shown(
    found: LocalizedStep,
    culprit: Culprit,
    modes: Mapping[Side, Mode],
    block: ShownBlock,
    number: int,
    path: Path,
) -> CulpritScript:
    """Try the ways to show the block until one shows it. Raises NotShown where none can be written."""
    lead = found.pair.blocks[number]
    special = {side: bool(found.kernels[side].special.intersection(lead.of(side))) for side in SIDES}
    answer: CulpritScript | None = None
    why = NotShown("there is no way to execute it alone")
    for way in ways(block, special):
        try:
            script = script_in(way, block, culprit, modes)
            text = script.text()
        except NotShown as error:
            why = error
            continue
        write_tensors(path.with_suffix(".safetensors"), script.values.tensors, {})
        path.write_text(text, encoding="utf-8")
        answer = replace(execute_script(path), error_ulp={side: block.ulps[side] for side in block.ulps})
        if answer.reproduces:
            break
    if answer is None:
        raise why
    return answer


def execute_script(path: Path) -> CulpritScript:
    """Execute a script once, beside its file, in an interpreter that sees nothing but its own packages."""
    environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    try:
        done = subprocess.run(
            [sys.executable, "-I", path.name],
            cwd=path.parent,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return CulpritScript(path.name, reproduces=False, output=f"no answer after {PATIENCE:g} s")
    lines = done.stdout.strip().splitlines() or [f"exit code {done.returncode}, and no word"]
    return CulpritScript(path.name, reproduces=done.returncode == 0, output=lines[-1])


def _remove(path: Path) -> None:
    """Leave nothing of a script that was not written to its end."""
    path.unlink(missing_ok=True)
    path.with_suffix(".safetensors").unlink(missing_ok=True)
