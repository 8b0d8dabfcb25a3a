"""`numdrift`: the group of all commands, and the reporting of errors."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Mapping
from typing import Any, NoReturn

import click

from .. import errors
from ..launch.tasks.started_task import started_task
from ..records.frames import FULL

INTERNAL_ERROR = 70
"""EX_SOFTWARE of sysexits.h. It differs from the exit codes of verdicts and of wrong usage."""

COMMANDS = {
    "investigate": "Decide whether modes differ by more than rounding, which side is right, and which op is the cause.",
    "check": "Compare calls of a function or module in several modes: is a difference rounding, or a bug?",
    "batch": "Investigate all experiments of a file, on this machine, by Slurm or on a Ray cluster.",
    "run": "Run a training script in several modes and record what happens.",
    "watch": "Run a training as it is, and record its losses, spikes and a sample of its tensors at almost no cost.",
    "report": "Show what an investigation found, and write a page to share.",
    "view": "Show recorded runs live in a browser, and compare any two of them.",
    "analyze": "Report which of a script's operators a mode's backend supports, and which lines call the others.",
    "partition": "Run a model's supported operators on a mode's backend, and the rest on the CPU.",
    "bisect": "Find the first revision of a script, or version of torch, whose training differs beyond rounding.",
    "reference": "Pack a training that other machines, devices or versions can be compared with.",
    "neutral": "Try changes that should not matter, such as another optimizer loop, and say which do.",
    "baseline": "Keep a training as it is: save a baseline in the repository, and check trainings against it.",
    "resume": "End a training, start it again, and say what it did not restore.",
    "compare": "Show the first step at which runs differ, and by how much.",
    "localize": "Find the ops that make two recorded runs differ, and prove their effect by swapping their kernels.",
    "profile": "Trace steps of a training script in several modes, and show where their time goes.",
    "plot": "Draw loss curves, envelopes, drift or step times.",
    "metrics": "Show what each mode's backend compiled, executed and transferred, and at what cost.",
    "graph": "List and open the graphs of a run, or compare the graphs of two runs.",
    "kernels": "List an op's kernels, measure them, sweep them over all inputs, or compile your own.",
    "bundle": "Pack an investigation into one archive for a kernel's maintainers, or open such an archive.",
    "snapshot": "Keep individual executions with their inputs, outputs and graph, and replay them in any mode.",
    "runs": "List, show, export and remove recorded runs.",
    "doctor": "Show which modes work on this machine, and what the others lack.",
}

STARTING = (
    "investigate", "check", "analyze", "partition", "bisect", "neutral", "resume", "profile", "snapshot",
)  # fmt: skip
"""The commands that start trainings themselves and cannot be one of several tasks."""

EXAMPLES = """\b
Examples:
  numdrift investigate train.py --modes cpu,compile -- --epochs 10
  numdrift run train.py --modes cpu,compile,lazy -- --epochs 10
  numdrift compare runs/train
  numdrift doctor

\b
Shell completion (bash; zsh and fish work the same way):
  eval "$(_NUMDRIFT_COMPLETE=bash_source numdrift)"

Exit codes: 0 done, 1 drift beyond rounding or another verdict that needs attention, 2 wrong usage, 3 a run failed.
"""


class LazyGroup(click.Group):
    """A group that loads a command from the command's file in `package` when it is used. Its help loads no command."""

    def __init__(self, *args: Any, package: str, summaries: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._package = package
        self._summaries = summaries

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._summaries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._summaries:
            return None
        # imported here because the group's help and shell completion need no command
        command: click.Command = importlib.import_module(f".{cmd_name}", self._package).command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        # click's own message would not suggest the nearest command
        summaries = self._summaries
        if args and args[0] not in summaries and not args[0].startswith("-"):
            raise errors.UsageError(f"there is no command {args[0]!r}; {errors.nearest(args[0], summaries)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self._summaries.items()))


@click.group(
    cls=LazyGroup,
    package=__package__,
    summaries=COMMANDS,
    epilog=EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="numdrift")
@click.pass_context
def program(context: click.Context) -> None:
    """Find out where two runs of one PyTorch training script start to differ."""
    task = started_task(os.environ) if context.invoked_subcommand in STARTING else None
    if task is not None:
        raise errors.UsageError(
            f"{task.launcher.name} has started numdrift {task.world_size} times; only `numdrift run` records one rank "
            f"each time: start `numdrift {context.invoked_subcommand}` once, or unset {task.launcher.rank}"
        )


def main() -> None:
    """Run the command line. Print an expected error as one line on standard error."""
    try:
        code = program.main(prog_name="numdrift", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except errors.NumdriftError as error:
        _say(str(error))
        sys.exit(error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:  # a group without a command prints its help
        print(error.format_message())
        sys.exit(0)
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        name = context.command_path if context else "numdrift"
        message = " ".join(error.format_message().split())
        takes_arguments = context is not None and any(
            parameter.name == "arguments" for parameter in context.command.params
        )
        if isinstance(error, click.NoSuchOption) and takes_arguments:
            message += f" An option of the script goes after `--`, as in `{name} train.py -- {error.option_name}`."
        _say(f"{message} (`{name} --help` shows how)")
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        _say("interrupted")
        sys.exit(130)
    except BrokenPipeError:  # the reader of the output has ended, as `head` does: exit with 128 + SIGPIPE
        sys.exit(141)
    except OSError as error:
        if error.errno not in FULL:
            _crashed(error)
        of_file = f" ({error.filename})" if error.filename else ""
        _say(
            f"{os.strerror(error.errno or 0)}{of_file}: free some space, or write the runs elsewhere with --out; "
            "everything recorded so far is kept"
        )
        sys.exit(errors.NumdriftError.exit_code)
    except Exception as error:  # noqa: BLE001, a crash must not look like a verdict
        _crashed(error)


def _crashed(error: Exception) -> NoReturn:
    """Report an error that nothing expects, with its traceback."""
    traceback.print_exception(error)
    _say(f"this is a bug in numdrift ({type(error).__name__}); everything recorded so far is kept")
    sys.exit(INTERNAL_ERROR)


def _say(text: str) -> None:
    print(f"numdrift: {text}", file=sys.stderr)
