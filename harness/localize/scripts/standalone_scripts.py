"""The scripts in plain torch that show culprits, each executed once in a bare interpreter to check what it shows."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path

from ...records.results.culprit import Culprit, CulpritScript
from ...records.results.culprit_detail import SUFFIX
from ...tape.files.tensor_file import write_tensors
from ...tape.tape import in_words
from ..align.storage_flow import SIDES, Side
from ..causes.found_culprits import place_of
from ..causes.localized_step import LocalizedStep, UnprovenCauses
from .culprit_details import write_detail
from .localized_values import NotShown, ShownBlock, show_blocks
from .script_interpreter import Scripts
from .script_text import Script
from .script_ways import ShownMode, Way, script_in, ways

MOST_SCRIPTS = 8
MOST_BESIDE = 256 * 2**20
"""The largest total size of both sides' inputs of a step, in bytes, at which scripts are executed during the proofs. In
a larger step, they wait until the proofs are done, because each script needs memory."""

SUFFIXES = (".py", ".safetensors", SUFFIX)
"""The suffixes of a script, its tensors and the detail shown beside it."""
AT_ONCE = min(4, os.cpu_count() or 1)
"""The number of scripts that are executed in parallel."""

PATIENCE = 120.0
"""Seconds after which a script is killed."""


class ScriptWriter:
    """The writer of scripts into `folder`, one for each of the first culprits that can be shown alone.

    A script that fails raises nothing.
    """

    def __init__(self, modes: Mapping[Side, ShownMode], folder: Path, interpreter: Scripts) -> None:
        self._modes = modes
        self._folder = folder
        self._interpreter = interpreter
        # threads suffice, since each only waits for the process of its script
        self._pool = ThreadPoolExecutor(AT_ONCE)
        self._under_way: dict[int, Future[CulpritScript]] = {}

    def begin(self, step: UnprovenCauses) -> None:
        """Begin to write and execute the scripts of these causes, in parallel with their proofs.

        Do nothing if the step is large, or if there are more than MOST_SCRIPTS causes.
        """
        input_bytes = sum(data.numel() for side in SIDES for data in step.pair.flows[side].tape.inputs.values())
        if len(step.culprits) <= MOST_SCRIPTS and input_bytes <= MOST_BESIDE:
            self._submit(step, step.culprits)

    def write(self, step: LocalizedStep) -> list[str]:
        """Set each culprit's script, and return the scripts' names in the order of the culprits.

        A culprit that only rounds differently beside a fault has none.
        """
        grouped = {place_of(step.pair, step.examined, measured.cause).lead for measured in step.proofs.grouped}
        self._submit(step, [culprit for culprit in step.culprits[:MOST_SCRIPTS] if culprit.lead not in grouped])
        names = []
        for place, culprit in enumerate(step.culprits):
            lead = -1 if culprit.lead is None else culprit.lead
            few = f"only the first {MOST_SCRIPTS} culprits have a script"
            answer = _without("it has no block of calls" if culprit.lead is None else few)
            answer = _without("it only rounds differently, and there is a fault") if lead in grouped else answer
            if lead in self._under_way:
                answer = self._under_way.pop(lead).result()
            path = self._folder / f"culprit-{place + 1}.py"
            _remove(path)  # from an earlier localization
            if answer.path is not None:
                for suffix in SUFFIXES:
                    with suppress(FileNotFoundError):
                        self._path(lead).with_suffix(suffix).replace(path.with_suffix(suffix))
                answer = replace(answer, path=path.name)
                names.append(path.name)
            step.culprits[place] = replace(culprit, script=answer)
        self.close()
        return names

    def close(self) -> None:
        """Remove the files of scripts that belong to no culprit."""
        self._pool.shutdown(cancel_futures=True)
        for lead in self._under_way:
            _remove(self._path(lead))

    def _submit(self, step: UnprovenCauses | LocalizedStep, culprits: Sequence[Culprit]) -> None:
        """Start the scripts of these culprits that have not been started."""
        leads = {
            culprit.lead: culprit for culprit in culprits if culprit.lead is not None and culprit.lead in step.examined
        }
        new = {lead: culprit for lead, culprit in leads.items() if lead not in self._under_way}
        if not new:
            return  # `show_blocks` executes the whole step, however few blocks it shows
        blocks: dict[int, ShownBlock | NotShown]
        try:
            blocks = show_blocks(step.pair, {lead: step.examined[lead].suspect for lead in new})
        except Exception as error:  # noqa: BLE001, the culprits are found, and are reported without scripts
            blocks = {lead: NotShown(in_words(error)) for lead in new}
        for lead, culprit in new.items():
            self._under_way[lead] = self._pool.submit(self._script, step, culprit, blocks[lead], lead)

    def _path(self, lead: int) -> Path:
        return self._folder / f"cause-{lead}.py"

    def _script(
        self, step: UnprovenCauses | LocalizedStep, culprit: Culprit, block: ShownBlock | NotShown, lead: int
    ) -> CulpritScript:
        """Write and execute the script of a culprit, or return the reason why there is none."""
        if isinstance(block, NotShown):
            return _without(str(block))
        path, script = self._path(lead), None
        try:
            script = self._first_that_reproduces(step, culprit, block, lead, path)
        except Exception as error:  # noqa: BLE001, the culprit is reported without a script
            return _without(str(error) if isinstance(error, NotShown) else in_words(error))
        finally:
            if script is None:
                _remove(path)
        return script

    def _first_that_reproduces(
        self, step: UnprovenCauses | LocalizedStep, culprit: Culprit, block: ShownBlock, lead: int, path: Path
    ) -> CulpritScript:
        """Try the ways to show the block until one reproduces the difference. Raises NotShown if all are impossible."""
        nodes = step.pair.blocks[lead]
        special = {side: bool(step.kernels[side].special.intersection(nodes.of(side))) for side in SIDES}
        answer: CulpritScript | None = None
        shown: tuple[Script, Way] | None = None
        why = NotShown("there is no way to execute it alone")
        # A node that goes astray in its graph is right when executed alone, as in a script.
        astray = not step.kernels["b"].astray.isdisjoint(nodes.of("b"))
        tried = ways(block, special)
        if culprit.setting is not None and set(SIDES) <= culprit.setting.statements.keys():
            # A script can set torch's settings itself. Then both sides execute plain calls.
            tried = chain(ways(block, dict.fromkeys(SIDES, False)), tried)
        for way in tried:
            if astray and way.kinds["b"] != "recorded":
                continue
            try:
                script = script_in(way, block, culprit, self._modes)
                text = script.text()
            except NotShown as error:
                why = error
                continue
            write_tensors(path.with_suffix(".safetensors"), script.values.tensors, {})
            path.write_text(text, encoding="utf-8")
            answer, shown = execute_script(path, self._interpreter), (script, way)
            if answer.reproduces:
                break
        if answer is None or shown is None:
            raise why
        script, way = shown
        write_detail(path.with_suffix(SUFFIX), block, script.codes, way.kinds, errors=culprit.is_of_kernel)
        return replace(answer, error_ulp=dict(block.ulps.items()))


def _without(why: str) -> CulpritScript:
    return CulpritScript(None, why=why)


def execute_script(path: Path, interpreter: Scripts) -> CulpritScript:
    """Execute a script once, in its folder, in an interpreter without numdrift."""
    try:
        code, output = interpreter.execute(path, PATIENCE)
    except subprocess.TimeoutExpired:
        return CulpritScript(path.name, reproduces=False, output=f"no answer after {PATIENCE:g} s")
    except OSError as error:
        return CulpritScript(path.name, reproduces=False, output=str(error))
    lines = output.strip().splitlines() or [f"exit code {code}, without output"]
    return CulpritScript(path.name, reproduces=code == 0, output=lines[-1])


def _remove(path: Path) -> None:
    """Remove the files of a script, some of which may not exist."""
    for suffix in SUFFIXES:
        path.with_suffix(suffix).unlink(missing_ok=True)
