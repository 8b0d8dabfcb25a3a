"""The script's process: set up the mode, run the script as Python would, and record how the script ended."""

from __future__ import annotations

import functools
import importlib
import os
import random
import sys
import traceback
import types
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch

from numdrift.kernels.swaps.engine import Swaps
from numdrift.kernels.swaps.request import known_kernels, swap_requests
from numdrift.kernels.swaps.trace import CallTrace

from ..backends.opened_device import on_own_device
from ..errors import NumdriftError
from ..hooks.mode_protocol import Mode, ScriptFacts
from ..observers.state.variation import shift_seeds
from ..records import frames
from ..records.modes.mode_registry import registry
from ..records.run.adoption_facts import AdoptionFacts
from ..records.run.run_config import RunConfig
from ..script import parallel, renamed_folders
from ..script.calls.found_calls import found_calls
from ..script.main_module import end_of, execute, own_trace
from ..script.outside_files import OutsideFiles
from ..tape.files.journal_writing import EventLog
from ..tape.origin import names_in, own_files
from ..tape.step_settings import device_settings
from ..torch_private.patches import Patches
from .fingerprint import fingerprint, numeric_variables
from .parked_memory import ParkedMemory
from .recorder import Recorder
from .saved_inputs import read_saved


def run(config: RunConfig, shared: str = "") -> int:
    """Run the script of `config` and return the exit code for the process.

    `shared` is the reason why the script shares its folder with other runs, or "" if it has an overlay of its own.
    """
    log = EventLog(Path(config.journal) / frames.EVENTS)
    has_own_folder = bool(config.files.folders) and not shared
    ranks = {"rank": config.rank, "world_size": config.world_size} if config.world_size > 1 else {}
    log.write("start", schema=frames.JOURNAL_SCHEMA, pid=os.getpid(), **ranks)
    log.write("files", own=has_own_folder, why=shared)
    spec = config.mode if config.world_size == 1 else on_own_device(config.mode, int(os.environ["LOCAL_RANK"]))
    mode = registry.load(spec.base)(spec)
    if not config.as_is:
        os.environ.setdefault("DEVICE", mode.device)
    variables = numeric_variables()  # read before a backend starts and sets some of them
    code = compile(Path(config.script).read_bytes(), config.script, "exec")
    try:
        swaps = swaps_of(config, log)
        recorder = _prepare(config, mode, swaps, log, names_in(code), variables)
    except NumdriftError as error:
        log.write("end", status=frames.REFUSED, steps=0, seconds=0.0, message=str(error), exit_code=error.exit_code)
        return error.exit_code
    outside, patches = OutsideFiles(config.files, log.write, own=has_own_folder), Patches("the script's files")
    if not config.as_is:
        outside.start(patches)
    if has_own_folder:
        renamed_folders.install(patches)
    os.register_at_fork(after_in_child=recorder.forget)
    os.register_at_fork(after_in_child=swaps.forget)
    process = os.getpid()
    exit_code = _record(config, code, recorder, swaps, log, mode.device)
    outside.end()
    patches.undo()
    if config.world_size > 1 and not exit_code:
        parallel.leave()
    parallel.let_go()
    # A fork of the script that also ends here must not serve requests.
    if config.serve and not exit_code and os.getpid() == process:
        swaps.forget()
        _serve(config, recorder, log)
    return exit_code


def _prepare(
    config: RunConfig, mode: Mode, swaps: Swaps, log: EventLog, names: frozenset[str], variables: dict[str, str]
) -> Recorder:
    """Set up the mode, the training's processes and the generators, and return the script's recorder.

    `names` are the names that occur in the script. Raises the error of a mode or swap that cannot run on this machine.
    """
    facts = AdoptionFacts(log.write, strict=config.strict)
    script = ScriptFacts(names)
    device_settings.declare(mode.device_settings)
    mode.prepare(script, swaps)
    if config.as_is:
        recorder = Recorder(config, mode, log, facts)
        numeric_facts = fingerprint(variables, numpy=script.imports("numpy"))
        log.write("environment", seeded=[], digest=recorder.digest_implementation, **numeric_facts)
        return recorder
    parallel.install(mode.device, facts)
    seed = config.unseeded_seed if config.mode.seed is None else config.mode.seed
    seeded = _seed_generators(seed, config.unseeded_seed, config.seed_shift)
    facts.note("generators", f"{', '.join(seeded)}: seed {seed} where the script sets none")
    recorder = Recorder(config, mode, log, facts)
    recorder.adoption.redirect(speaks_of_xla=script.imports("torch_xla"))
    numeric_facts = fingerprint(variables, numpy=script.imports("numpy"))
    log.write("environment", seeded=seeded, digest=recorder.digest_implementation, **numeric_facts)
    return recorder


