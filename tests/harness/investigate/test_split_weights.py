"""A mode that divides each batch into parts: judged by its gradients, and by the weights of the parts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from tests.harness.drift.recordings import Argument, Step

from numdrift.harness.records.results.culprit import WEIGHTS
from numdrift.harness.records.results.experiment import Experiment
from numdrift.harness.records.results.findings import PairFindings
from numdrift.harness.report.answer import answer_of
from numdrift.harness.runs.content_hash import content_hash
from numdrift.harness.runs.step_outcomes import outcome_path

from .written_evidence import AGAIN, Study, noise_record, only_pair, resynced

ROWS = np.arange(96.0, dtype=np.float32).reshape(8, 12)
"""The batch of every step."""

PARTS = torch.randn(4, 40, 10, generator=torch.Generator().manual_seed(0)) / 4
"""The gradients of the four parts: their sum is the gradient of the whole batch if all count alike."""


def argument(rows: np.ndarray) -> Argument:
    return str(rows.dtype), rows.shape, content_hash(rows)


def pair_of(
    folder: Path,
    weights: Sequence[float],
    *,
    order: int = 1,
    bend: float = 0.0,
    left: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> PairFindings:
    """Judge a pair whose reference weights the parts so, with an error that comes from no weight.

    `left` are the parameter that the reference's step leaves behind, and that of the other mode.
    """
    goal = torch.tensordot(torch.tensor(weights), PARTS, 1)
    goal += bend * goal.abs()
    parts = [[argument(rows)] for rows in np.split(ROWS, 4)[::order]]
    whole = [Step((4.0,), batches=[[argument(ROWS)]]) for _ in range(3)]
    split = [Step((1.0,) * 4, gradients={"w": [float(step), 1.0]}, batches=parts) for step in range(3)]
    study = Study(folder)
    runs = [study.run("cpu", whole), study.run("parts=cpu", split)]
    norm = float(goal.norm())
    noise = {**noise_record(0), "tensors": {"gradient 0 w": {"rms": 1e-7 * norm, "flips": 0, "norm": norm}}}
    after: list[dict[str, torch.Tensor]] = [{}, {}]
    if left is not None:
        after = [{"parameter w": parameter} for parameter in left]
        size = float(left[0].float().norm())
        noise["tensors"]["parameter w"] = {"rms": 1e-7 * size, "flips": 0, "norm": size}
    again = study.make(AGAIN, whole, noises=[noise])
    study.make(Experiment("again", "parts"), split)
    forced = study.make(Experiment("forced", "parts", "cpu"), split, events=resynced([0]))
    study.put(again.path / "states" / "inputs-000000.safetensors", {"input 0": torch.from_numpy(ROWS)}, 0)
    study.put(outcome_path(again.path, 0), {"loss 0": torch.tensor(4.0), "gradient 0 w": goal} | after[0], 0)
    accumulated = PARTS.cumsum(0)
    outcome = {f"gradient {number} w": value for number, value in enumerate(accumulated)}
    study.put(outcome_path(forced.path, 0), {"loss 0": torch.tensor(1.0), **outcome} | after[1], 0)
    return only_pair(runs)


def test_parts_that_count_alike_differ_by_rounding(tmp_path: Path) -> None:
    pair = pair_of(tmp_path, [1.0, 1.0, 1.0, 1.0])
    assert pair.verdict == "rounding" and not pair.culprits
    assert any("these are the rows of the other mode's batch" in text for text in pair.text)


def test_the_weighting_of_the_losses_is_the_cause(tmp_path: Path) -> None:
    pair = pair_of(tmp_path, [0.9, 1.2, 0.8, 1.1])
    (culprit,) = pair.culprits
    assert (pair.verdict, culprit.kind, culprit.is_proven) == ("beyond-rounding", WEIGHTS, True)
    assert culprit.reasons == [
        "to count like its share of the whole batch, each part needs the weight 0.9, 1.2, 0.8, 1.1"
    ]
    assert answer_of(pair).what.startswith("parts weights the losses of a batch's parts differently: a proven fault")


def test_a_missing_division_is_named_as_a_factor(tmp_path: Path) -> None:
    (culprit,) = pair_of(tmp_path, [0.25] * 4).culprits
    assert culprit.reasons == ["every part counts 4 times as much as its share of the whole batch"]


STEPPED = torch.randn(40, 10, generator=torch.Generator().manual_seed(1))
"""The parameter after a step."""


def test_gradients_that_are_divided_after_the_last_backward_are_no_fault(tmp_path: Path) -> None:
    pair = pair_of(tmp_path, [0.25] * 4, left=(STEPPED, STEPPED * (1 + 1e-7)))
    assert pair.verdict == "rounding" and not pair.culprits
    assert any("a script changes its gradients before its optimizer uses them" in text for text in pair.text)


def test_gradients_that_are_not_divided_are_a_fault_with_their_factor(tmp_path: Path) -> None:
    (culprit,) = pair_of(tmp_path, [0.25] * 4, left=(STEPPED, STEPPED * (1 + 1e-3))).culprits
    assert culprit.reasons == ["every part counts 4 times as much as its share of the whole batch"]


def test_a_parameter_in_16_bits_does_not_show_what_the_gradients_were(tmp_path: Path) -> None:
    rounded = STEPPED.bfloat16()
    assert pair_of(tmp_path, [0.25] * 4, left=(rounded, rounded.clone())).verdict == "beyond-rounding"


def test_a_drift_that_no_weights_remove_has_no_such_cause(tmp_path: Path) -> None:
    pair = pair_of(tmp_path, [1.0, 1.0, 1.0, 1.0], bend=1e-2)
    assert pair.verdict == "beyond-rounding" and not pair.culprits
    assert pair.unexplained.endswith("divide the batch in both modes, or in neither")


def test_parts_of_other_data_are_another_setup(tmp_path: Path) -> None:
    pair = pair_of(tmp_path, [1.0, 1.0, 1.0, 1.0], order=-1)
    assert pair.verdict == "different-setup"
