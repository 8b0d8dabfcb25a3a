"""A training written for torch_xla, in the words that its argument says:

mark      xm.xla_device(), xm.mark_step(), a step closure
barrier   xm.optimizer_step(barrier=True)
step      torch_xla.step() around each step
loader    MpDeviceLoader and xm.optimizer_step()
named     torch.device("xla") and torch_xla.sync()
traced    a block that is named by xp.StepTrace around each step
"""

import sys

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
import torch_xla.debug.profiler as xp
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr

words = sys.argv[1]
torch.manual_seed(0)
device = torch.device("xla") if words == "named" else torch_xla.device() if words == "step" else xm.xla_device()
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
batches = [(torch.randn(32, 8), torch.randn(32, 1)) for _ in range(6)]
seen = []


def closure(loss: torch.Tensor, step: int) -> None:
    seen.append(f"{step}: {loss.item():.3f}")


def train(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    return loss


loader = pl.MpDeviceLoader(batches, device) if words == "loader" else batches
for step, (x, y) in enumerate(loader):
    if words in ("step", "traced"):
        with torch_xla.step() if words == "step" else xp.StepTrace("train", step_num=step):
            loss = train(x.to(device), y.to(device))
            optimizer.step()
    else:
        loss = train(x.to(device), y.to(device))
        if words in ("barrier", "loader"):
            xm.optimizer_step(optimizer, barrier=words == "barrier")
        else:
            optimizer.step()
    if words == "mark":
        xm.add_step_closure(closure, args=(loss, step))
        xm.mark_step()
    if words == "named":
        torch_xla.sync()
xm.master_print(f"last loss {loss.item():.3f} of {xr.world_size()}, closures {seen}")
print("compiled", (met.metric_data("CompileTime") or [0])[0])
