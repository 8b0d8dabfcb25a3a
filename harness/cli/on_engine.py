"""The option --engine of commands that run trainings: the whole command is executed by an engine, as one task."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ..api.investigating import DEFAULT_MODES
from ..batches.batch_folder import reason_of
from ..batches.followed_task import executed_task
from ..engines.engine import ENGINES, LOCAL, EngineSettings, engine_words
from ..engines.engine_task import LOG, OUTPUT, EngineTask, last_line, passed_on
from ..engines.task_needs import needs_of_words
from ..errors import NumdriftError, UsageError
from ..launch.batch_plan import check_script, reproducer_of, script_sha256
from ..launch.training_request import TrainingRequest
from ..records.modes.mode_spec import parse_modes
from ..records.results.task_table import counted
from ..runs.run_layout import choose_investigation
from .command_options import engine_settings_option, shared_option
from .output import INTERRUPTED, console

OWN = ("engine", "engine_options", "shared", "needs", "name")
"""The parameters of a command that its task does not get as they are."""

STATED = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
"""Where a value comes from that the user has stated."""

NOT_MOVED = {"json_path": "--json", "markdown": "--markdown"}
"""The options that name a file to write, outside of the folder that travels to the user's machine."""


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The values of the options that say where a command is executed."""

    engine: str = LOCAL
    options: Sequence[str] = ()
    needs: Sequence[str] = ()
    shared: str = ""

    def is_elsewhere(self) -> bool:
        """Check whether an engine executes the command. Raises UsageError for options that are of no use here."""
        stated = {"--engine-option": self.options, "--needs": self.needs, "--shared": self.shared}
        if self.engine == LOCAL and (flag := next((flag for flag, value in stated.items() if value), None)):
            raise UsageError(f"{flag} is for another machine: name the engine, as in --engine ray")
        return self.engine != LOCAL

    def execute(self, request: TrainingRequest, *, suffix: str = "") -> int:
        """Execute the command of the current click context by the engine; return its exit code.

        What it prints on standard error appears here while it runs, and its standard output at the end. Raises
        UsageError before anything is submitted, and NumdriftError if the command has been killed each time.
        """
        context = click.get_current_context()
        if written := self.shared and [
            flag for name, flag in NOT_MOVED.items() if context.params.get(name) not in (None, "-")
        ]:
            raise UsageError(f"with --shared, {written[0]} would write on the other machine: use {written[0]} - > PATH")
        stderr = console(stderr=True)
        task = _task(context, request, suffix, self.needs)
        settings = EngineSettings(task.folder, options=engine_words(self.options), shared=self.shared)
        place = Path(os.path.relpath(task.folder))
        stderr.print(
            f"{task.name}: one task of the engine {self.engine}, with {_in_words(task)}; it writes to {place}",
            soft_wrap=True,
        )
        try:
            end = executed_task(task, self.engine, settings, lambda line: stderr.print(line, soft_wrap=True))
        except KeyboardInterrupt:
            stderr.print(
                f"numdrift: interrupted. The same command with --name {task.name} goes on from there.", soft_wrap=True
            )
            return INTERRUPTED
        output = task.folder / OUTPUT
        if output.exists():
            sys.stdout.write(output.read_text(encoding="utf-8", errors="replace"))
            sys.stdout.flush()
        if end.was_killed:
            if end.host:
                raise NumdriftError(f"{task.name} on {end.host}: {reason_of(end)}")
            raise NumdriftError(f"{task.name} has no result after {counted(end.attempts, 'attempt')}: {end.message}")
        if end.message and end.message != last_line(task.folder / LOG):  # the command has not said why itself
            stderr.print(f"numdrift: {reason_of(end)}", soft_wrap=True)
        return end.exit_code


def engine_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --engine and its further options to a command, which gets them as `choice`."""

    @functools.wraps(command)
    def combined(engine: str, engine_options: Sequence[str], needs: Sequence[str], shared: str, **settings: Any) -> Any:
        return command(choice=EngineChoice(engine, engine_options, needs, shared), **settings)

    engine = click.option(
        "--engine",
        type=click.Choice(tuple(ENGINES)),
        default=LOCAL,
        show_default=True,
        help="Where the command is executed: here (local), in a job of Slurm (submitit), or in a task of a Ray cluster "
        "(ray). Its output is shown here.",
    )
    needs = click.option(
        "--needs",
        multiple=True,
        metavar="KEY=VALUE",
        help="With --engine: processors=N, memory=SIZE or devices=N that the command needs; may be repeated.",
    )
    return engine(engine_settings_option(shared_option(needs(combined))))


def _task(context: click.Context, request: TrainingRequest, suffix: str, needs: Sequence[str]) -> EngineTask:
    """Return the task that executes the command of a context. Raises UsageError for a script that cannot be run."""
    reproducer, _ = reproducer_of(request.script, request.module, request.arguments)
    folder, script, named = reproducer.path, None, list[str]()
    if not folder.is_dir():  # otherwise it is a recorded investigation
        check_script(reproducer.path)
        script = reproducer.path
        folder = choose_investigation(request.out, reproducer.named_after, request.name, suffix).path
        named = ["--name", folder.name]
    specs = request.modes or parse_modes(DEFAULT_MODES)
    return EngineTask(
        folder.name,
        [sys.executable, "-m", "numdrift", str(context.info_name), *named, *_words(context)],
        folder.absolute(),
        Path.cwd(),
        passed_on(),
        needs_of_words(needs, devices=int(any(spec.accelerator is not None for spec in specs))),
        script,
        "" if script is None else script_sha256(script),
        output_apart=True,
    )


def _words(context: click.Context) -> Iterator[str]:
    """Yield the words of a command line that set the parameters of a command as the user has set them."""
    positional: list[str] = []
    for parameter in context.command.params:
        name, value = str(parameter.name), context.params.get(str(parameter.name))
        if name in OWN or context.get_parameter_source(name) not in STATED:
            continue
        if isinstance(parameter, click.Argument):
            positional += [str(word) for word in (value if isinstance(value, tuple) else [value])]
        elif isinstance(parameter, click.Option) and parameter.is_flag:
            yield parameter.opts[-1] if value else parameter.secondary_opts[-1]
        else:
            for single in value if isinstance(value, tuple) else [value]:
                yield from (parameter.opts[-1], str(single))
    if positional:
        yield from ("--", *positional)


def _in_words(task: EngineTask) -> str:
    """Return what a task needs.

    >>> from ..engines.engine_task import TaskResources
    >>> _in_words(EngineTask("train", [], Path(), Path(), {}, TaskResources(8, 2**32, 1)))
    '8 processors, 4 GiB of memory and 1 device'
    """
    needs = task.resources
    parts = [counted(needs.processors, "processor")]
    parts += [f"{needs.memory / 2**30:.3g} GiB of memory"] if needs.memory else []
    parts += [counted(needs.devices, "device")] if needs.devices else []
    return " and ".join([*filter(None, [", ".join(parts[:-1])]), parts[-1]])
