"""The public scripts that a folder holds, as its `corpus.json` describes them.

    folder/corpus.json
    folder/makemore/makemore.py    a checkout each, with the data that the script reads

    {"scripts": [{
        "name": "makemore, a transformer", "repository": "karpathy/makemore", "commit": "988aa59",
        "folder": "makemore", "script": "makemore.py", "arguments": ["--type", "transformer"],
        "steps": 20, "writes": ["out/model.pt"], "data": "names.txt of the repository",
        "faults": [{"name": "gelu", "file": "makemore.py", "old": "...", "new": "...", "line": 42,
                    "verdict": "beyond-rounding", "op": "aten.tanh"}]
    }]}

Nothing of these scripts is in this repository: neither they nor what is planted into them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from numdrift.harness.records.codec import read_fields

NAME = "corpus.json"


@dataclass(frozen=True, slots=True)
class PlantedFault:
    """What is written in place of `old` in a `file`: code that is wrong only where the variable FAULT is this fault's
    name. The `verdict` is the one to be given, with a cause in `line` (0: any) of that file or, where `op` is stated,
    with that op."""

    name: str
    file: str
    old: str
    new: str
    verdict: str = "beyond-rounding"
    line: int = 0
    op: str = ""


@dataclass(frozen=True, slots=True)
class PublicScript:
    """One script, of which the `folder` is needed; it is started `inside` of that, and `script` is seen from there. `steps` are those that an investigation takes, and `limit` those after which
    a run in another mode than cpu is ended, where it is `endless` in cpu as well (0: where it ends by itself). `writes` are files of which bare and recorded have to
    be the same, byte for byte. `data` says what it reads."""

    name: str
    repository: str
    commit: str
    folder: str
    script: str
    arguments: Sequence[str] = ()
    inside: str = "."
    environment: Mapping[str, str] = field(default_factory=dict)
    steps: int = 20
    limit: int = 0
    endless: bool = False
    writes: Sequence[str] = ()
    data: str = ""
    faults: Sequence[PlantedFault] = ()


def read_corpus(folder: Path) -> list[PublicScript]:
    """Raises SystemExit where the file is not there, or is not understood."""
    try:
        described = json.loads((folder / NAME).read_text(encoding="utf-8"))["scripts"]
        found = [read_fields(PublicScript, one) for one in described]
    except (OSError, ValueError, TypeError, LookupError) as error:
        raise SystemExit(f"{folder / NAME} does not describe public scripts: {error}") from error
    if len({one.name for one in found}) < len(found):
        raise SystemExit(f"{folder / NAME} has two scripts of one name")
    return found
