"""The test that CompilerBisector needs for reproducers/sam_tanh.py: is its training, compiled, good or bad?

    python -m torch._inductor.compiler_bisector run python tests/bisector/good_or_bad.py
    python tests/bisector/good_or_bad.py --in-process

It trains the reproducer's model twice from the same weights, eager and compiled, and compares every loss and all
final parameters: bit by bit, or as `--allow` says. The exit code is 0 for good and 1 for bad; the bisector sets the
backend and turns its parts off behind `torch.compile`. `run` empties the whole folder of TORCHINDUCTOR_CACHE_DIR.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch._inductor.compiler_bisector import CompilerBisector

REPRODUCERS = Path(__file__).parents[2] / "reproducers"
TOLERANCE = 1e-4  # relative and absolute, of the example in the bisector's own help

Trained = dict[str, Tensor]
"""What a training leaves: its losses and its parameters, by name."""


def main(argv: Sequence[str] | None = None) -> int:
    args = parse_arguments(argv)
    sys.path.insert(0, str(REPRODUCERS))
    if args.in_process:
        result = CompilerBisector.do_bisect(lambda: judged(args))
        print(f"Bisection complete: {result or 'no issue found'}")
        return 0
    return 0 if judged(args) else 1


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10, help="steps of each training, default 10")
    parser.add_argument(
        "--allow",
        choices=list(ALLOWED),
        default="nothing",
        help=f"differences that are good: none, or those within {TOLERANCE}",
    )
    parser.add_argument("--in-process", action="store_true", help="call CompilerBisector.do_bisect here")
    parser.add_argument("--log", type=Path, metavar="FILE", help="append a line for every test")
    return parser.parse_args(argv)


@dataclass
class Trainer:
    """Trains the reproducer's model, always from the same weights. `made` counts the trainings."""

    steps: int
    made: int = 0

    def train(self, backend: str | None = None) -> Trained:
        """Eager without a backend. Under the bisector every backend is the one that it tests."""
        self.made += 1
        reproducer = importlib.import_module("sam_tanh")
        torch._dynamo.reset()
        images, labels = reproducer.digits()
        torch.manual_seed(0)
        model = reproducer.TanhMLP()
        if backend:
            model.compile(backend=backend)
        count = reproducer.TRAIN_IMAGES
        arguments = reproducer.parse_arguments(["--epochs", str(self.steps), "--device", "cpu"])
        losses = reproducer.train(model, images[:count], labels[:count], arguments)
        return {"losses": torch.tensor(losses)} | {name: p.detach() for name, p in model.named_parameters()}


def judged(args: argparse.Namespace) -> bool:
    """Train both ways, compare, and log the verdict, the seconds and the number of trainings; True is good."""
    began = time.perf_counter()
    trainer = Trainer(args.steps)
    good = ALLOWED[args.allow](trainer)
    if args.log:
        part = f"{CompilerBisector.get_backend()} {CompilerBisector.get_subsystem() or '-'}"
        seconds = f"{time.perf_counter() - began:.2f}"
        with args.log.open("a") as file:
            file.write(f"{part} {'good' if good else 'bad'} {seconds} {trainer.made}\n")
    return good


def same_bits(trainer: Trainer) -> bool:
    return equal(trainer.train("inductor"), trainer.train())


def within_tolerance(trainer: Trainer) -> bool:
    compiled, eager = trainer.train("inductor"), trainer.train()
    return all(torch.allclose(compiled[name], eager[name], TOLERANCE, TOLERANCE) for name in eager)


def equal(a: Trained, b: Trained) -> bool:
    return all(torch.equal(a[name], b[name]) for name in b)


ALLOWED: dict[str, Callable[[Trainer], bool]] = {
    "nothing": same_bits,
    "tolerance": within_tolerance,
}

if __name__ == "__main__":
    sys.exit(main())
