"""A run that serves: after its script has ended, its process answers what is asked over a unix socket, then exits.

So whatever the script has patched, the mode's swaps, environment, threads and compiled code stay in place. Several may
ask, and one request is answered at a time; a client that goes away may come back.
"""

from __future__ import annotations

import ctypes
import gc
import os
import selectors
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import torch

from ..records.mode_spec import ModeSpec
from ..records.run_config import RunConfig
from ..records.step_files import outcome_file, recompiled_folder
from ..torch_private.device_work import give_back_device_memory
from ..torch_private.dispatching import without_dispatch_modes, without_function_modes
from .ensemble import in_words, measure_noise
from .laid_out import LaidOut, relaid
from .list_calls import TakenApartKernels, taken_apart
from .replay import Computation, executions, given
from .step_kernels import CallMemory, ReplayedKernels, StepKernels
from .step_settings import settings_of_step
from .tape import NotReplayable, Tape, View, views_in
from .tape_arguments import whole
from .tape_file import TAPES, read_tape, tape_file
from .tensor_file import write_tensors
from .wire import ConnectionEnded, Message, WireError, described, receive, send, tensors_of

# What a held run is asked for, with the fields of the request, and what it answers (`wire` says how they travel):
#
#     facts                            torch, threads, mode, pid, and the steps that were recorded
#     noise     step replays edge      what replays of the step with random rounding give, as in its noise file
#     digests   step                   the digests of what each call gave in the recorded step
#     notes     step                   what of that could not be observed, and why
#     prepare   step positions         nothing: it says which calls will be executed
#     execute   step position memory   what the mode's kernel gives for other inputs: `memory` lists the slots with
#                                      the starts of their spans, the segments are the spans
#     relaid    step position tensors  the same for arguments that lie otherwise than the recorded ones: `tensors` are
#                                      those that the call takes, in their order; the segments are their memory
#     called    step position          how the tensors of a call lay when the mode's code called the op itself, null
#                                      where that is not known
#     value     step position          what a call gave in the recorded step, where it was kept
#     recompile step mode name         executes the step with its compiled code compiled as this mode has it; the
#                                      outcome lies in the `recompiled_folder` of this name, or there is a `reason`
#
# With `"settings": {...}` a call is executed or relaid as if torch had been set so in the step.
# With `"apart": true` a request is about the step with its calls on lists taken apart (see `list_calls`).

OTHERS_SECONDS = 5.0
"""How long other processes on the device have to give memory back."""

COMPILED_STEPS = "numdrift.harness.backends.compiled.node_kernels"
"""Where the steps of compiled regions are registered; what is not loaded has registered none."""


@dataclass(frozen=True, slots=True, eq=False)
class HeldStep:
    """A recorded step and its kernels; the calls that compute something by their position. `tape` has no values: what
    needs them reads the tape anew, and lets it go."""

    tape: Tape
    calls: Mapping[int, Computation]
    kernels: StepKernels


