"""The values of a step whose batch one side splits, and the weights of the parts in the gradients of the step.

If both sides compute a step from the same state and the same data, and one side in several parts, the gradient of the
whole is a sum of the parts' gradients:

    G = w[1] g[1] + w[2] g[2] + ...        w = 1 for each part, if the losses of the parts add up to that of the whole

The backwards of a step accumulate, so g[k] is the difference of two recorded gradients. The weights are the solution of
least squares over all elements of all gradients, each in units of its rounding noise. There are far more elements than
weights. If other weights than 1 remove the drift, the weighting of the losses is the cause of the drift: a wrong kernel
would leave a drift with any weights.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...records.run.step_files import CARRIED
from ...runs.mapped_tensors import TensorFile
from ...runs.numpy_values import Array
from ..norms import is_floating, norm
from ..step_noise import Noise
from ..step_score import score_step, unit_roundoff

GRADIENT = re.compile(r"gradient (\d+) (.+)")

ELEMENTS = 32
"""The smallest number of elements for each weight: with fewer, some weights would fit any gradient."""


@dataclass(frozen=True, slots=True)
class PartWeights:
    """The weights of the parts, and the scores of the gradients without and with these weights."""

    weights: tuple[float, ...]
    before: float
    after: float


def part_weights(whole: TensorFile, parts: TensorFile, noise: Noise) -> PartWeights | None:
    """Return the weights with which the gradients of the parts come closest to those of the whole.

    The values of a step are scored against `whole`, whose noise is `noise`. Return None if the step has too few
    elements to tell, or gradients of one side only.
    """
    last, accumulated = _gradients(whole), _gradients(parts)
    names = [name for name, values in last.items() if is_floating(values[-1]) and np.isfinite(values[-1]).all()]
    counts = {len(accumulated.get(name, ())) for name in names}
    if len(counts) != 1 or (count := counts.pop()) < 2:
        return None
    gram, right = np.zeros((count, count)), np.zeros(count)
    elements = 0
    by_name: dict[str, NDArray[np.float64]] = {}
    number = last_backward(whole)
    for name in names:
        goal = last[name][-1].astype(np.float64).ravel()
        sums = np.stack([value.astype(np.float64).ravel() for value in accumulated[name]])
        if sums.shape[1] != goal.size or not np.isfinite(sums).all():
            return None
        of_parts = np.diff(sums, axis=0, prepend=0.0)
        key = f"gradient {number} {name}"
        size = float(np.linalg.norm(goal))
        unit = noise.rms_of(key, norm(whole.tensors[key]).exact) + unit_roundoff(key, whole, whole) * size
        if unit:
            gram += of_parts @ of_parts.T / unit**2
            right += of_parts @ goal / unit**2
            elements += goal.size
        by_name[key] = of_parts
    if elements < ELEMENTS * count:
        return None
    weights = np.linalg.lstsq(gram, right, rcond=None)[0]
    scores = []
    for tried in (np.ones(count), weights):
        tensors = {
            key: (tried @ of_parts).reshape(whole.tensors[key].shape).astype(whole.tensors[key].dtype)
            for key, of_parts in by_name.items()
        }
        reference = TensorFile({key: whole.tensors[key] for key in tensors}, whole.dtypes, whole.facts)
        scores.append(score_step(reference, TensorFile(tensors, whole.dtypes, {}), noise).score)
    return PartWeights(tuple(map(float, weights)), scores[0], scores[1])


def _gradients(outcome: TensorFile) -> dict[str, list[Array]]:
    """Return the gradients of each parameter after each backward, in the order of the backwards."""
    numbered: dict[str, dict[int, Array]] = defaultdict(dict)
    for key, value in outcome.tensors.items():
        match = GRADIENT.fullmatch(key)
        if match is not None:
            numbered[match[2]][int(match[1])] = value
    return {name: [values[number] for number in sorted(values)] for name, values in numbered.items()}


def of_whole_step(outcome: TensorFile, last: int) -> TensorFile:
    """Return those values of a step that do not depend on how often the step calls the model.

    Of the gradients after each backward, the last are kept: they are those of the whole batch. Their names get the
    number `last`, that of the reference's last backward. Losses and the tensors that the script carries are left out,
    since these belong to one call.
    """
    own, values, dtypes = last_backward(outcome), dict[str, Array](), dict[str, str]()
    for name, value in outcome.tensors.items():
        match = GRADIENT.fullmatch(name)
        if name.startswith(("loss ", CARRIED)) or (match is not None and int(match[1]) != own):
            continue
        key = name if match is None else f"gradient {last} {match[2]}"
        values[key], dtypes[key] = value, outcome.dtypes.get(name, str(value.dtype))
    return TensorFile(values, dtypes, outcome.facts)


def without_gradients(outcome: TensorFile) -> TensorFile:
    """Return what a step leaves behind: all values of its outcome but the gradients."""
    values = {name: value for name, value in outcome.tensors.items() if GRADIENT.fullmatch(name) is None}
    return TensorFile(values, outcome.dtypes, outcome.facts)


def shows_gradients(outcome: TensorFile) -> bool:
    """Check whether the parameters and states that a step leaves behind show what its gradients were.

    In 16 bits, a parameter may be the same after two different updates, because both are rounded away.
    """
    kept = [name for name in outcome.tensors if name.startswith(("parameter ", "state "))]
    dtypes = {outcome.dtypes.get(name, str(outcome.tensors[name].dtype)) for name in kept}
    return bool(kept) and not dtypes & {"float16", "bfloat16"}


def last_backward(outcome: TensorFile) -> int:
    """Return the number of a step's last backward; 0 if the step has no gradients."""
    return max((int(match[1]) for match in map(GRADIENT.fullmatch, outcome.tensors) if match is not None), default=0)