def _seed_generators(seed: int, others: int, shift: int) -> list[str]:
    """Seed the generators that would start from the operating system's entropy, and return their packages.

    torch's generator gets `seed`, and Python's and NumPy's get `others`. The seeds are the same in every mode. A
    generator that the script seeds keeps the script's seed, plus the shift.
    """
    seeded = ["torch", "random"]
    torch.manual_seed(seed + shift)
    random.seed(others + shift)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        seeded.append("numpy")
        numpy.random.seed(others + shift)
    if shift:  # not earlier: the seeds above would be shifted twice
        shift_seeds(shift)
    return seeded


def _serve(config: RunConfig, recorder: Recorder, log: EventLog) -> None:
    """Answer requests until nobody needs the worker. A failure becomes a notice: the run itself has succeeded."""

    def notice(text: str) -> None:
        with suppress(OSError):
            log.write("notice", step=recorder.step, text=text)

    parked = ParkedMemory()
    try:
        parked.park(recorder.tensors())
        importlib.import_module("numdrift.harness.tape.serving.service").serve(config, notice, recorder.kernels)
    except Exception as error:  # noqa: BLE001, any failure here is only recorded
        notice(f"the worker failed: {type(error).__name__}: {error}")
    with suppress(RuntimeError):  # the script has ended: only its exit handlers could still need the tensors
        parked.restore()


def _record(
    config: RunConfig, code: types.CodeType, recorder: Recorder, swaps: Swaps, log: EventLog, device: str
) -> int:
    """Execute the script, or the calls that are the subject of the run. Write how it ended to the journal's last line,
    and return the exit code."""
    ended: BaseException | None = None
    main: Callable[[], object] = functools.partial(execute, config, code)
    if config.subject is not None:
        try:
            main = found_calls(config, config.subject, code, device, log.write, read_saved)
        except BaseException as error:  # noqa: BLE001, see below
            ended = error
    recorder.start()
    if ended is None:
        try:
            main()
        except BaseException as error:  # noqa: BLE001, any exception that ends the script is its result
            ended = error
    end = end_of(ended, config.script)
    # Print what plain Python would print at the end: the part of the traceback that is in the script. An error of
    # numdrift is one line.
    if isinstance(ended, SystemExit):
        if ended.code is not None and not isinstance(ended.code, int):
            print(ended.code, file=sys.stderr)
    elif end.is_plain:
        print(f"numdrift: {end.message}", file=sys.stderr)
    elif ended is not None and (config.as_is or not isinstance(ended, KeyboardInterrupt)):
        traceback.print_exception(type(ended), ended, own_trace(ended, config.script))
    with suppress(OSError):
        log.write("modules", files=_own_modules(config.script))
        for op, modules in swaps.modules().items():
            log.write("swap-modules", op=op, modules=modules)
    recorder.finish(end.status, exit_code=end.exit_code, **end.facts())
    return end.exit_code


def _own_modules(script: str) -> list[str]:
    """Return the files of the user's modules that the script has imported, the script first."""
    own, imported = own_files(script), [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    return [*dict.fromkeys([script, *(file for file in imported if isinstance(file, str) and file in own)])]


def swaps_of(config: RunConfig, log: EventLog) -> Swaps:
    """Return the swaps of the run's mode. They count their calls in the run's journal.

    Raises the error of an invalid request or kernel.
    """
    journal = Path(config.journal)
    kernels = known_kernels([(op, Path(path)) for op, path in config.kernels])
    requests = swap_requests(config.mode.kernel, config.mode.decompose)
    swaps = Swaps(requests, kernels, journal / frames.KERNELS if requests else None)
    if requests:
        accelerator = config.mode.accelerator
        log.write("swaps", swaps=swaps.describe(accelerator))
        for text in swaps.notices(accelerator):
            log.write("notice", step=0, text=text)
    if config.trace_kernels:
        trace = CallTrace(config.trace_kernels, journal.parent / "kernels", functools.partial(log.write, "kernel-call"))
        swaps.observe(config.trace_kernels, trace)
    return swaps
