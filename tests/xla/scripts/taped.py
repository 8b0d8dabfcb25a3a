"""A training whose last step is taped, and the same without a tape; prints what came of it as JSON.

python taped.py    # in the environment of torch_xla
"""

import json
import os
from collections.abc import Mapping
from typing import Any

os.environ["PJRT_DEVICE"] = "CPU"

import torch
import torch_xla

from numdrift.harness.backends.xla.mode import XlaMode
from numdrift.harness.backends.xla.taped_step import XlaStepRecorder
from numdrift.harness.backends.xla.xla_kernels import XlaKernels
from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.tape.recording.call_log import digest_of
from numdrift.harness.tape.replaying.replay import AsRecorded, Computation, Replay, is_same
from numdrift.harness.tape.serving.step_kernels import results
from numdrift.harness.tape.tape import Tape
from numdrift.harness.torch_private.deferred.xla import execute_pending

device = torch_xla.device()
mode = XlaMode(parse_mode("xla"))


def train(steps: int, taped: int) -> tuple[dict[str, torch.Tensor], float, XlaStepRecorder | None]:
    """The model's values and the last loss; of the step `taped` what was recorded."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 16),
        torch.nn.BatchNorm1d(16),
        torch.nn.Tanh(),
        torch.nn.LayerNorm(16),  # which torch_xla makes of others
        torch.nn.Unflatten(1, (1, 4, 4)),
        torch.nn.MaxPool2d(2),  # which it has for itself
        torch.nn.Flatten(),
        torch.nn.Linear(4, 1),
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    recorder = None
    for step in range(steps):
        batch = torch.randn(64, 8)
        if step == taped:
            execute_pending()
            recorder = XlaStepRecorder(step, __file__, mode.observe_cuts, set())
            recorder.start()
        x = batch.to(device)
        x[:, :2].mul_(0.5)  # through a view, of what came from the CPU
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), torch.ones(64, 1).to(device))
        if step == taped:
            recorder.watch("loss 0", loss)
        loss.backward()
        mode.execute()
        torch.nn.utils.clip_grad_norm_(
            model.parameters(), 0.5
        )  # torch_xla's own, with `torch.tensor(0.5, device="xla")`
        optimizer.step()
        if step == taped:
            for name, value in model.state_dict().items():
                recorder.watch(f"parameter {name}", value)
            recorder.over()
        mode.execute()
        if step == taped:
            recorder.stop()
    return {name: value.cpu() for name, value in model.state_dict().items()}, float(loss), recorder


class FromStep(AsRecorded):
    """The kernels of the step, each on what the step's ops gave before; `differing` are those that give other bits."""

    def __init__(self, kernels: XlaKernels) -> None:
        self.kernels = kernels
        self.digests = kernels.digests()
        self.differing: list[str] = []

    def execute(self, one: Computation, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Any]:
        outputs = self.kernels.execute(one, arguments, keywords)
        given = results(one, outputs, arguments, keywords)
        if [digest_of(value) for value in given] != self.digests[one.position]:
            self.differing.append(one.call.name)
            recorded = self.kernels.value(one.position)
            if recorded is not None:
                for value, real in zip(given, recorded, strict=True):
                    value.copy_(real)
        return outputs


plain, plain_loss, _ = train(3, taped=-1)
values, loss, recorder = train(3, taped=2)
tape: Tape = recorder.tape()
kernels = recorder.kernels(tape)
walk = FromStep(kernels)
replayed = Replay(tape).run(walk)
expected = tape.expected()
found = {
    "same bits": loss == plain_loss and all(is_same(one, plain[name]) for name, one in values.items()),
    "loss": float(expected["loss 0"]) == loss,
    "values": all(is_same(expected[f"parameter {name}"], one) for name, one in values.items()),
    "replayed": [name for name, one in expected.items() if not is_same(replayed[name], one)],
    "differing": walk.differing,
    "unknown": sum(None in one for one in kernels.digests()),
    "notes": list(kernels.notes),
    "calls": [(call.op, call.phase, call.module) for call in tape.calls],
    "composed": [(call.compiled.origin, call.name) for call in tape.calls if call.compiled is not None],
}
print(json.dumps(found))
