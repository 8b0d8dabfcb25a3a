"""Trains one of three models in turns with other processes, and tells what its steps have taken.

python tests/performance/recorded_steps.py char_gpt|resnet_digits|small --socket PATH --name NAME [--compile] [--way bare|mode|debug|hashes]

It connects to the socket and sends its name. For each number that it receives there, it trains so many steps, and answers with a line of
JSON: the seconds and the processor seconds that these steps have taken together, and the memory of the process.
"""

import argparse
import contextlib
import importlib
import json
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "reproducers"))

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._debug_mode import DebugMode
from torch.utils._python_dispatch import TorchDispatchMode

WARM_UP = 3
"""Steps before the first turn."""


def char_gpt(compiled: bool) -> Callable[[], None]:
    script: Any = importlib.import_module("char_gpt")
    text, vocabulary = script.encoded_text()
    torch.manual_seed(0)
    model = script.CharGPT(vocabulary)
    if compiled:
        model.compile()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step() -> None:
        starts = torch.randint(len(text) - script.CONTEXT, (script.BATCH, 1))
        cut = text[starts + torch.arange(script.CONTEXT + 1)]
        train(model, optimizer, cut[:, :-1].contiguous(), cut[:, 1:].flatten())

    return step


def resnet_digits(compiled: bool) -> Callable[[], None]:
    script: Any = importlib.import_module("resnet_digits")
    images, labels = script.digits()
    torch.manual_seed(0)
    model = script.ResNet()
    if compiled:
        model.compile()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def step() -> None:
        chosen = torch.randint(script.TRAIN_IMAGES, (script.BATCH,))
        train(model, optimizer, images[chosen], labels[chosen])

    return step


def small(compiled: bool) -> Callable[[], None]:
    torch.manual_seed(0)
    hidden = [nn.Linear(128, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 256), nn.Tanh()]
    model = nn.Sequential(*hidden, nn.Linear(256, 10))
    if compiled:
        model.compile()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x, labels = torch.randn(256, 128), torch.randint(10, (256,))
    return lambda: train(model, optimizer, x, labels)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, labels: Tensor) -> None:
    loss = F.cross_entropy(model(x).view(len(labels), -1), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


class EmptyMode(TorchDispatchMode):
    """Only calls the op."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class HashedOps(TorchDispatchMode):
    """Hashes the bytes of every output with xxh3, and keeps the hashes of a step."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._hash: Any = importlib.import_module("xxhash").xxh3_64_intdigest
        self.hashes: list[tuple[str, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        outputs = func(*args, **(kwargs or {}))
        for output in outputs if isinstance(outputs, (list, tuple)) else (outputs,):
            if isinstance(output, Tensor):
                self.hashes.append((str(func), self._hash(output.detach().contiguous().numpy())))
        return outputs


@contextlib.contextmanager
def debug_mode() -> Any:
    with DebugMode(), DebugMode.log_tensor_hashes(hash_fn="hash_tensor"):
        yield


MODELS = {"char_gpt": char_gpt, "resnet_digits": resnet_digits, "small": small}
WAYS: dict[str, Callable[[], Any]] = {
    "bare": contextlib.nullcontext,
    "mode": EmptyMode,
    "debug": debug_mode,
    "hashes": HashedOps,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=list(MODELS))
    parser.add_argument("--socket", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--way", choices=list(WAYS), default="bare")
    args = parser.parse_args()
    step, around = MODELS[args.model](args.compile), WAYS[args.way]

    def steps(count: int) -> tuple[float, float]:
        began, used = time.perf_counter(), time.process_time()
        for _ in range(count):
            with around():
                step()
        return time.perf_counter() - began, time.process_time() - used

    steps(WARM_UP)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(args.socket)
        with connection.makefile("rw", encoding="utf-8") as turns:
            print(args.name, file=turns, flush=True)
            for count in turns:
                print(json.dumps([*steps(int(count)), resident()]), file=turns, flush=True)


def resident() -> int:
    """Return the bytes of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


if __name__ == "__main__":
    main()
