"""REINFORCE: actions are sampled, the loss is made of their log-probabilities.

Where: reinforcement learning. The model is called many times a step, mostly with one state. Sampling draws from
torch's generator, whose state is recorded at each step, so the report says where the draws of two runs diverge.
"""

import torch
from torch import nn
from torch.distributions import Categorical

device = "cuda" if torch.cuda.is_available() else "cpu"


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(2, 8)
        self.output = nn.Linear(8, 2)

    def forward(self, state):
        return torch.softmax(self.output(torch.tanh(self.hidden(state))), dim=-1)


torch.manual_seed(0)
policy = Policy().to(device)
optimizer = torch.optim.Adam(policy.parameters(), lr=0.02)
for episode in range(4):
    state, logs, rewards = torch.tensor([0.1 * episode, 0.0]), [], []
    for _ in range(6):
        distribution = Categorical(policy(state.unsqueeze(0).to(device)))
        action = distribution.sample()
        logs.append(distribution.log_prob(action))
        push = 0.2 * action.item() - 0.1
        state = torch.tensor([state[0].item() + push, push])
        rewards.append(-abs(state[0].item()))
    returns = torch.tensor(rewards).flip(0).cumsum(0).flip(0).to(device)
    loss = -(torch.cat(logs) * (returns - returns.mean())).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item(), "return", sum(rewards))
