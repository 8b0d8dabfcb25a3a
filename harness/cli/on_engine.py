"""The option --engine of commands that run trainings: the whole command is executed by an engine, as one task."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ..api.investigating import DEFAULT_MODES
from ..batches.batch_folder import reason_of
from ..batches.followed_task import executed_task
from ..engines.engine import ENGINES, LOCAL, EngineSettings, engine_words
from ..engines.engine_task import FINISHED, OUTPUT, EngineTask, passed_on
from ..engines.task_needs import needs_of_words
from ..errors import NumdriftError, UsageError
from ..launch.batch_plan import check_script, reproducer_of
from ..launch.training_request import TrainingRequest
from ..records.modes.mode_spec import parse_modes
from ..records.results.findings import RUN_FAILED
from ..runs.run_layout import choose_investigation
from .command_options import engine_settings_option
from .output import INTERRUPTED, console

OWN = ("engine", "engine_options", "needs", "name")
"""The parameters of a command that its task does not get as they are."""

STATED = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
"""Where a value comes from that the user has stated."""

needs_option = click.option(
    "--needs",
    multiple=True,
    metavar="KEY=VALUE",
    help="With --engine: processors=N, memory=SIZE or devices=N that the command needs; may be repeated.",
)


def engine_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --engine, --engine-option and --needs to a command that an engine may execute as a whole."""
    engine = click.option(
        "--engine",
        type=click.Choice(tuple(ENGINES)),
        default=LOCAL,
        show_default=True,
        help="Where the command is executed: here (local), in a job of Slurm (submitit), or in a task of a Ray cluster "
        "(ray). Its output is shown here.",
    )
    return engine(engine_settings_option(needs_option(command)))


def is_elsewhere(engine: str, options: Sequence[str], needs: Sequence[str]) -> bool:
    """Check whether an engine executes the command. Raises UsageError for options that are of no use here."""
    if engine == LOCAL and (options or needs):
        flag = "--engine-option" if options else "--needs"
        raise UsageError(f"{flag} is for another machine: name the engine, as in --engine ray")
    return engine != LOCAL


def executed_elsewhere(
    request: TrainingRequest, engine: str, options: Sequence[str], needs: Sequence[str], *, suffix: str = ""
) -> int:
    """Execute the command of the current click context by an engine; return its exit code.

    What it prints on standard error appears here while it runs, and its standard output at the end. Raises UsageError
    before anything is submitted, and NumdriftError if no attempt has an answer.
    """
    context = click.get_current_context()
    folder = _folder(request, suffix)
    specs = request.modes or parse_modes(DEFAULT_MODES)
    resources = needs_of_words(needs, devices=int(any(spec.accelerator is not None for spec in specs)))
    named = [] if folder.is_dir() and request.name is None else ["--name", folder.name]  # a recorded one has its name
    command = [sys.executable, "-m", "numdrift", str(context.info_name), *named, *_words(context)]
    task = EngineTask(folder.name, command, folder.absolute(), Path.cwd(), passed_on(), resources, output_apart=True)
    settings = EngineSettings(task.folder, options=engine_words(options))
    stderr = console(stderr=True)

    def show(line: str) -> None:
        stderr.print(line, soft_wrap=True)

    show(f"{folder.name}: one task of the engine {engine}, with {_in_words(task)}; it writes to {folder}")
    try:
        end = executed_task(task, engine, settings, show)
    except KeyboardInterrupt:
        show(f"numdrift: interrupted. The same command with --name {folder.name} goes on from there.")
        return INTERRUPTED
    output = folder / OUTPUT
    if output.exists():
        sys.stdout.write(output.read_text(encoding="utf-8", errors="replace"))
        sys.stdout.flush()
    if end.was_killed:
        raise NumdriftError(f"{folder.name} on {end.host or 'its machine'}: {reason_of(end)}")
    if end.exit_code not in (*FINISHED, 2, RUN_FAILED):  # it has not said why in words of its own
        show(f"numdrift: {folder.name} on {end.host}: {reason_of(end)}")
    return end.exit_code


def _folder(request: TrainingRequest, suffix: str) -> Path:
    """Return the folder to which the command will write. Raises UsageError for a script that cannot be run."""
    reproducer, _ = reproducer_of(request.script, request.module, request.arguments)
    if reproducer.path.is_dir():  # a recorded investigation
        return reproducer.path
    check_script(reproducer.path)
    return choose_investigation(request.out, reproducer.named_after, request.name, suffix).path


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
    parts = [f"{needs.processors} processor{'s' * (needs.processors != 1)}"]
    parts += [f"{needs.memory / 2**30:.3g} GiB of memory"] if needs.memory else []
    parts += [f"{needs.devices} device{'s' * (needs.devices != 1)}"] if needs.devices else []
    return " and ".join([*filter(None, [", ".join(parts[:-1])]), parts[-1]])
