"""A module of a package, started by `python -m package.train`, with relative imports.

Where: every project that has grown beyond one file. `numdrift run -m package.train` starts it as python would: `__name__`
is `__main__`, `__package__` is `package`, and the working directory is on the import path.
"""

import torch
import torch.nn.functional as F

from .models import Net

device = "cuda" if torch.cuda.is_available() else "cpu"


def main():
    torch.manual_seed(0)
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs, labels = torch.randn(4, 16, 8), torch.randint(0, 4, (4, 16))
    for x, y in zip(inputs, labels, strict=True):
        loss = F.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("loss", loss.item())
    print("run as", __name__, "of", __package__, "by", __spec__.name)


if __name__ == "__main__":
    main()
