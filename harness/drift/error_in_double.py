"""The noise of a value, bounded from below by the errors of both sides.

Random rounding of the ops may not move a value at all, although it consists of rounding. In a contrast where one logit
exceeds all others by far, the loss is log(1 + e), where e is below the spacing of numbers at 1; so are its gradients.
If the step was also computed in double, with the value E, a value counts as at least as noisy as

    min(||A - E||, ||B - E||)        if that is at most 4 ||B - A||

This is the error of the side that is nearer to E, because a fault of one side moves that side alone. If both sides are
much nearer to each other than to E, then E took the other branch of a discrete choice, and says nothing about them.

    >>> A, B, E = 2.98e-08, 2.61e-08, 3.40e-08          B - A = 3.7e-09; by random rounding alone, z is 671,880
    >>> min(abs(A - E), abs(B - E)) = 4.2e-09           so z is 0.9
"""

from __future__ import annotations

from dataclasses import replace

from ..records.results.findings import TensorScore
from ..runs.mapped_tensors import TensorFile
from .norms import difference, is_floating
from .step_score import StepScore, unit_roundoff, with_values, z_score

FARTHEST = 4.0
"""The largest error, in units of the drift, that counts as noise. Independent errors of one size e drift by 1.4 e."""


def with_errors(step: StepScore, a: TensorFile, b: TensorFile, exact: TensorFile) -> StepScore:
    """Return the score of a step whose results in double are `exact`; no score becomes larger."""
    return with_values(step, [_with_error(tensor, a, b, exact) for tensor in step.tensors])


def _with_error(tensor: TensorScore, a: TensorFile, b: TensorFile, exact: TensorFile) -> TensorScore:
    left, right, true = (file.tensors.get(tensor.name) for file in (a, b, exact))
    if tensor.discrete or tensor.score <= 1 or left is None or right is None or true is None:
        return tensor
    if not is_floating(true) or not left.shape == right.shape == true.shape:
        return tensor
    apart, *errors = difference(left, right), difference(true, left), difference(true, right)
    error = min(side.distance.value for side in errors)
    if not all(side.same_places for side in (apart, *errors)):
        return tensor
    if not tensor.noise < error <= FARTHEST * apart.distance.value:
        return tensor
    z = z_score(apart.distance.exact, apart.norm.exact, error, unit_roundoff(tensor.name, a, b))
    return replace(tensor, score=z, noise=error)
