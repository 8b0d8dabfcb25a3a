"""The localizations of a pair, which its experiments left beside the runs."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...errors import JournalError
from ...records.results.culprit import CulpritScript
from ...records.results.localization_record import Localization, read_localization
from .pair_evidence import PairEvidence


def localizations(evidence: PairEvidence) -> list[Localization]:
    """Return the localizations of a pair in the order of the steps.

    Each culprit has the command that repeats its localization, and each script its path beside the runs. Localizations
    that cannot be read are left out.
    """
    runs = shlex.join(str(run.path) for run in (evidence.a, evidence.b))
    localized = []
    for folder in evidence.localized:
        try:
            localization = read_localization(folder)
        except JournalError:
            continue
        if localization is None:
            continue
        culprits = []
        for culprit in localization.culprits:
            script = culprit.script or CulpritScript(None, why="none was written")
            if script.path is not None:
                script = replace(script, path=str(folder / Path(script.path).name))
            culprits.append(
                replace(culprit, command=f"numdrift localize {runs} --step {localization.step}", script=script)
            )
        localized.append(replace(localization, content={**localization.content, "culprits": culprits}))
    return localized


def inputs_of(evidence: PairEvidence) -> dict[str, Any]:
    """Return the facts that a result about a pair depends on: a result is not reused if they have changed."""
    a, b = evidence.a.manifest, evidence.b.manifest
    inputs = {"a": a.spec, "b": b.spec, "script_sha256": b.script_sha256, "arguments": list(b.arguments)}
    revisions = [a.revision, b.revision]  # HEAD~1 in a mode may come to mean another commit
    return inputs | ({"revisions": revisions} if any(revisions) else {})
