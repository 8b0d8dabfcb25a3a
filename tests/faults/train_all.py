"""Train a model as it is, from initial parameters that are one ULP off, and with each case, and keep what steps gave.

    python tests/faults/train_all.py MODEL FOLDER NAME=MODE[,env.CASE=FAMILY/NAME]...

Each training is a process of its own, forked after torch is imported. FOLDER/NAME.pt holds a list of the values of
each step by name, or is missing where the training failed. NAME `off-1` to `off-3` are the perturbed ones.
"""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from numdrift.harness.records.modes.mode_spec import ModeSpec, parse_mode
from numdrift.kernels.swaps.engine import Swaps
from numdrift.kernels.swaps.request import known_kernels, swap_requests

sys.path.append(str(Path(__file__).parents[2]))
from tests.faults import training as plain

PERTURBED = ("off-1", "off-2", "off-3")
ONE_ULP = 2.0**-23


def main(model: str, folder: str, *specs: str) -> None:
    script = Path(__file__).parent / "models" / f"{model}.py"
    warm_up()
    for spec in ("reference=cpu", "again=cpu", *(f"{name}=cpu" for name in PERTURBED), *specs):
        mode = parse_mode(spec)
        child = os.fork()
        if child == 0:
            os._exit(train(script, mode, Path(folder, f"{mode.name}.pt")))
        os.waitpid(child, 0)


def warm_up() -> None:
    """Let the first step of an optimizer import what it imports, once for all."""
    p = torch.zeros(1, requires_grad=True)
    p.grad = torch.zeros(1)
    torch.optim.SGD([p], lr=0.1).step()


def train(script: Path, mode: ModeSpec, path: Path) -> int:
    try:
        os.environ.update(mode.env)
        if mode.threads is not None:
            torch.set_num_threads(mode.threads)
        Swaps(swap_requests(mode.kernel, mode.decompose), known_kernels([])).install("cpu")
        steps: list[dict[str, Tensor]] = []

        def collect(training: plain.Training) -> None:
            if mode.name in PERTURBED:
                perturb(training, PERTURBED.index(mode.name))
            for number in range(len(training.batches)):
                training.number = number
                loss = training.step(training)
                steps.append({"loss": loss.double()} | {k: v.clone() for k, v in values(training)})

        plain.train = collect
        runpy.run_path(str(script), run_name="__main__")
        torch.save(steps, path)
    except Exception:  # noqa: BLE001, whatever a case does is its result
        traceback.print_exc()
        return 1
    return 0


def perturb(training: plain.Training, seed: int) -> None:
    draws = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in training.model.parameters():
            p.mul_(1 + ONE_ULP * (2 * torch.randint(0, 2, p.shape, generator=draws) - 1))


def values(training: plain.Training) -> Iterator[tuple[str, Tensor]]:
    """What a step gave: gradients, and the state after it."""
    for name, p in training.model.named_parameters():
        if p.grad is not None:
            yield f"gradient {name}", p.grad.to_dense().double()
        yield f"parameter {name}", p.detach().double()
        for key, state in training.optimizer.state[p].items():
            if isinstance(state, Tensor):
                yield f"state {name}.{key}", state.double()
    for name, buffer in training.model.named_buffers():
        yield f"buffer {name}", buffer.double()
    if training.averaged is not None:
        for name, p in training.averaged.module.named_parameters():
            yield f"average {name}", p.detach().double()


if __name__ == "__main__":
    main(*sys.argv[1:])
