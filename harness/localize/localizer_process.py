"""The localizer's process: it reads two tapes, connects to the workers of their modes, and writes `localization.json`.

It runs as `python bootstrap.py PACKAGE CONFIG numdrift.harness.localize.localizer_process`, without swaps, and prints
its progress line by line.
"""

from __future__ import annotations

import json
import math
import time
import traceback
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ..backends.cpu_draws import draw_on_the_cpu
from ..backends.opened_device import HOST, open_devices
from ..drift.step_noise import Noise, read_noise
from ..errors import NumdriftError
from ..records.codec import read
from ..records.modes.mode_spec import parse_mode
from ..records.results.localization_record import SCHEMA, LocalizedSide, LocalizerConfig, write_localization
from ..records.run.step_files import OF_SCRIPT
from ..tape.files.tape_file import noise_file, read_tape, tape_file
from ..tape.files.tensor_file import read_tensors
from ..tape.replaying.replay import is_same
from ..tape.replaying.settling import FAR
from ..tape.serving.list_calls import list_ops, taken_apart
from ..tape.step_settings import settings_of_step
from ..tape.tape import NotReplayable, Tape, in_words
from ..torch_private.first_calls import settle_first_calls
from ..torch_private.profiling.device_work import give_back_memory
from .align.storage_flow import SIDES, Side
from .causes.examination import flagged
from .causes.hybrid_tests import Scorer
from .causes.localized_step import LocalizedStep
from .execute.step_side import StepSide
from .execute.worker import Worker
from .execute.worker_calls import WorkerCalls
from .localize_step import followed_preparation, localize_step
from .scripts.script_interpreter import Scripts
from .scripts.standalone_scripts import ScriptWriter

KERNELS = ("foreign", "in_context", "unknown", "unrepeatable")
"""The kinds of nodes that the facts of a localization count."""

CONNECT_SECONDS = 120.0
"""The time in seconds within which a worker must answer, once its script has ended."""


def main(path: Path) -> int:
    """Localize as configured in the file, and return the exit code. Any failure becomes the result's `reason`."""
    config = read(LocalizerConfig, json.loads(path.read_text(encoding="utf-8")))
    settle_first_calls()
    try:
        return localized(config, on_devices=True)
    except torch.OutOfMemoryError:
        _say("the device has too little memory for both sides: each side's ops are executed only in its own process")
    give_back_memory()
    return localized(config, on_devices=False)


def localized(config: LocalizerConfig, *, on_devices: bool) -> int:
    """Localize and return the exit code. Raises torch.OutOfMemoryError.

    With `on_devices`, this process executes calls on the tapes' devices if it can open them.
    """
    modes: dict[Side, LocalizedSide] = {"a": config.a, "b": config.b}
    torch.set_num_threads(config.threads)  # until the tape's settings are known
    began = time.monotonic()
    facts: dict[str, Any] = {"schema": SCHEMA, "step": config.step, "inputs": config.inputs, "culprits": []}
    try:
        with ExitStack() as stack:
            sides = _sides(config, modes, stack, on_devices=on_devices)
            # Use the settings of the reference's step. An op of the other side may need different settings to compute
            # its bits; the other side's worker executes such an op.
            stack.enter_context(settings_of_step(sides["a"].tape.settings))
            if config.prepared:
                facts |= followed_preparation(sides, config.own or ())
                return _written(config, facts, began)
            noise = read_noise(config.noise, config.step) or Noise(config.step, 0, {})
            scripts = _scripts(config, modes, stack)
            deadline = math.inf if config.seconds is None else began + config.seconds
            begin = (lambda causes: None) if scripts is None else scripts.begin
            localized_step = localize_step(
                sides, noise, config.threshold, _say, begin, own=config.own, deadline=deadline
            )
            if scripts is not None:
                facts["scripts"] = scripts.write(localized_step)
            differs = {side: _differs_op_by_op(sides[side], modes[side].outcome, noise) for side in SIDES}
            distances = {
                side: _distance_op_by_op(sides[side], modes[side].outcome, noise) for side in SIDES if differs[side]
            }
            facts |= _facts(localized_step, sides)
            facts |= {"op_by_op_differs": differs["b"], "reference_differs": differs["a"], "apart": distances}
            if differs["a"]:
                note = (
                    f"{len(differs['a'])} values of {config.a.label} differ from those of its ops executed one by one"
                )
                facts["notes"] = [*facts["notes"], note]
    except torch.OutOfMemoryError as error:
        if on_devices:
            raise
        facts["reason"] = in_words(error)
    except Exception as error:  # noqa: BLE001, an op may raise anything, and the investigation goes on
        facts["reason"] = str(error) if isinstance(error, NumdriftError) else in_words(error)
        if not isinstance(error, (NumdriftError, NotReplayable)):
            traceback.print_exc()  # into the localizer's log, beside its answer
        _say(f"step {config.step} could not be localized: {facts['reason']}")
    return _written(config, facts, began)


def _written(config: LocalizerConfig, facts: dict[str, Any], began: float) -> int:
    facts["seconds"] = round(time.monotonic() - began, 3)
    write_localization(config.folder, facts)
    return 0


def _scripts(config: LocalizerConfig, modes: Mapping[Side, LocalizedSide], stack: ExitStack) -> ScriptWriter | None:
    """Return the writer of scripts; None if no scripts are requested, or no interpreter executes them."""
    if not config.interpreter:
        return None
    try:
        interpreter = stack.enter_context(Scripts(Path(config.interpreter)))
    except OSError as error:
        _say(f"the interpreter that executes scripts does not answer ({error}): no script is written")
        return None
    writer = ScriptWriter(modes, config.folder, interpreter)
    stack.callback(writer.close)
    return writer


