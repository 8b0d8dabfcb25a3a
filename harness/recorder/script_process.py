"""The life of the script's process: set the mode up, run the script as Python would, record how it ended."""

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

from ..errors import NumdriftError
from ..hooks.mode_protocol import Mode, ScriptFacts
from ..observers.variation import shift_seeds
from ..records import frames
from ..records.adoption_facts import AdoptionFacts
from ..records.mode_registry import registry
from ..records.run_config import RunConfig
from ..script import parallel
from ..script.main_module import execute
from ..script.script_end import ScriptEnd, end_of, own_trace
from ..tape.journal_writing import EventLog
from ..tape.origin import names_in
from .environment import fingerprint
from .recorder import Recorder

UNSEEDED = 0
"""The seed for generators that torch, Python and NumPy would otherwise seed from the operating system."""


def run(config: RunConfig) -> int:
    """Run the script of `config`; gives the exit code for the process."""
    log = EventLog(Path(config.journal) / frames.EVENTS)
    ranks = {"rank": config.rank, "world_size": config.world_size} if config.world_size > 1 else {}
    log.write("start", schema=frames.JOURNAL_SCHEMA, pid=os.getpid(), **ranks)
    mode = registry.load(config.mode.base)(config.mode)
    os.environ.setdefault("DEVICE", mode.device)
    code = compile(Path(config.script).read_bytes(), config.script, "exec")
    facts = AdoptionFacts(log.write, strict=config.strict)
    try:
        swaps = swaps_of(config, log)
        mode.prepare(ScriptFacts(names_in(code)), swaps)
        parallel.install(mode.device, facts)
        seed = UNSEEDED if config.mode.seed is None else config.mode.seed
        seeded = _seed_what_is_unseeded(seed, config.seed_shift)
        if config.seed_shift:
            shift_seeds(config.seed_shift)
        facts.note("generators", f"{', '.join(seeded)}: seed {seed} where the script sets none")
        recorder = Recorder(config, mode, log, facts)
        recorder.adoption.redirect()
        log.write("environment", seeded=seeded, digest=recorder.digest_implementation, **fingerprint())
    except NumdriftError as error:
        log.write("end", status=frames.REFUSED, steps=0, seconds=0.0, message=str(error), exit_code=error.exit_code)
        return error.exit_code
    os.register_at_fork(after_in_child=recorder.forget)
    os.register_at_fork(after_in_child=swaps.forget)
    process = os.getpid()
    exit_code = _record(config, code, recorder, mode, lambda: _write_modules(swaps, log))
    if config.serve and not exit_code and os.getpid() == process:
        swaps.forget()
        _serve(config, functools.partial(log.write, "notice", step=recorder.step))
    return exit_code


def _serve(config: RunConfig, write: Callable[..., None]) -> None:
    """Answer what is asked of the process, with all in place that the script and its mode have put there.

    The run has ended well: whatever fails here is only written down.
    """

    def notice(text: str) -> None:
        with suppress(OSError):
            write(text=text)

    try:
        importlib.import_module("numdrift.harness.tape.service").serve(config, notice)
    except Exception as error:  # noqa: BLE001, see above
        notice(f"serving the run failed: {type(error).__name__}: {error}")


def _write_modules(swaps: Swaps, log: EventLog) -> None:
    for op, modules in swaps.modules().items():
        log.write("swap-modules", op=op, modules=modules)


def swaps_of(config: RunConfig, log: EventLog) -> Swaps:
    """The swaps of the run's mode, counted in its journal. Raises what a request or kernel is wrong in."""
    journal = Path(config.journal)
    kernels = known_kernels([(op, Path(path)) for op, path in config.kernels])
    requests = swap_requests(config.mode.kernel, config.mode.decompose)
    swaps = Swaps(requests, kernels, journal / frames.KERNELS if requests else None)
    if requests:
        log.write("swaps", swaps=swaps.describe())
        for text in swaps.notices():
            log.write("notice", step=0, text=text)
    if config.trace_kernels:
        trace = CallTrace(config.trace_kernels, journal.parent / "kernels", functools.partial(log.write, "kernel-call"))
        swaps.observe(config.trace_kernels, trace)
    return swaps


def _record(config: RunConfig, code: types.CodeType, recorder: Recorder, mode: Mode, ending: Callable[[], None]) -> int:
    recorder.start()
    ended: BaseException | None = None
    try:
        execute(config, code)
    except BaseException as error:  # noqa: BLE001, whatever ends the script is its result
        ended = error
    end = end_of(ended, config.script)
    _print_as_python_would(ended, end, config.script)
    with suppress(OSError):
        ending()
    recorder.finish(end.status, exit_code=end.exit_code, **end.facts())
    return end.exit_code


def _print_as_python_would(error: BaseException | None, end: ScriptEnd, script: str) -> None:
    """The script's own part of the traceback; an error that says everything has one line."""
    if isinstance(error, SystemExit):
        if error.code is not None and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
    elif end.told:
        print(f"numdrift: {end.message}", file=sys.stderr)
    elif error is not None and not isinstance(error, KeyboardInterrupt):
        traceback.print_exception(type(error), error, own_trace(error, script))


def _seed_what_is_unseeded(torch_seed: int, offset: int) -> list[str]:
    """Seed the generators that start from the operating system's entropy, alike in every mode.

    What the script seeds itself takes its own seeds. `offset` is added to each.
    """
    torch.manual_seed(torch_seed + offset)
    random.seed(UNSEEDED + offset)
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return ["torch", "random"]
    numpy.random.seed(UNSEEDED + offset)
    return ["torch", "random", "numpy"]
