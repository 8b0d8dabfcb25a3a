"""Train a small network with a layer of each kind; the script may put kernels of its own in place of torch's, and set torch.

    python own_kernel.py [--setting threads --at 5] [--steps 14]

FAULT in the environment puts the script's own kernel in place of torch's for that op (`tanh`, `tanh_backward`, `threshold_backward`),
from the step FROM on. SCALE multiplies what the network gives, EPS is that of the norm. --setting is set at the start of step --at, as by a script
that knows its machine.
"""

import argparse
import os
from collections.abc import Callable

import torch
from torch import Tensor, nn

FAULT, FROM = os.environ.get("FAULT", ""), int(os.environ.get("FROM", "0"))
SCALE, EPS = float(os.environ.get("SCALE", "1")), float(os.environ.get("EPS", "1e-5"))
OWN_KERNELS = torch.library.Library("aten", "IMPL")

SETTINGS: dict[str, Callable[[], object]] = {
    "none": lambda: None,
    "threads": lambda: torch.set_num_threads(1),
    "denormal": lambda: torch.set_flush_denormal(True),
    "precision": lambda: torch.set_float32_matmul_precision("medium"),
    "deterministic": lambda: torch.use_deterministic_algorithms(True),
    "onednn": lambda: torch.backends.mkldnn.set_flags(False),
}
step = 0


class Network(nn.Module):
    """The convolution's sums are others in one thread than in two, oneDNN has another order, and `tiny` is too small to
    be a normal number."""

    def __init__(self) -> None:
        super().__init__()
        self.images = nn.Conv1d(4, 8, 3, padding=1)
        self.wide, self.narrow = nn.Linear(32, 128), nn.Linear(128, 8)
        self.norm = nn.LayerNorm(128, eps=EPS)

    def forward(self, x: Tensor) -> Tensor:  # [B, 4, 32] -> [B, 8]
        h = torch.tanh(self.wide(torch.relu(self.images(x)).mean(1)))
        tiny = h * 1e-39
        y: Tensor = self.narrow(self.norm(h + tiny * 1e38)) * SCALE
        return y


def tanh(x: Tensor) -> Tensor:
    right = torch.sigmoid(2 * x) * 2 - 1
    return right if step < FROM else right.bfloat16().float()


def tanh_backward(grad: Tensor, y: Tensor) -> Tensor:
    right = grad * (1 - y * y)
    return right if step < FROM else right.bfloat16().float()


def threshold_backward(grad: Tensor, x: Tensor, threshold: float) -> Tensor:
    return grad * (x > threshold) * (1.0 if step < FROM else 1.01)


def main() -> None:
    global step
    parser = argparse.ArgumentParser()
    parser.add_argument("--setting", choices=SETTINGS, default="none")
    parser.add_argument("--at", type=int, default=0)
    parser.add_argument("--steps", type=int, default=14)
    args = parser.parse_args()
    if FAULT:
        own: dict[str, Callable[..., Tensor]] = {
            "tanh": tanh,
            "tanh_backward": tanh_backward,
            "threshold_backward": threshold_backward,
        }
        OWN_KERNELS.impl(FAULT, own[FAULT], "CPU")
    torch.manual_seed(0)
    inputs, labels = torch.randn(64, 4, 32), torch.randint(8, (64,))
    model = Network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(args.steps):
        if step == args.at:
            SETTINGS[args.setting]()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
    print(f"last loss {loss.item():.6f}")


if __name__ == "__main__":
    main()
