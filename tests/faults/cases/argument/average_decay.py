"""The moving average of the weights forgets with 0.99 instead of 0.9."""

from tests.faults.training import Training
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

MODELS = ("mixed",)
EXPECTED = "beyond-rounding"
CULPRIT = {"op": "_foreach_lerp_"}


def plant(training: Training) -> None:
    training.averaged = AveragedModel(training.model, multi_avg_fn=get_ema_multi_avg_fn(0.99))