class Requests:
    """Answers messages. A tape is read when it is first asked for."""

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self._folder = Path(config.journal).parent / TAPES
        self._steps: dict[tuple[int, bool], HeldStep] = {}

    def answer(self, request: Message) -> Message:
        """Raises whatever an op raises, and ValueError, TypeError or KeyError for a request that is none.

        Where a device has no memory left the request is tried once more: what others take may be free by then."""
        try:
            return self._answer(request)
        except torch.OutOfMemoryError:
            give_back_memory()
            time.sleep(OTHERS_SECONDS)
            return self._answer(request)

    def _answer(self, request: Message) -> Message:
        fields = request.fields
        match fields["request"]:
            case "facts":
                steps = [int(path.name[5:11]) for path in self._folder.glob("tape-*.safetensors")]
                return Message({
                    "torch": torch.__version__,
                    "threads": torch.get_num_threads(),
                    "mode": str(self._config.mode),
                    "pid": os.getpid(),
                    "steps": sorted(steps),
                })  # fmt: skip
            case "noise":
                step, asked = self._step(request), request.fields
                with settings_of_step(step.tape.settings):
                    compiled = not isinstance(step.kernels, ReplayedKernels)
                    replays, edge = whole(asked["replays"]), whole(asked["edge"])
                    found = measure_noise(self._tape(step.tape.step), replays, edge, compiled=compiled)
                give_back_memory()
                return Message({"noise": found.to_json()})
            case "digests":
                step = self._step(request)
                with settings_of_step(step.tape.settings):
                    digests = step.kernels.digests()
                give_back_memory()
                return Message({"digests": digests})
            case "notes":
                return Message({"notes": list(self._step(request).kernels.notes)})
            case "prepare":
                positions = [whole(position) for position in fields["positions"]]
                self._step(request).kernels.prepare(positions)
                return Message({})
            case "execute":
                return self._executed(request)
            case "relaid":
                return self._relaid(request)
            case "called":
                layouts = self._step(request).kernels.called(whole(fields["position"]))
                return Message({"layouts": None if layouts is None else [each.to_json() for each in layouts]})
            case "value":
                kept = self._step(request).kernels.value(whole(fields["position"]))
                if kept is None:
                    return Message({"tensors": None})
                with _unseen():
                    values, segments = described(kept)
                return Message({"tensors": values}, segments)
            case "recompile":
                return self._recompiled(request)
            case other:
                raise ValueError(f"no request is called {other!r}")

    def _call(self, request: Message) -> tuple[HeldStep, Computation]:
        step, position = self._step(request), whole(request.fields["position"])
        one = step.calls.get(position)
        if one is None:
            raise ValueError(f"step {step.tape.step} has no call {position} that computes something")
        return step, one

    def _given(self, request: Message) -> tuple[HeldStep, Computation, tuple[Any, ...], dict[str, Any]]:
        """A call, and what it is to take: these tensors in place of its views, in their order."""
        step, one = self._call(request)
        with _unseen():
            tensors = tensors_of(request.fields["tensors"], request.segments)
            views = list(views_in(one.call))
            if len(tensors) != len(views) or any(
                tensor is None or tuple(tensor.size()) != view.size or tensor.dtype != view.dtype
                for view, tensor in zip(views, tensors, strict=True)
            ):
                raise ValueError(f"{one.call.op} takes other tensors")
            each = iter(tensors)
            devices = iter(step.tape.slots[view.slot].device for view in views)

            def taken(view: View) -> torch.Tensor:
                tensor, device = next(each), next(devices)
                assert tensor is not None
                # Copied to another device it would be laid out anew.
                return tensor if device == "cpu" else relaid(tensor.to(device), LaidOut.of(tensor))

            arguments, keywords = given(one.call, taken)
        return step, one, arguments, keywords

    def _relaid(self, request: Message) -> Message:
        step, one, arguments, keywords = self._given(request)
        with settings_of_step(_in_force(step, request)):
            outputs = step.kernels.execute(one, arguments, keywords)
        with _unseen():
            fresh = [output if new else None for output, new in zip(outputs, one.call.fresh, strict=True)]
            values, segments = described([*fresh, *one.written(arguments, keywords)])
        return Message({"outputs": values[: len(fresh)], "written": values[len(fresh) :]}, segments)

    def _executed(self, request: Message) -> Message:
        step, one = self._call(request)
        with _unseen():
            # The spans that were sent, by slot
            slots = len(step.tape.slots)
            listed = request.fields["memory"]
            if not isinstance(listed, list) or len(listed) != len(request.segments):
                raise ValueError("a memory without its spans")
            content: dict[int, tuple[int, torch.Tensor]] = {}
            for (slot, start), segment in zip(listed, request.segments, strict=True):
                if whole(slot) >= slots or slot in content:
                    raise ValueError(f"a span of slot {slot}, which there is not, or twice")
                content[slot] = whole(start), segment
            memory = CallMemory(one.call, step.tape.slots, content)
            arguments, keywords = memory.given()
        # The kernel itself is executed as in the step: as torch was set there, under the modes that the script has
        # left on.
        with settings_of_step(_in_force(step, request)):
            outputs = step.kernels.execute(one, arguments, keywords)
        if len(outputs) != len(one.call.outputs):
            raise ValueError(f"{one.call.op} gives {len(outputs)} results, recorded were {len(one.call.outputs)}")
        fresh = [output if new else None for output, new in zip(outputs, one.call.fresh, strict=True)]
        with _unseen():
            written = list(dict.fromkeys(view.slot for view in one.written_views()))
            values, segments = described(fresh)
            return Message(
                {"outputs": values, "written": written}, [*segments, *(memory.content(slot).cpu() for slot in written)]
            )

    def _recompiled(self, request: Message) -> Message:
        step, spec = self._step(request), ModeSpec.from_json(request.fields["mode"])
        number = step.tape.step
        path = outcome_file(recompiled_folder(self._folder.parent, str(request.fields["name"])), number)
        try:
            with settings_of_step(step.tape.settings):
                values = step.kernels.recompiled(self._tape(number), spec, self._config.mode)
        except Exception as error:  # noqa: BLE001, a compiler may raise anything
            return Message({"reason": str(error) if isinstance(error, NotReplayable) else in_words(error)})
        path.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(path, {name: one.cpu() for name, one in values.items()}, {"step": number, "mode": str(spec)})
        return Message({})

    def _step(self, request: Message) -> HeldStep:
        step, apart = whole(request.fields["step"]), request.fields.get("apart") is True
        if (step, apart) not in self._steps:
            tape = self._tape(step).without_values()
            # A mode that compiles has registered what its graphs really computed; any other one replays.
            compiled: Mapping[int, StepKernels] = getattr(sys.modules.get(COMPILED_STEPS), "STEPS", {})
            kernels = compiled.get(step) or ReplayedKernels(lambda: self._tape(step))
            if apart:
                tape, origins = taken_apart(tape)
                kernels = TakenApartKernels(kernels, origins)
            self._steps[step, apart] = HeldStep(tape, {call.position: call for call in executions(tape)}, kernels)
        return self._steps[step, apart]

    def _tape(self, step: int) -> Tape:
        path = tape_file(self._folder, step)
        if not path.exists():
            raise ValueError(f"there is no tape of step {step}")
        return read_tape(path)


