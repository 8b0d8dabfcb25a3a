"""The scripts in plain torch that show culprits, each executed once in a bare interpreter to check what it shows."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Literal, Protocol

import torch

from ...errors import NumdriftError
from ...records.modes.mode_spec import parse_mode
from ...records.results.culprit import Culprit, CulpritScript
from ...records.results.culprit_detail import SUFFIX
from ...tape.files.tensor_file import write_tensors
from ...tape.replaying.ensemble import in_words
from ...torch_private.compiler.compiling import inductor_option
from ..align.storage_flow import SIDES, Side, other
from ..causes.localized_step import LocalizedStep, UnprovenCauses
from .culprit_details import write_detail
from .localized_values import NotShown, ShownBlock, Values, show_blocks
from .script_calls import CallWriter, SideCode, recorded_code
from .script_interpreter import Scripts
from .script_text import Script, ScriptSettings

# The ways to show a block, and its script in one of them

Kind = Literal["calls", "compiled", "recorded"]

MOST_INPUTS = 64 * 2**20
"""The largest size of a script's file, in bytes."""

RECORDED: Mapping[Side, str] = {"a": "given_a", "b": "given_b"}
"""The prefix of the names of each side's recorded results."""


class ShownMode(Protocol):
    """A side's mode: its name and its specification."""

    @property
    def label(self) -> str: ...
    @property
    def spec(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Way:
    """One way to show a block.

    kinds: the origin of each side's results.
    computed: True if the script computes the exact values, False if they are recorded.
    """

    kinds: Mapping[Side, Kind]
    computed: bool


def ways(block: ShownBlock, special: Mapping[Side, bool]) -> Iterator[Way]:
    """Yield the ways to try, the plainest first.

    `special` is True for a side with kernels that a plain process does not have.
    """
    a: Kind = "recorded" if special["a"] else "calls"
    b_calls = block.slices["b"].calls
    generated = bool(b_calls) and all(call.compiled is not None for call in b_calls)
    kinds: tuple[Kind, ...] = ("calls",)
    if special["b"]:
        kinds = ("compiled", "recorded") if generated else ("recorded",)
    for b in kinds:
        computed = block.live and (block.reference is None or {"a": a, "b": b}[block.reference] != "recorded")
        for is_computed in (True, False) if computed else (False,):
            yield Way({"a": a, "b": b}, is_computed)


def script_in(way: Way, block: ShownBlock, culprit: Culprit, modes: Mapping[Side, ShownMode]) -> Script:
    """Return the script of a block. Raises NotShown if there can be none."""
    values = Values()
    is_recorded = {side: way.kinds[side] == "recorded" or not block.slices[side].calls for side in SIDES}
    # Calls first: their arguments get names from the schema, which recorded results with the same bits then share.
    codes = {side: _code(block, side, values, is_recorded[side]) for side in sorted(SIDES, key=is_recorded.__getitem__)}
    for side, lines in (culprit.setting.statements if culprit.setting is not None else {}).items():
        if side in SIDES and way.kinds[side] == "calls":
            codes[side].lines[:0] = lines
    exact = None
    if block.ulps and not way.computed:
        exact = recorded_code(block.exact, "given_exact", values)
    if values.size > MOST_INPUTS:
        raise NotShown(f"what it takes are {values.size / 2**20:.0f} MiB, more than {MOST_INPUTS // 2**20}")
    compiled = way.kinds["b"] == "compiled"
    return Script(
        sentences=list(_sentences(way, block, culprit, modes)),
        labels={side: modes[side].label for side in SIDES},
        codes=codes,
        exact=exact,
        reference=block.reference,
        ulps=block.ulps,
        settings=ScriptSettings(compiled, _inductor(modes["b"].spec) if compiled else ()),
        threads=torch.get_num_threads(),
        values=values,
    )


def _code(block: ShownBlock, side: Side, values: Values, is_recorded: bool) -> SideCode:
    """Write a side's calls, or its results if `is_recorded`: if it has no calls, or calls of no use elsewhere."""
    results = block.results[side]
    if is_recorded:
        return recorded_code(results, RECORDED[side], values)
    return CallWriter(block.slices[side], values, aligned=block.by_layout).code(results, RECORDED[side])


def _inductor(spec: str) -> tuple[str, ...]:
    """Return the lines that configure Inductor's numerics as in a mode."""
    try:
        mode = parse_mode(spec)
        options = {name: inductor_option(name, text) for name, text in mode.inductor.items()}
    except NumdriftError:
        return ()
    config = "torch._inductor.config"
    stated = {
        f'{config}.cpp.enable_floating_point_contract_flag = "{mode.contract}"': mode.contract,
        f"{config}.emulate_precision_casts = {mode.emulate_casts == 'on'}": mode.emulate_casts,
        f"{config}.fallback_random = {mode.fallback_random == 'on'}": mode.fallback_random,
    }
    return (
        *(line for line, value in stated.items() if value is not None),
        *(f"{config}.{name} = {value!r}" for name, value in options.items()),
    )


def _sentences(way: Way, block: ShownBlock, culprit: Culprit, modes: Mapping[Side, ShownMode]) -> Iterator[str]:
    a, b = modes["a"], modes["b"]
    module = f" of {culprit.module}" if culprit.module else ""
    source = f" ({culprit.source})" if culprit.source else ""
    phase = f" in the {culprit.phase}" if culprit.setting is None else ""  # a setting acts in several phases
    yield f"{culprit.op}{phase}{module}{source}: {b.label} against {a.label} without numdrift."
    for side in SIDES:
        label, spec, kind = modes[side].label, modes[side].spec, way.kinds[side]
        if not block.slices[side].calls:
            yield f"side_{side}: {label} executes nothing there and goes on with what side_{other(side)} takes."
        elif kind == "recorded":
            yield (
                f"side_{side}: plain torch lacks the kernel that {spec} has there, so what it "
                "gave on these inputs is in "
                "the file."
            )
        else:
            how = "as Inductor compiles it" if kind == "compiled" else "as plain calls"
            yield f"side_{side}: what {spec} executes, {how}."
    for argument in culprit.layouts:
        looks = [f"{argument.look[side]} {tuple(argument.stride[side])} in {modes[side].label}" for side in SIDES]
        yield f"Argument {argument.number} ({argument.name}) has equal values on both sides: {', '.join(looks)}."
    exact = f"Errors: against side_{block.reference} in double precision{'' if way.computed else ', as recorded'}. "
    yield f"{exact if block.ulps else ''}Exit code 0: the sides differ as they did in the runs; 1: they do not."


MOST_SCRIPTS = 8
MOST_BESIDE = 256 * 2**20
"""The most bytes of both sides' inputs of a step for which scripts are executed beside the proofs. In a larger step
they wait until the proofs are done, because each script needs memory."""

SUFFIXES = (".py", ".safetensors", SUFFIX)
"""The suffixes of a script, its tensors and the detail shown beside it."""
AT_ONCE = min(4, os.cpu_count() or 1)
"""The number of scripts that are executed in parallel."""

PATIENCE = 120.0
"""The most seconds that a script may take."""


class ScriptWriter:
    """The writer of a script for each of the first culprits that can be shown alone, into `folder`.

    The failure of a script raises nothing.
    """

    def __init__(self, modes: Mapping[Side, ShownMode], folder: Path, interpreter: Scripts) -> None:
        self._modes = modes
        self._folder = folder
        self._interpreter = interpreter
        # threads suffice, since each only waits for the process of its script
        self._pool = ThreadPoolExecutor(AT_ONCE)
        self._under_way: dict[int, Future[CulpritScript]] = {}

    def begin(self, step: UnprovenCauses) -> None:
        """Begin to write and execute the scripts of these causes beside their proofs.

        This is done only if the step is small and each cause may have a script.
        """
        input_bytes = sum(data.numel() for side in SIDES for data in step.pair.flows[side].tape.inputs.values())
        if len(step.culprits) <= MOST_SCRIPTS and input_bytes <= MOST_BESIDE:
            self._submit(step, step.culprits)

    def write(self, step: LocalizedStep) -> list[str]:
        """Set each culprit's script, and return the scripts' names in the order of the culprits."""
        self._submit(step, step.culprits[:MOST_SCRIPTS])
        names = []
        for place, culprit in enumerate(step.culprits):
            lead = -1 if culprit.lead is None else culprit.lead
            few = f"only the first {MOST_SCRIPTS} culprits have one"
            answer = _without("no block of calls is behind it" if culprit.lead is None else few)
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
            return  # showing blocks executes the whole step, however few they are
        blocks: dict[int, ShownBlock | NotShown]
        try:
            blocks = show_blocks(step.pair, {lead: step.examined[lead].suspect for lead in new})
        except Exception as error:  # noqa: BLE001, the culprits are found, and are reported without scripts
            blocks = {lead: NotShown(in_words(error)) for lead in new}
        for lead, culprit in new.items():
            self._under_way[lead] = self._pool.submit(self._told, step, culprit, blocks[lead], lead)

    def _path(self, lead: int) -> Path:
        return self._folder / f"cause-{lead}.py"

    def _told(
        self, step: UnprovenCauses | LocalizedStep, culprit: Culprit, block: ShownBlock | NotShown, lead: int
    ) -> CulpritScript:
        if isinstance(block, NotShown):
            return _without(str(block))
        path, answer = self._path(lead), None
        try:
            answer = _shown(step, culprit, self._modes, block, lead, path, self._interpreter)
        except Exception as error:  # noqa: BLE001, the culprit is reported without a script
            return _without(str(error) if isinstance(error, NotShown) else in_words(error))
        finally:
            if answer is None:
                _remove(path)
        return answer


def _without(why: str) -> CulpritScript:
    return CulpritScript(None, why=why)


def _shown(
    step: UnprovenCauses | LocalizedStep,
    culprit: Culprit,
    modes: Mapping[Side, ShownMode],
    block: ShownBlock,
    number: int,
    path: Path,
    interpreter: Scripts,
) -> CulpritScript:
    """Try the ways to show the block until one succeeds. Raises NotShown if no script can be written."""
    lead = step.pair.blocks[number]
    special = {side: bool(step.kernels[side].special.intersection(lead.of(side))) for side in SIDES}
    answer: CulpritScript | None = None
    shown: tuple[Script, Way] | None = None
    why = NotShown("there is no way to execute it alone")
    # A node that goes astray in its graph is right when executed alone, as in a script.
    astray = not step.kernels["b"].astray.isdisjoint(lead.of("b"))
    tried = ways(block, special)
    if culprit.setting is not None and set(SIDES) <= culprit.setting.statements.keys():
        # A script can set torch's settings as well: then both sides execute plain calls.
        tried = chain(ways(block, dict.fromkeys(SIDES, False)), tried)
    for way in tried:
        if astray and way.kinds["b"] != "recorded":
            continue
        try:
            script = script_in(way, block, culprit, modes)
            text = script.text()
        except NotShown as error:
            why = error
            continue
        write_tensors(path.with_suffix(".safetensors"), script.values.tensors, {})
        path.write_text(text, encoding="utf-8")
        answer = replace(execute_script(path, interpreter), error_ulp={side: block.ulps[side] for side in block.ulps})
        shown = script, way
        if answer.reproduces:
            break
    if answer is None or shown is None:
        raise why
    script, way = shown
    write_detail(path.with_suffix(SUFFIX), block, script.codes, way.kinds, errors=culprit.is_of_kernel)
    return answer


def execute_script(path: Path, interpreter: Scripts) -> CulpritScript:
    """Execute a script once, in its folder, in an interpreter that sees only its own packages."""
    try:
        code, output = interpreter.execute(path, PATIENCE)
    except subprocess.TimeoutExpired:
        return CulpritScript(path.name, reproduces=False, output=f"no answer after {PATIENCE:g} s")
    except OSError as error:
        return CulpritScript(path.name, reproduces=False, output=str(error))
    lines = output.strip().splitlines() or [f"exit code {code}, and no word"]
    return CulpritScript(path.name, reproduces=code == 0, output=lines[-1])


def _remove(path: Path) -> None:
    """Remove the files of a script, some of which may not exist."""
    for suffix in SUFFIXES:
        path.with_suffix(suffix).unlink(missing_ok=True)
