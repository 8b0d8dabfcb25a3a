"""pytorch#198131: a compiled copy takes place after the in-place update of its source."""

import torch


def save_and_advance(saved, state):
    saved[0:, :] = state[0:, :]
    state.add_(1)
    return state


saved, state = torch.zeros(3, 4), torch.arange(12.0).view(3, 4)
save_and_advance(saved, state)
print(saved)

saved, state = torch.zeros(3, 4), torch.arange(12.0).view(3, 4)
torch.compile(save_and_advance)(saved, state)
print(saved)
