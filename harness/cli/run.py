"""`numdrift run`: runs a script in several modes and records the runs."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from typing import Any

import click

from ..api.api_running import BatchRequest, Silent, planned_batch
from ..errors import UsageError
from ..launch.batch_plan import check_script
from ..launch.execute_batch import execute
from ..launch.supervise import PassThrough
from ..launch.tasks.ranks_of_tasks import execute_as_task
from ..launch.tasks.started_task import StartedTask, is_of_own_agent, started_task
from ..launch.tasks.task_meeting import TaskMeeting
from ..launch.tasks.torch_agent import RUN_ID, Agent
from ..records.modes.mode_registry import OWN, VENDORS
from . import command_options as options
from .on_engine import EngineChoice, engine_options
from .output import console
from .progress import reporter_for
from .shown_runs import ShownRuns

EXAMPLES = f"""\b
Examples:
  numdrift run train.py --modes cpu,compile,lazy -- --epochs 10
  numdrift run train.py --mode cpu --mode "contracted=compile,contract=fast" --record ops --steps 0-2
  numdrift run train.py --modes cpu,compile --suffix before --name study
  numdrift run -m package.train --modes cpu,compile --strict -- --epochs 10
  numdrift run train.py --modes cpu,compile,lazy --graphs -- --epochs 2
  numdrift run train.py --modes compile,lazy --metrics -- --epochs 2
  numdrift run train.py --mode compile --mode "b=compile,kernel.tanh_backward=fma"
  numdrift run train.py --mode "mine=cpu,kernel.tanh_backward=mine.c" --trace-kernel tanh_backward
  numdrift run train.py --modes cpu,compile --nproc 2
  numdrift run train.py --modes cpu --nproc 4 --nnodes 2 --rdzv-endpoint node0:29400 --out /shared/runs
  numdrift run train.py --modes cpu --states 0,10 --name study
  numdrift run train.py --modes compile --resync runs/study/cpu --steps 0,10 --name study

\b
A mode is written as [NAME=]BASE[,KEY=VALUE]... The first mode is the reference.
  bases  {", ".join([*(entry.name for entry in OWN), *VENDORS])}
  keys   device, backend, dtype, threads, seed, contract, emulate_casts, fallback_random, allow_rnn,
         graph_cache, draws, mark_step, execute, python, timeout, script, git, cwd, args, args+, env.<NAME>,
         kernel.<op>[@<module>][:<nth>],
         decompose.<op>, inductor.<option>, dynamic, the settings tf32, matmul_precision, sdpa,
         cudnn, mkldnn, benchmark, reduced_precision_reduction, deterministic, and other ways to
         execute: optimizer, clipping, zero_grad, checkpointing, memory_format, workers