def _in_force(step: HeldStep, request: Message) -> dict[str, Any]:
    """What torch is to be set to for a call: as in the step, but for what the request states."""
    settings = request.fields.get("settings", {})
    if not isinstance(settings, dict) or not all(isinstance(one, bool | int | str) for one in settings.values()):
        raise ValueError("settings that are none")
    return {**step.tape.settings, **settings}


@contextmanager
def _unseen() -> Iterator[None]:
    """What happens here is seen by no mode that the script has left on, and no graph grows."""
    with without_dispatch_modes(), without_function_modes(), torch.no_grad():
        yield


FIRST_WAIT = NEXT_WAIT = 24 * 3600.0
"""Seconds until somebody must have connected, and until the next request must have come: other modes may train for
long before they can be held against this one. Whose asker dies is ended by the system (see recorder/bootstrap.py)."""

LONGEST_PATH = 100
"""Bytes of a unix socket's path; Linux takes 107."""

QUIT = "quit"


def serve(config: RunConfig, notice: Callable[[str], None]) -> None:
    """Answer at the path `config.serve` until told to quit, or until nothing has been asked for long."""
    path = Path(config.serve)
    if len(os.fsencode(path)) > LONGEST_PATH:
        notice(f"the run is not served: {path} is longer than the {LONGEST_PATH} bytes of a socket's path")
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        try:
            # Listen at a path that nobody else may connect to
            # The file is made by bind with the rights that the umask leaves: rights set afterwards would come
            # too late.
            before = os.umask(0o177)
            try:
                listening.bind(os.fspath(path))
            finally:
                os.umask(before)
            listening.listen(16)
        except OSError as error:
            notice(f"the run is not served: {path} cannot be listened at: {error.strerror}")
            return
        give_back_memory()
        try:
            Service(Requests(config)).run(listening)
        finally:
            with suppress(OSError):
                path.unlink()


def give_back_memory() -> None:
    """What has been freed goes back to the system and the device: allocators keep it for the next one who asks."""
    gc.collect()
    give_back_device_memory()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc
    if trim is not None:
        trim(0)


class Service:
    """Takes connections, and answers all their requests one by one: kernels are executed in this thread only."""

    def __init__(self, requests: Requests, first_wait: float = FIRST_WAIT, next_wait: float = NEXT_WAIT) -> None:
        self._requests = requests
        self._first_wait = first_wait
        self._next_wait = next_wait

    def run(self, listening: socket.socket) -> None:
        """Answer until told to quit, or until nothing has been asked for long."""
        wait = self._first_wait
        with selectors.DefaultSelector() as selector, ExitStack() as open_connections:
            selector.register(listening, selectors.EVENT_READ)
            while ready := selector.select(wait):
                wait = self._next_wait
                for key, _ in ready:
                    if key.fileobj is listening:
                        connection = open_connections.enter_context(listening.accept()[0])
                        connection.settimeout(self._next_wait)
                        selector.register(connection, selectors.EVENT_READ)
                        continue
                    connection = cast(socket.socket, key.fileobj)
                    match self._answered(connection):
                        case "quit":
                            return
                        case "closed":  # the client may come back
                            selector.unregister(connection)
                            connection.close()

    def _answered(self, connection: socket.socket) -> Literal["answered", "closed", "quit"]:
        """Answer the next request of a connection."""
        try:
            request = receive(connection)
            if request.fields.get("request") == QUIT:
                send(connection, Message({}))
                return "quit"
            try:
                answer = self._requests.answer(request)
            except Exception as error:  # noqa: BLE001, an op may raise anything
                answer = Message({"error": in_words(error)})
            try:
                send(connection, answer)
            except ValueError as error:  # what cannot be sent is told, and the connection is still good
                send(connection, Message({"error": str(error)}))
        except ConnectionEnded:
            return "closed"
        except WireError as error:
            with suppress(OSError):
                send(connection, Message({"error": str(error)}))
            return "closed"
        except OSError:  # also of a client that has hung within a message
            return "closed"
        return "answered"
