"""Two linear layers whose outputs are printed: what that costs a lazy backend.

    numdrift run two_layers.py --mode lazy,mark_step=off --metrics -- --show output2,output1
    numdrift run two_layers.py --mode lazy --metrics -- --mark --show output2,output1
    numdrift run two_layers.py --mode "op=lazy,execute=op" --metrics -- --layers 4 --show output2,output1
    numdrift run two_layers.py --mode lazy --metrics -- --numdrift --show output2,output1

--mark calls `numdrift.mark_step()` before anything is printed; with --numdrift `numdrift.print` prints, which needs none.
--layers 4 goes on with a layer of another shape and one of the shape that the second has, each in a step of its own.
"""

import argparse

import torch

import numdrift

parser = argparse.ArgumentParser()
parser.add_argument("--show", default="")
parser.add_argument("--mark", action="store_true")
parser.add_argument("--numdrift", action="store_true")
parser.add_argument("--layers", type=int, default=2)
options = parser.parse_args()

device = numdrift.device()
torch.manual_seed(0)
input1 = torch.randn(2, 10).to(device)
linear1 = torch.nn.Linear(10, 30).to(device)
linear2 = torch.nn.Linear(30, 20).to(device)
linear3 = torch.nn.Linear(20, 30).to(device)
linear4 = torch.nn.Linear(30, 20).to(device)

output1 = linear1(input1)
output2 = linear2(output1)
if options.mark:
    numdrift.mark_step()

shown = {"output1": output1, "output2": output2}
for name in filter(None, options.show.split(",")):
    if options.numdrift:
        numdrift.print(name, shown[name])
    else:
        print(name, shown[name])
numdrift.step()

if options.layers == 4:
    output3 = linear3(output2)
    numdrift.step()
    output4 = linear4(output3)
    numdrift.step()
    print("output4", output4)
