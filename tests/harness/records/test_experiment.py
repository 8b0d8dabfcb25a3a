"""What an experiment is, from its record and, for runs of before, from its folder's name."""

from __future__ import annotations

import dataclasses
import json

import pytest

from numdrift.harness.records.results.experiment import KINDS, Experiment, belongs_to, experiment_named

A, B = "cpu", "compile_x"

ONE_OF_EACH = {
    "again": (Experiment("again", A), "cpu-again"),
    "forced": (Experiment("forced", B, A), "compile_x-from-cpu"),
    "apart": (Experiment("apart", B, A), "compile_x-apart-cpu"),
    "from-itself": (Experiment("from-itself", A), "cpu-from-itself"),
    "taped": (Experiment("taped", A, detail="0"), "cpu-tape-0"),
    "taped-at": (Experiment("taped-at", A, step=5), "cpu-tape-at-5"),
    "ulp": (Experiment("ulp", A, detail="3"), "cpu-ulp-3"),
    "onset": (Experiment("onset", A, B, detail="2"), "cpu-onset-compile_x-2"),
    "unobserved": (Experiment("unobserved", B, A), "compile_x-unobserved-cpu"),
    "kinds": (Experiment("kinds", B, A), "compile_x-kinds-cpu"),
    "perturbed": (Experiment("perturbed", A, detail="7"), "cpu-perturbed-7"),
    "seed": (Experiment("seed", B, detail="11"), "compile_x-seed-11"),
    "without": (Experiment("without", B, A), "compile_x-without-cpu"),
    "held": (Experiment("held", B, A, 29), "compile_x-held-cpu-29"),
    "cut": (Experiment("cut", B, A, 3, "phase"), "compile_x-cut-cpu-3-phase"),
    "set": (
        Experiment("set", B, A, 0, "inductor.cpp.simdlen.1"),
        "compile_x-set-cpu-0-inductor.cpp.simdlen.1",
    ),
    "parts": (Experiment("parts", B, A, 4, "12"), "compile_x-parts-cpu-4-12"),
    "executed": (Experiment("executed", B, A, 3), "compile_x-executed-cpu-3"),
    "executed-at": (Experiment("executed-at", A, step=3), "cpu-executed-at-3"),
    "calls": (Experiment("calls", B, detail="step-3-op-by-op"), "compile_x-calls-step-3-op-by-op"),
    "unpinned": (Experiment("unpinned", A, detail="hash"), "cpu-unpinned-hash"),
    "prepared": (Experiment("prepared", B), "compile_x-prepared"),
    "traced": (Experiment("traced", B, A), "compile_x-traced-cpu"),
    "localized": (Experiment("localized", B, A, 29), "compile_x-localized-cpu-000029"),
}


def test_every_kind_has_the_folder_that_it_always_had() -> None:
    assert ONE_OF_EACH.keys() == KINDS.keys()
    assert {one.kind: one.name for one, _ in ONE_OF_EACH.values()} == {
        kind: name for kind, (_, name) in ONE_OF_EACH.items()
    }


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_read_back_from_its_record_and_from_its_folders_name(kind: str) -> None:
    experiment, name = ONE_OF_EACH[kind]
    written = json.loads(json.dumps(dataclasses.asdict(experiment)))
    assert Experiment.from_json(written) == experiment
    assert experiment_named(name, A, B) == experiment
    assert experiment.concerns(A, B)


def test_a_folder_of_another_pair_is_none_of_this_one() -> None:
    assert experiment_named("lazy-from-cpu", A, B) is None
    assert experiment_named("cpu-from-compile_x", A, B) is None
    assert not Experiment("forced", A, B).concerns(A, B)
    assert not Experiment("taped", B, detail="0").concerns(A, B)
    assert not Experiment("of a later version", A).concerns(A, B)


def test_modes_whose_names_look_like_experiments_are_told_apart() -> None:
    assert experiment_named("cpu-again-from-cpu", "cpu", "cpu-again") == Experiment("forced", "cpu-again", "cpu")
    assert experiment_named("cpu-again-again", "cpu", "cpu-again") == Experiment("again", "cpu-again")


def test_experiments_of_a_kind_have_an_order() -> None:
    numbered = [Experiment("perturbed", A, detail=str(number)) for number in (10, 2, 1)]
    assert [one.detail for one in sorted(numbered, key=lambda one: one.order)] == ["1", "2", "10"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_run_has_a_part_in_belongs_to_it(kind: str) -> None:
    experiment, name = ONE_OF_EACH[kind]
    assert belongs_to(name, experiment.run)
    assert belongs_to(name, experiment.reference) == bool(experiment.reference)
    assert not belongs_to(name, "lazy")


def test_the_answer_of_a_search_for_parts_belongs_to_both() -> None:
    assert belongs_to("compile_x-parts-cpu-4-found.json", A)
    assert belongs_to("compile_x-parts-cpu-4-found.json", B)