"""


@click.command(epilog=EXAMPLES, help="Run SCRIPT once in each mode, in separate processes, and record what happens.")
@options.script_argument
@options.arguments_argument
@options.modes_option
@options.mode_option
@options.name_option
@options.options_of(BatchRequest, "suffix")
@options.recording_options(
    trace_kernels=options.options_of(BatchRequest, "kernels"),
    instruments=options.options_of(BatchRequest, "resync"),
    sketches=options.options_of(BatchRequest, "nproc"),
)
@click.option(
    "--nnodes",
    type=click.IntRange(min=1),
    metavar="M",
    help="Start the ranks with torchrun's agent, --nproc on each of M machines. Type the same command on each.",
)
@click.option(
    "--rdzv-endpoint",
    default="",
    metavar="HOST:PORT",
    help="With --nnodes: a port of one of the machines, at which all of them meet.",
)
@click.option(
    "--rdzv-id",
    default=RUN_ID,
    metavar="ID",
    show_default=True,
    help="With --nnodes: the same text on all machines of one launch.",
)
@options.options_of(BatchRequest, "module", "strict", "timeout", "jobs")
@engine_options
@click.option(
    "--pass-through",
    is_flag=True,
    help="Behave like `python SCRIPT`: pass input, output, signals and exit code through, and print nothing else.",
)
@options.quiet_option
@click.option("--verbose", "-v", is_flag=True, help="Also print what the scripts printed, and their error output.")
@options.out_option
@options.force_option
@options.json_option
def command(
    script: str | None,
    arguments: tuple[str, ...],
    listed: str | None,
    single: tuple[str, ...],
    nnodes: int | None,
    rdzv_endpoint: str,
    rdzv_id: str,
    choice: EngineChoice,
    pass_through: bool,
    quiet: bool,
    verbose: bool,
    json_path: str | None,
    **settings: Any,
) -> int:
    modes = options.chosen_modes(listed, single)
    request = BatchRequest.of(script, modes, arguments, settings, pass_through=pass_through)
    if choice.is_elsewhere():
        if pass_through or nnodes is not None:
            flag = "--pass-through" if pass_through else "--nnodes"
            raise UsageError(f"{flag} is not for --engine, which executes the command on one machine, without input")
        return choice.execute(request, suffix=request.suffix)
    shown = ShownRuns(quiet, verbose, json_path)
    of_own_agent = is_of_own_agent()
    if rdzv_endpoint and nnodes is None:
        raise UsageError("--rdzv-endpoint is where several machines meet: state their number, as in --nnodes 2")
    if nnodes is not None and not of_own_agent:
        agent = Agent(nnodes, request.nproc, rdzv_endpoint, rdzv_id)
        agent.check()
        check_several(request)
        check_script(planned_batch(replace(request, nproc=nnodes * request.nproc)).script)
        if nnodes > 1 and not quiet:
            console(stderr=True).print(f"waiting at {rdzv_endpoint} until {nnodes} machines are there", soft_wrap=True)
        return agent.run(sys.argv[1:])
    task = started_task(os.environ)
    if task is not None:
        return _run_as_task(request, task, shown, of_own_agent=of_own_agent)
    plan = planned_batch(request)
    if plan.pass_through:
        # The script's output and exit code are passed on. If signal N ended it, the code is 128 + N, as in a shell.
        folder = plan.investigation.run(plan.modes[0].name, plan.suffix)
        result = execute(plan, PassThrough({folder.stdout: sys.stdout.buffer, folder.stderr: sys.stderr.buffer}))
        code = next((run.manifest.exit_code for run in result.runs), None)
        if code is None:
            return result.exit_code
        return 128 - code if code < 0 else code
    shown.begin(plan)
    with reporter_for([spec.name for spec in plan.modes], quiet=quiet) as reporter:
        result = execute(plan, reporter)
    shown.end(plan, result)
    return result.exit_code


def _run_as_task(request: BatchRequest, task: StartedTask, shown: ShownRuns, *, of_own_agent: bool) -> int:
    """Record the rank of this task, which a launcher has started. Only rank 0 prints what the runs were."""
    if request.nproc > 1 and not of_own_agent:
        raise UsageError(
            f"{task.launcher.name} has started numdrift {task.world_size} times, and each time records one rank: leave "
            f"out --nproc {request.nproc}"
        )
    check_several(request)
    plan = planned_batch(replace(request, nproc=task.world_size))
    meeting = TaskMeeting(request.out / f".tasks-{task.launch_id}", task.rank, task.world_size)
    given_up = meeting.meet()
    if given_up is not None:
        return given_up
    plan = replace(plan, machines=meeting.machines)
    with meeting:
        if task.rank:
            host = meeting.hosts[task.rank]
            if meeting.hosts.index(host) == task.rank and not shown.quiet:  # the first rank of a further machine
                beside = [str(rank) for rank, other in enumerate(meeting.hosts) if other == host]
                text = f"{host} runs rank{'s' * (len(beside) > 1)} {', '.join(beside)} of {task.world_size}"
                console(stderr=True).print(f"{text}; {meeting.hosts[0]} shows the results", soft_wrap=True)
            execute_as_task(plan, task, meeting, Silent())
            return meeting.leave()
        shown.begin(plan)
        with reporter_for([spec.name for spec in plan.modes], quiet=shown.quiet) as reporter:
            result = execute_as_task(plan, task, meeting, reporter)
        assert result is not None
        shown.end(plan, result)
        meeting.exit_code = result.exit_code
        # The first task that ends with this code may make the launcher end the others.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return result.exit_code


def check_several(request: BatchRequest) -> None:
    """Raise UsageError for an option that runs of several tasks do not have."""
    if request.jobs > 1:
        raise UsageError("the modes of several tasks run one after another, in step: leave out --jobs")
    if request.pass_through:
        raise UsageError("--pass-through runs the script as python would, in one process: start numdrift once")
