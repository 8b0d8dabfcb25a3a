"""A mixture of experts: a router sends each token to two of four experts; Adam, written out.

    python tests/gpu/trainings/experts.py --steps 8 [--compile]

FAULT=bias leaves the correction of the second moments' bias out.
"""

import argparse
import os
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WORDS, WIDTH, EXPERTS, CHOSEN, CONTEXT, BATCH = 64, 64, 4, 2, 32, 8
FAULT = os.environ.get("FAULT", "")


class Adam(torch.optim.Optimizer):
    """Adam with a state for each parameter: how many steps, and both moments."""

    def __init__(self, params: Iterable[Tensor], lr: float, beta1: float = 0.9, beta2: float = 0.999) -> None:
        super().__init__(params, {"lr": lr, "beta1": beta1, "beta2": beta2})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            lr, beta1, beta2 = group["lr"], group["beta1"], group["beta2"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state.update(step=0, first=torch.zeros_like(p), second=torch.zeros_like(p))
                state["step"] += 1
                state["first"].lerp_(p.grad, 1 - beta1)
                state["second"].lerp_(p.grad * p.grad, 1 - beta2)
                corrected = 1.0 if FAULT == "bias" else 1 - beta2 ** state["step"]
                denominator = (state["second"] / corrected).sqrt() + 1e-8
                p.addcdiv_(state["first"], denominator, value=-lr / (1 - beta1 ** state["step"]))


class Mixture(nn.Module):
    """[N, W] tokens, each through the experts that the router likes best, [N, W]."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS)
        self.first = nn.Parameter(torch.randn(EXPERTS, WIDTH, 2 * WIDTH) / WIDTH**0.5)
        self.second = nn.Parameter(torch.randn(EXPERTS, 2 * WIDTH, WIDTH) / WIDTH**0.5)

    def forward(self, x: Tensor) -> Tensor:
        scores, experts = torch.topk(self.router(x), CHOSEN, dim=1)  # [N, CHOSEN] each
        which = experts.unsqueeze(2) == torch.arange(EXPERTS, device=x.device)  # [N, CHOSEN, E]
        weights = (which * torch.softmax(scores, dim=1).unsqueeze(2)).sum(1)  # [N, E]
        hidden = F.silu(torch.bmm(x.expand(EXPERTS, -1, -1), self.first))  # [E, N, 2W]
        return (torch.bmm(hidden, self.second) * weights.t().unsqueeze(2)).sum(0)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.word = nn.Embedding(WORDS, WIDTH)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.mixtures = nn.ModuleList(Mixture() for _ in range(2))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words: Tensor) -> Tensor:  # [N] -> [N, WORDS]
        x = self.word(words)
        for norm, mixture in zip(self.norms, self.mixtures, strict=True):
            x = x + mixture(norm(x))
        logits: Tensor = self.head(x)
        return logits


def main() -> None:
    args = parse_arguments()
    torch.manual_seed(0)
    model = Model().to(args.device)
    if args.compile:
        model.compile()
    optimizer = Adam(model.parameters(), lr=1e-3)
    texts = torch.randint(WORDS, (4, BATCH * CONTEXT))
    for step in range(args.steps):
        words = texts[step % len(texts)].to(args.device)
        loss = F.cross_entropy(model(words), (5 * words + 1) % WORDS)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.6f}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--compile", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
