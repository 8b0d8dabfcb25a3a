"""A cell that predicts ahead: four predictions of its own, of which the last is where the next step begins."""

import sys
from pathlib import Path

import torch
from torch import Tensor

sys.path.append(str(Path(__file__).parents[3]))
from tests.faults.cell import NOTHING, train_cell
from tests.faults.training import Training

AHEAD = 4
reached = NOTHING


def predicting_step(training: Training) -> Tensor:
    global reached
    [(inputs, targets)] = training.batches[training.number]
    training.optimizer.zero_grad()
    with torch.no_grad():
        prediction, h = training.model(inputs, reached)
    for _ in range(AHEAD):
        prediction, h = training.model(prediction, h)
    loss = training.loss(prediction, targets)
    loss.backward()
    training.optimizer.step()
    reached = prediction.detach()
    return loss.detach()


train_cell(predicting_step)
