"""A training that looks at its values once they are there: by torch_xla's step closures, and by numdrift's words.

It prints what each has seen, and at which step.

--early marks the step before the optimizer's, while its update is still to be called.
"""

import sys

import torch
import torch_xla.core.xla_model as xm

import numdrift

early = "--early" in sys.argv
torch.manual_seed(0)
device = xm.xla_device()
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
batches = [(torch.randn(32, 8), torch.randn(32, 1)) for _ in range(4)]
under_way = 0


def said(word: str, step: int, *values: torch.Tensor) -> None:
    print(word, step, "in", under_way, *(f"{float(one):.3f}" for one in values), flush=True)


for step, (x, y) in enumerate(batches):
    under_way = step
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x.to(device)), y.to(device))
    loss.backward()
    numdrift.after_step(lambda step, loss, bias: said("after_step", step, loss, bias), step, loss, model[2].bias)
    xm.add_step_closure(said, args=("closure", step, loss, model[2].bias))
    if early:
        xm.mark_step()
    optimizer.step()
    if not early:
        xm.mark_step()
print("end", f"{loss.item():.3f}", f"{model[2].bias.item():.3f}")
