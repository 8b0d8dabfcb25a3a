"""Which script each mode of a plan executes, in which folder, and where it finds the packages of its repository."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError
from ..records.modes.mode_spec import ModeSpec
from .guest_process import interpreter
from .revisions import revision_of


@dataclass(frozen=True, slots=True)
class ScriptPlace:
    """A script and its surroundings.

    folder: the folder in which it is run
    import_paths: folders in which it finds modules before all others, except its own folder
    beside: a folder into which links of `folder` lead, so that its files must not be changed either
    revision: the full name of the commit, "" if the mode states no revision
    """

    script: Path
    folder: Path
    import_paths: Sequence[str] = ()
    beside: Path | None = None
    revision: str = ""


def places_of(
    specs: Sequence[ModeSpec], script: Path, runs: Path
) -> tuple[Mapping[tuple[str | None, ...], ScriptPlace], Sequence[str]]:
    """Return the places of the modes that state a script, a revision or a folder of their own, by `ModeSpec.place`, and
    sentences for the user. `runs` is the folder of the runs, which no revision links. Raises UsageError."""
    places, sentences = dict[tuple[str | None, ...], ScriptPlace](), dict[str, None]()
    for spec in specs:
        if not (spec.script or spec.git or spec.cwd):
            continue
        own = Path(spec.script or script).absolute()
        folder = Path(spec.cwd or Path.cwd()).absolute()
        if not folder.is_dir():
            raise UsageError(f"mode {spec.name!r}: cwd={spec.cwd} is not a folder")
        if not spec.git:
            places[spec.place] = ScriptPlace(own, folder)
            continue
        revision = revision_of(own, spec.git, [runs])
        inside = folder.resolve().is_relative_to(revision.repository)
        places[spec.place] = ScriptPlace(
            revision.of(own),
            revision.of(folder) if inside else folder,
            revision.import_paths(interpreter(spec)),
            revision.repository,
            revision.commit,
        )
        sentences[f"{spec.name} trains the revision {revision.commit[:12]} of {revision.repository}"] = None
        if revision.changed:
            sentences[
                f"{revision.repository} has changes that are not committed: modes without git= train with them"
            ] = None
    return places, list(sentences)
