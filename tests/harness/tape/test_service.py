"""Runs that serve, as the batch starts them."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import pytest
import torch

from numdrift.harness.errors import WorkerError, WorkerGone
from numdrift.harness.launch.batch_plan import BatchPlan
from numdrift.harness.launch.execute_batch import BatchResult, execute_together
from numdrift.harness.launch.journal_tail import JournalProgress
from numdrift.harness.launch.running_process import ProcessEnd, Running
from numdrift.harness.launch.workers import Workers
from numdrift.harness.localize.execute.worker import Worker
from numdrift.harness.records import frames
from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.records.run.run_config import RunConfig
from numdrift.harness.records.run.step_selection import StepSelection
from numdrift.harness.runs.run_layout import InvestigationFolder
from numdrift.harness.tape.files.tape_file import read_tape, tape_file
from numdrift.harness.tape.replaying.replay import Replay, executions, is_same
from numdrift.harness.tape.serving.requests import Requests
from numdrift.harness.tape.serving.service import Service, serve
from numdrift.harness.tape.serving.step_kernels import ReplayedKernels
from numdrift.harness.tape.serving.wire import Message, receive, send
from numdrift.harness.tape.tape import Tape

from .elsewhere import Elsewhere, Memory

SCRIPT = """
import sys
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Dropout(0.25), nn.Linear(12, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
x, y = torch.randn(16, 6), torch.randint(0, 4, (16,))
for step in range(3):
    optimizer.zero_grad()
    logits = model(x)
    logits[:, 1:3] *= 2
    logits.t()[0].add_(0.5)
    nn.functional.cross_entropy(logits, y).backward()
    optimizer.step()
torch.manual_seed(7)
torch.set_grad_enabled(False)
torch.set_default_device("meta")
sys.exit({code})
"""
STEP = 1


class Alive:
    """A process that goes on."""

    def poll(self) -> None:
        return None

    def end(self, how: str, patience: float) -> None: ...


class Quiet:
    def started(self, name: str) -> None: ...

    def progressed(self, name: str, progress: JournalProgress) -> None: ...

    def ended(self, name: str, end: ProcessEnd) -> None: ...


@dataclass
class Held:
    """Runs under way in a thread, each serving at a socket of its own."""

    folder: Path
    plans: list[BatchPlan]
    thread: threading.Thread = field(init=False)
    result: BatchResult = field(init=False)

    def start(self) -> None:
        self.thread = threading.Thread(target=self._execute)
        self.thread.start()

    def _execute(self) -> None:
        self.result = execute_together(self.plans, Quiet(), len(self.plans))

    def socket(self, mode: str) -> Path:
        (found,) = (plan.serve for plan in self.plans if plan.modes[0].name == mode)
        assert found is not None
        return found

    def connect(self, mode: str) -> Worker:
        return Worker.connect(self.socket(mode), 60, name=mode, alive=self.thread.is_alive)

    def tape(self, mode: str) -> Tape:
        path = tape_file(self.folder / "runs" / mode / "tapes", STEP)
        while not path.exists() and self.thread.is_alive():
            time.sleep(0.05)
        return read_tape(path)

    def quit(self) -> BatchResult:
        for plan in self.plans:
            if self.thread.is_alive():
                self.connect(plan.modes[0].name).quit()
        self.thread.join(60)
        return self.result


def holding(folder: Path, *modes: str, code: int = 0) -> Held:
    script = folder / "train.py"
    script.write_text(SCRIPT.format(code=code))
    plans = [
        BatchPlan(
            script,
            [spec],
            InvestigationFolder(folder / "runs"),
            tapes=StepSelection.parse(str(STEP)),
            noise_replays=1,
            serve=folder / f"{spec.name}.socket",
            in_place=True,
        )
        for spec in map(parse_mode, modes)
    ]
    return Held(folder, plans)


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    """A plain mode and one with another kernel, both held after the script."""
    found = holding(tmp_path_factory.mktemp("held"), "cpu", "bad=cpu,kernel.tanh_backward=bf16")
    found.start()
    try:
        yield found
    finally:
        result = found.quit()
        assert [run.manifest.status for run in result.runs] == ["complete", "complete"]
        assert [run.manifest.exit_code for run in result.runs] == [0, 0]
        assert [run.manifest.notices for run in result.runs] == [[], []]
        assert not list(found.folder.glob("*.socket"))


def through(worker: Worker, tape: Tape) -> Elsewhere:
    return Elsewhere(len(tape.calls), lambda position, memory: worker.execute(STEP, position, memory))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["cpu", "bad"])
def test_every_call_executed_over_there_gives_every_bit_of_the_run(held: Held, mode: str) -> None:
    with held.connect(mode) as worker:
        # given
        tape = held.tape(mode)
        elsewhere = through(worker, tape)
        # when the tape is replayed call by call in the run's own process
        values = Replay(tape).run(elsewhere)
        digests = worker.digests(STEP)
        assert worker.notes(STEP) == []
    # then all that the step is compared by is there again, and every value on the way
    assert all(is_same(values[name], value) for name, value in tape.expected().items())
    known = [
        (mine, theirs)
        for call, found, expected in zip(tape.calls, elsewhere.digests, digests, strict=True)
        for mine, theirs in zip(found, expected, strict=True)
        if "empty" not in call.name
    ]
    assert all(mine == theirs for mine, theirs in known) and len(known) > 50
    assert {"bernoulli_", "mul_", "add_", "tanh_backward", "lerp_"} <= {call.name for call in tape.calls} and any(
        call.draw is not None for call in tape.calls
    )


def test_another_kernel_answers_where_it_is_installed(held: Held) -> None:
    # given what plain kernels give here
    tape = held.tape("bad")
    plain = ReplayedKernels(lambda: tape).digests()
    # when
    with held.connect("bad") as worker:
        digests = worker.digests(STEP)
    with held.connect("cpu") as worker:
        assert worker.digests(STEP) == ReplayedKernels(lambda: held.tape("cpu")).digests()
    # then the first difference is that kernel's
    differing = [call.name for call, one, other in zip(tape.calls, plain, digests, strict=True) if one != other]
    assert differing[0] == "tanh_backward"


def test_one_call_on_the_same_memory_differs_by_the_kernel(held: Held) -> None:
    tape = held.tape("cpu")
    one = next(one for one in executions(tape) if one.call.name == "tanh_backward")
    gradient, output = (view.slot for view in one.call.arguments)
    torch.manual_seed(0)
    g, y = torch.randn(one.call.arguments[0].size), torch.rand(one.call.arguments[1].size)
    found = []
    for mode in ("cpu", "bad"):
        taped = held.tape(mode)
        (position,) = (one.position for one in executions(taped) if one.call.name == "tanh_backward")
        memory: Memory = {gradient: (0, as_bytes(g)), output: (0, as_bytes(y))}
        with held.connect(mode) as worker:
            (result,), written = worker.execute(STEP, position, memory)
        assert result is not None and not written
        found.append(result)
    assert is_same(found[0], torch.ops.aten.tanh_backward(g, y))
    assert not is_same(found[0], found[1]) and torch.allclose(found[0], found[1], atol=0.05)


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8).reshape(-1)


def test_facts(held: Held) -> None:
    with held.connect("bad") as worker:
        facts = worker.facts()
    assert facts.torch == torch.__version__ and facts.steps == (STEP,) and facts.threads >= 1
    assert facts.mode == "bad=cpu,kernel.tanh_backward=bf16"
    assert facts.pid != os.getpid()


def test_errors_are_answers_and_the_connection_goes_on(held: Held) -> None:
    with held.connect("cpu") as worker:
        for ask in (
            lambda: worker.digests(2),
            lambda: worker.execute(STEP, 10**6, {}),
            lambda: worker.execute(STEP, executions(held.tape("cpu"))[3].position, {}),
        ):
            with pytest.raises(WorkerError) as failed:
                ask()
            assert not isinstance(failed.value, WorkerGone) and failed.value.name == "cpu"
        assert worker.value(STEP, 3) is None
        worker.prepare(STEP, [1, 2])
        assert worker.digests(STEP)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 4,
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">Q", 5) + b"[1,2]",
        struct.pack(">Q", 37) + b'{"fields": {}, "segments": [99999999]}',
    ],
)
def test_a_client_that_goes_away_or_talks_nonsense_leaves_the_run_in_place(held: Held, content: bytes) -> None:
    held.connect("cpu").close()  # it serves by now
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(os.fspath(held.socket("cpu")))
        client.sendall(content)
        client.shutdown(socket.SHUT_WR)
        client.settimeout(30)
        answered = bool(client.recv(1))
    assert answered == bool(content)
    with held.connect("cpu") as worker:
        assert worker.facts().steps == (STEP,)


def test_a_request_is_answered_to_nobody_when_its_client_has_gone(held: Held) -> None:
    held.connect("cpu").close()  # it serves by now
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(os.fspath(held.socket("cpu")))
        send(client, Message({"request": "digests", "step": STEP}))
    with held.connect("cpu") as worker:
        assert worker.facts().steps == (STEP,)


def test_several_ask_one_run_at_a_time(held: Held) -> None:
    # when a second client asks while the first one is connected, and the first one asks again
    with held.connect("bad") as first, held.connect("bad") as second:
        facts = [first.facts(), second.facts(), first.facts()]
    assert facts[0] == facts[1] == facts[2]


def test_a_run_is_asked_for_stronger_rounding_of_a_step_without_torch(held: Held) -> None:
    # given the run among those that an investigation holds, and its worker, which answers by now
    processes = Workers()
    processes.keep(Path("run"), cast(Running, Alive()), held.socket("bad"))
    with held.connect("bad") as worker:
        worker.facts()
    # when
    found = processes.ask(Path("run"), {"request": "noise", "step": STEP, "replays": 2, "edge": 3})
    # then the noise is that of its tape, executed by its own kernels, and jumps are looked for
    assert found is not None and found["noise"]["equal"] and found["noise"]["replays"] == 2
    assert found["noise"]["edge"]["replays"] == 3
    # and what it cannot answer, or who is not there, gives nothing
    assert processes.ask(Path("run"), {"request": "noise", "step": 999, "replays": 2, "edge": 3}) is None
    assert processes.ask(Path("other"), {"request": "facts"}) is None


def test_the_socket_is_for_its_owner_alone(held: Held) -> None:
    held.connect("cpu").close()
    assert held.socket("cpu").stat().st_mode & 0o077 == 0


def test_serving_counts_no_call_of_a_swapped_kernel(held: Held) -> None:
    counts = held.folder / "runs" / "bad" / "journal" / frames.KERNELS
    with held.connect("bad") as worker:
        before = counts.read_bytes()
        Replay(held.tape("bad")).run(through(worker, held.tape("bad")))
    assert any(before) and counts.read_bytes() == before


@pytest.mark.slow
def test_a_script_that_fails_is_not_served(tmp_path: Path) -> None:
    found = holding(tmp_path, "cpu", code=3)
    found.start()
    with pytest.raises(WorkerGone, match="ended before it accepted"):
        found.connect("cpu")
    (run,) = found.quit().runs
    assert (run.manifest.status, run.manifest.exit_code) == ("crashed", 3)


@pytest.mark.slow
def test_a_run_that_cannot_be_served_is_well_and_says_so(tmp_path: Path) -> None:
    found = holding(tmp_path, "cpu")
    found.plans = [replace(plan, serve=tmp_path / "missing" / "s") for plan in found.plans]
    found.start()
    found.thread.join(60)
    (run,) = found.result.runs
    assert (run.manifest.status, run.manifest.exit_code) == ("complete", 0)
    (notice,) = run.manifest.notices
    assert "the run has no worker" in notice


def configured(folder: Path, path: str) -> RunConfig:
    return RunConfig(__file__, parse_mode("cpu"), str(folder / "journal"), serve=path)


def test_what_cannot_be_listened_at_is_told(tmp_path: Path) -> None:
    told: list[str] = []
    serve(configured(tmp_path, str(tmp_path / "missing" / "s")), told.append, {})
    serve(configured(tmp_path, str(tmp_path / ("x" * 100))), told.append, {})
    assert len(told) == 2
    assert (
        "the run has no worker: it cannot listen at" in told[0]
        and "No such file or directory" in told[0]
        and "longer than" in told[1]
    )


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[tuple[socket.socket, Path]]:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as found:
        found.bind(os.fspath(path))
        found.listen(1)
        yield found, path


def elapsed(work: Callable[[], None]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def test_without_any_request_it_ends(listening: tuple[socket.socket, Path], tmp_path: Path) -> None:
    service = Service(Requests(configured(tmp_path, ""), {}), 0.1, 60)
    assert 0.1 <= elapsed(lambda: service.run(listening[0])) < 5


@pytest.mark.parametrize("stays", [True, False])
def test_after_the_last_request_it_waits_for_another_one_and_ends(
    listening: tuple[socket.socket, Path], tmp_path: Path, stays: bool
) -> None:
    service = Service(Requests(configured(tmp_path, ""), {}), 60, 0.2)
    thread = threading.Thread(target=service.run, args=(listening[0],))
    thread.start()
    with Worker.connect(listening[1], 10) as worker:
        assert worker.facts().steps == ()
        if not stays:
            worker.close()
        assert 0.1 <= elapsed(lambda: thread.join(10)) < 5
        if stays:
            with pytest.raises(WorkerGone):
                worker.facts()
            worker.quit()


def test_an_answer_that_is_none_is_an_error(listening: tuple[socket.socket, Path]) -> None:
    def answer() -> None:
        connection, _ = listening[0].accept()
        with connection:
            for fields in ({}, {"digests": 3}, {"outputs": [{"view": 1}], "written": []}, {"tensors": 4}):
                receive(connection)
                send(connection, Message(fields))

    thread = threading.Thread(target=answer)
    thread.start()
    with Worker.connect(listening[1], 10, name="run") as worker:
        for ask in (
            worker.facts,
            lambda: worker.digests(0),
            lambda: worker.execute(0, 0, {}),
            lambda: worker.value(0, 0),
        ):
            with pytest.raises(WorkerError, match="the process of run: its answer cannot be understood"):
                ask()
        thread.join(10)
        with pytest.raises(WorkerGone):
            worker.facts()


def test_nobody_there_is_told_after_the_time(tmp_path: Path) -> None:
    with pytest.raises(WorkerGone, match=r"did not accept a connection at .* within 0.1 s"):
        Worker.connect(tmp_path / "s", 0.1)
    with pytest.raises(WorkerGone, match="cannot be reached"):
        Worker.connect(tmp_path / ("x" * 200), 0.1)


def test_what_a_run_has_written_stays_while_its_process_is_held(tmp_path: Path) -> None:
    """The process still sees it: without it the folders in which it lies cannot be read, and imports fail."""
    written = tmp_path / "run" / "written" / "0" / "files" / "__pycache__"
    written.mkdir(parents=True)
    processes = Workers()
    for _ in range(2):  # also where a process is held in place of another one
        processes.keep(tmp_path / "run", cast(Running, Alive()), tmp_path / "no.sock")
        assert written.exists()
    processes.let_go(tmp_path / "run")
    assert not (tmp_path / "run" / "written").exists()
