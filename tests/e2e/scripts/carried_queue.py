"""A queue of negatives that the script keeps beside the model; FAULT spoils what is put into it."""

import os

import torch


def main() -> None:
    torch.manual_seed(0)
    model, queue, data = torch.nn.Linear(6, 8), torch.zeros(32, 8), torch.randn(12, 16, 6)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    for step in range(12):
        hidden = torch.tanh(model(data[step]))
        loss = (hidden.sum(1) - data[step].sum(1)).square().mean() + 0.1 * (hidden @ queue.clone().t()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        queue[step % 4 * 8 : step % 4 * 8 + 8] = hidden.detach()[:8] * (1 + float(os.environ.get("FAULT", "0")))
        optimizer.step()


main()
