"""The request for training runs, with the options that `run`, `investigate`, `profile` and `snapshot take` share.

A command with further options extends this request. The command line and the Python interface build the request from
the same options, and pass it to the same function.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self, TypedDict, cast

from ..errors import nearest
from ..records.modes.mode_spec import ModeSpec
from ..records.run.run_request import RunOptions, RunRequest, requested
from ..records.run.user_option import UserOption, option, options_of, read_options
from .batch_kernels import OwnKernels, own_kernels


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRequest:
    """A script in some modes, the limits of its runs, and where they are written."""

    OF_RUN: ClassVar[Sequence[str]] = ("max_steps", "max_seconds")
    """The fields of a `RunRequest` whose options are also options of this request."""

    script: str | None = None
    """A path, or the name of a console script; with `module`, the module's first argument."""
    arguments: tuple[str, ...] = ()
    modes: tuple[ModeSpec, ...] = ()
    run: Mapping[str, Any] = field(default_factory=dict)
    """The fields of a `RunRequest` that differ from their defaults."""

    module: str | None = option(
        None, "Run a module instead of SCRIPT, as `python -m NAME` does in the current folder.", flag="-m --module",
        metavar="NAME",
    )  # fmt: skip
    name: str | None = option(
        None, "Name of the investigation (default: the script's name, with a number if that name is taken)."
    )
    out: Path = option(
        Path("runs"),
        "The folder that contains the investigations.",
        Path,
        written="runs",
        kind=Path,
        shows_default=True,
    )
    kernels: tuple[tuple[str, Path], ...] = option(
        (),
        "A kernel of your own for OP, a .c or .py file. It is named after its file: kernel.OP=mine selects mine.c.",
        own_kernels,
        flag="--kernel",
        metavar="OP=PATH",
    )
    nproc: int = option(
        1,
        "Number of processes of each run, as in torchrun --nproc-per-node N; rank 0's folder contains the folders of "
        "the other ranks.",
        least=1,
        metavar="N",
        shows_default=True,
    )
    timeout: float | None = option(None, "End a run that takes longer than SECONDS.", kind=float, metavar="SECONDS")
    jobs: int = option(1, "Maximum number of runs at the same time.", least=1, shows_default=True)
    strict: bool = option(
        False, "Fail if numdrift does not understand something in the script (default: only report it as a doubt)."
    )
    force: bool = option(False, "Replace existing outputs.")

    @classmethod
    def options(cls) -> Mapping[str, UserOption]:
        """Return the users' options by their names in Python."""
        of_run = options_of(RunRequest)
        declared = [*options_of(cls).values(), *(of_run[field_name] for field_name in cls.OF_RUN)]
        return {user_option.name: user_option for user_option in declared}

    @classmethod
    def of(
        cls,
        script: Path | str | None,
        modes: Iterable[ModeSpec],
        arguments: Iterable[str],
        options: Mapping[str, Any],
        **further: Any,
    ) -> Self:
        """Return the request for a script with these users' options; `further` are fields that no option sets.

        Raises UsageError for an invalid value or combination, TypeError for an unknown option.
        """
        if unknown := next((name for name in options if name not in cls.options()), None):
            raise TypeError(f"unexpected keyword argument {unknown!r}; {nearest(unknown, cls.options())}")
        names_of_run = [options_of(RunRequest)[field_name].name for field_name in cls.OF_RUN]
        of_run = {name: value for name, value in options.items() if name in names_of_run}
        return cls(
            script=None if script is None else str(script),
            modes=tuple(modes),
            arguments=tuple(arguments),
            run=requested(cast("RunOptions", of_run)),
            **read_options(cls, options),
            **further,
        )


class TrainingOptions(TypedDict, total=False):
    """The users' options of a `TrainingRequest` by their names in Python."""

    module: str | None
    out: Path | str
    name: str | None
    kernels: OwnKernels | None
    nproc: int
    timeout: float | None
    jobs: int
    strict: bool
    force: bool
