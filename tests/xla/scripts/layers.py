"""Linear layers whose outputs are looked at, in torch_xla's own words: what that compiles and executes.

python layers.py printed marked closed named    # these parts, each by itself, whatever was compiled before
python layers.py handed                         # an op between them that torch_xla hands to the CPU
python layers.py four                           # four layers, of which the last has the shapes of the second
"""

import sys

import torch
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met

device = xm.xla_device()
torch.manual_seed(0)
count = dict.fromkeys(("compiled", "executed", "printed"), 0)


def work() -> dict[str, int]:
    """Graphs, and ops where each is executed by itself."""
    names = {"compiled": ("CompileTime", "EagerOpCompileTime"), "executed": ("ExecuteTime", "EagerOpExecuteTime")}
    return {what: sum((met.metric_data(name) or [0])[0] for name in each) for what, each in names.items()}


def tell(part: str) -> None:
    """What was compiled and executed since the last time."""
    xm.wait_device_ops()
    now = work()
    print(f"{part}: compiled {now['compiled'] - count['compiled']}, executed {now['executed'] - count['executed']}")
    count.update(now)


def show(tensor: torch.Tensor) -> None:
    print(tensor)


for batch, part in enumerate(sys.argv[1:], 2):
    # A batch of its own for each part: no graph of it was compiled for another.
    input1 = torch.randn(batch, 10).to(device)
    linear1, linear2 = torch.nn.Linear(10, 30).to(device), torch.nn.Linear(30, 20).to(device)
    linear3, linear4 = torch.nn.Linear(20, 30).to(device), torch.nn.Linear(30, 20).to(device)
    tell(f"{part}, setup")
    output1 = linear1(input1)
    output2 = linear2(output1)
    if part == "handed":
        output2 = torch.fft.fft(output2).real
        tell("fft")
    if part == "marked":
        xm.mark_step()
    if part == "closed":
        xm.add_step_closure(show, args=(output2,))
        xm.add_step_closure(show, args=(output1,))
        xm.mark_step()
    if part == "four":
        tell("linear1 and linear2")
        output3 = linear3(output2)
        tell("linear3")
        output4 = linear4(output3)
        tell("linear4")
    if part != "closed":
        print(output2)
        tell(f"{part}, output2")
        print(output1)
    tell(f"{part}, output1")