def _differs_op_by_op(step_side: StepSide, outcome: str, noise: Noise) -> list[str]:
    """Return the names of the values that differ between the tape and the mode's own step.

    If there are any, the mode itself executes calls that differ from those on the tape.
    """
    if not outcome:
        return []
    values = read_tensors(Path(outcome))[0]
    is_settled = any(call.settled is not None for call in step_side.tape.calls)
    if is_settled and _distance_op_by_op(step_side, outcome, noise) <= FAR:
        return []  # the calls that do not repeat explain this distance
    return [
        name
        for name, value in step_side.tape.expected().items()
        if (name not in values and not name.startswith(OF_SCRIPT))
        or (name in values and not is_same(values[name], value))
    ]


def _distance_op_by_op(step_side: StepSide, outcome: str, noise: Noise) -> float:
    """Return the distance of the mode's step from its tape's values, in multiples of the reference's noise."""
    return Scorer(step_side.tape.expected(), noise).drift(read_tensors(Path(outcome))[0]).distance


def _sides(
    config: LocalizerConfig, modes: Mapping[Side, LocalizedSide], stack: ExitStack, *, on_devices: bool
) -> dict[Side, StepSide]:
    """Connect to both sides' workers and read their tapes.

    Calls on lists are split if the sides call different ops on lists. Raises NotReplayable with the reason if a tape
    was not written, and JournalError if a tape is damaged.
    """
    workers, tapes = dict[Side, Worker | None](), dict[Side, Tape]()
    for side in SIDES:
        workers[side] = _worker(config, modes[side], stack)
        tapes[side] = _tape(config, modes[side], on_devices=on_devices)
    _draw_where_modes_draw(modes, stack)
    if list_ops(tapes["a"]) != list_ops(tapes["b"]):
        tapes = {side: taken_apart(tapes[side])[0] for side in SIDES}
        for worker in workers.values():
            if worker is not None:
                worker.apart = True
    on_accelerators = any(modes[side].spec and parse_mode(modes[side].spec).accelerator for side in SIDES)
    # On an accelerator, the workers execute the step one after the other: two steps at once need the memory of both.
    executor = stack.enter_context(ThreadPoolExecutor(1 if on_accelerators else len(SIDES)))
    sides = {side: StepSide(tapes[side], modes[side].label, spec=modes[side].spec) for side in SIDES}
    for side, worker in workers.items():
        if worker is not None:
            calls, notes = WorkerCalls(worker, config.step), worker.notes(config.step)
            # The worker executes the whole step for its digests; meanwhile both tapes are aligned.
            digests = executor.submit(worker.digests, config.step).result
            sides[side] = replace(sides[side], digests=digests, calls=calls, notes=notes)
    return sides


def _worker(config: LocalizerConfig, side: LocalizedSide, stack: ExitStack) -> Worker | None:
    """Connect to a side's worker, if it has one."""
    if not side.socket:
        return None
    worker = Worker.connect(side.socket, CONNECT_SECONDS)
    stack.callback(worker.close)
    _say(f"{side.label} waits at step {config.step}")
    return worker


def _tape(config: LocalizerConfig, side: LocalizedSide, *, on_devices: bool) -> Tape:
    path, noise = tape_file(side.tapes, config.step), noise_file(side.tapes, config.step)
    if not path.exists() and noise.exists():
        reason = json.loads(noise.read_text(encoding="utf-8")).get("reason")
        if reason:
            raise NotReplayable(f"{side.label} has no tape of step {config.step}: {reason}")

    def opened(devices: Collection[str]) -> bool:
        if not on_devices:
            return {device.partition(":")[0] for device in devices} <= {*HOST}
        try:
            open_devices(devices)
        except Exception as error:  # noqa: BLE001, a plug-in may raise anything
            _say(f"{side.label}: its ops are executed only in its own process ({in_words(error)})")
            return False
        return True

    return read_tape(path, opened)


def _draw_where_modes_draw(modes: Mapping[Side, LocalizedSide], stack: ExitStack) -> None:
    """Make random ops of this process draw on the CPU if they do so in the modes."""
    for spec in (parse_mode(side.spec) for side in modes.values() if side.spec):
        if spec.draws == "cpu" and spec.accelerator is not None:
            with suppress(NumdriftError):  # then the mode's process executes them
                stack.callback(draw_on_the_cpu(spec.accelerator))


def _facts(localized_step: LocalizedStep, sides: Mapping[Side, StepSide]) -> dict[str, object]:
    nodes, chosen = {side: localized_step.pair.flows[side].nodes for side in SIDES}, localized_step.chosen
    return {
        "score": localized_step.proofs.whole.score,
        "rest": None if localized_step.proofs.rest is None else localized_step.proofs.rest.score,
        "left": localized_step.left,
        "culprits": localized_step.culprits,
        "controls": dict(localized_step.controls),
        "control_scores": dict(localized_step.control_scores),
        "blocks": len(localized_step.pair.blocks),
        "flagged": len(flagged(localized_step.examined, localized_step.examined)),
        "calls": {side: len(nodes[side]) for side in SIDES},
        "draws": {side: sum(node.call.draw is not None for node in nodes[side]) for side in SIDES},
        "kernels": {
            side: {name: len(getattr(found, name)) for name in KERNELS}
            for side, found in localized_step.kernels.items()
        },
        "executed_there": {side: 0 if (calls := sides[side].calls) is None else calls.count for side in SIDES},
        "tests": localized_step.proofs.tests,
        "cut_short": bool(localized_step.proofs.untested),
        "choices": chosen
        and {
            "score": chosen.drift.score,
            "discrete": chosen.drift.discrete,
            "flipped": chosen.flipped,
            "ops": list(chosen.ops),
        },
        "notes": localized_step.notes,
    }


def _say(text: str) -> None:
    print(text, flush=True)
