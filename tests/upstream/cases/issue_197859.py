"""pytorch#197859: a compiled module keeps its old submodule after an instance attribute shadows it."""

import torch


class Wrapper(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4, bias=False)
        torch.nn.init.eye_(self.inner.weight)

    def forward(self, x):
        return self.inner(x)


x = torch.arange(4.0)
module = Wrapper()
compiled = torch.compile(module)
compiled(x)

replacement = torch.nn.Linear(4, 4, bias=False)
torch.nn.init.constant_(replacement.weight, 5.0)
object.__setattr__(module, "inner", replacement)
print(module(x))
print(compiled(x))
