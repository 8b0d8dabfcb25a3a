"""Findings as a person reads them: a table of the pairs, then what is known of each."""

from __future__ import annotations

from rich.console import Console

from ..investigate.culprit_words import lines_of
from ..records.findings import Findings, PairFindings
from .output import number, table

WORST_SHOWN = 5
CULPRITS_SHOWN = 8


def show(out: Console, found: Findings, *, verbose: bool = False) -> None:
    """Print the verdicts, the sentences of each pair, and what it cost."""
    rows = table(
        "reference",
        "mode",
        "verdict",
        ">first differing step",
        ">first significant step",
        ">largest z",
        ">fault from",
        "closer to fp64",
    )
    for pair in found.pairs:
        rows.add_row(
            pair.a,
            pair.b,
            (pair.verdict or "undecided") + (" (inspect)" if pair.inspect else ""),
            _step(pair.first_differing_step),
            _step(pair.first_significant_step),
            number(pair.score),
            number(pair.threshold),
            pair.closer_to_fp64 or "-",
        )
    out.print(rows)
    for pair in found.pairs:
        show_pair(out, pair, verbose=verbose)
    if found.training_runs or found.reused:
        reused = f", {found.reused} used again" if found.reused else ""
        out.print(
            f"\n{found.training_runs} training run{'' if found.training_runs == 1 else 's'}{reused}, "
            f"{found.steps_trained:,} steps, {found.seconds:.1f} s"
        )


def _step(step: int | None) -> str:
    return "none" if step is None else f"{step:,}"


def show_pair(out: Console, pair: PairFindings, *, verbose: bool = False) -> None:
    """Print what is known of one pair."""
    out.print(f"\n{pair.b} against {pair.a}: {pair.verdict or 'undecided'}", soft_wrap=True)
    for sentence in pair.text:
        out.print(f"  {sentence}", soft_wrap=True)
    for place, culprit in enumerate(pair.culprits[:CULPRITS_SHOWN], 1):
        if culprit.proof is not None:
            first, *others = lines_of(culprit, pair.a, pair.b)
            out.print(f"  {place}. {first}", soft_wrap=True)
            for line in others:
                out.print(f"     {line}", soft_wrap=True)
    if pair.without:
        out.print(f"  {pair.without.text}", soft_wrap=True)
    for note in pair.notes:
        out.print(f"  note: {note}", soft_wrap=True)
    if verbose and pair.steps:
        _show_steps(out, pair)


def _show_steps(out: Console, pair: PairFindings) -> None:
    rows = table("  step", ">z", "tape", "worst tensors (z)")
    for step in pair.steps:
        tensors = sorted(step.tensors, key=lambda one: -one.score)[:WORST_SHOWN]
        worst = ", ".join(f"{one.name} {number(one.score)}" for one in tensors if one.score)
        rows.add_row(f"  {step.step:,}", number(step.score), "yes" if step.taped else "", worst or "identical")
    out.print(rows)
