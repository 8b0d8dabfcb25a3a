"""Other revisions of a repository, each checked out into a folder of its own in numdrift's cache.

    repository   ~/work/train, with a script, a package that is installed editable, and data that git ignores
    revision     ~/.cache/numdrift/revisions/<repository>/<commit>, a clone that shares the repository's objects

The repository itself is not changed, not even its list of work trees. Files that git does not track, such as data, are
linked into the revision. Untracked sources are not: they belong to no revision.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError
from ..runs.run_layout import own_cache

PACKAGES = """
import importlib.metadata, importlib.util, json, pathlib, sys, urllib.parse
repository, found = pathlib.Path(sys.argv[1]), [path for path in sys.path if path]
for distribution in importlib.metadata.distributions():
    try:
        facts = json.loads(distribution.read_text("direct_url.json") or "{}")
        if not facts.get("dir_info", {}).get("editable"):
            continue
        folder = pathlib.Path(urllib.parse.unquote(urllib.parse.urlparse(facts["url"]).path)).resolve()
        if folder != repository and repository not in folder.parents:
            continue
        for name in (distribution.read_text("top_level.txt") or "").split():
            spec = importlib.util.find_spec(name)
            if spec is not None and spec.origin:
                origin = pathlib.Path(spec.origin)
                found.append(str(origin.parents[1] if spec.submodule_search_locations else origin.parent))
    except Exception:
        continue
print(json.dumps(found))
"""
"""A program that prints an interpreter's import paths, and those of packages that are installed editable from a
repository."""

UNLINKED = (".py", ".pyc", ".so", ".pyd")
"""Endings of untracked files that are not linked into a revision, because scripts import them."""


@dataclass(frozen=True, slots=True)
class Revision:
    """A revision of a repository that is checked out in `tree`.

    commit: the full name of the revision's commit
    changed: True if the repository itself has changes that are not committed
    """

    repository: Path
    tree: Path
    commit: str
    changed: bool

    def of(self, path: Path) -> Path:
        """Return the path in the revision that corresponds to a path in the repository. Raises UsageError."""
        try:
            inside = path.resolve().relative_to(self.repository)
        except ValueError:
            raise UsageError(f"{path} is outside of the repository {self.repository}, so no revision has it") from None
        if not (self.tree / inside).exists():
            raise UsageError(f"{inside} does not exist in the revision {self.commit[:12]} of {self.repository}")
        return self.tree / inside

    def import_paths(self, python: str) -> list[str]:
        """Return the folders of the revision in which this interpreter would find the repository's packages."""
        command = [python, "-c", PACKAGES, str(self.repository)]
        with suppress(OSError, subprocess.SubprocessError, ValueError):
            printed = subprocess.run(command, capture_output=True, check=True, timeout=60, cwd="/").stdout
            paths = [Path(path).resolve() for path in json.loads(printed)]
            inside = [path.relative_to(self.repository) for path in paths if path.is_relative_to(self.repository)]
            return [str(self.tree / path) for path in dict.fromkeys(inside) if (self.tree / path).is_dir()]
        return []


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit with its full name and the first line of its message."""

    name: str
    title: str


def commits_between(script: Path, good: str, bad: str) -> list[Commit]:
    """Return the commits of the script's repository from `good` to `bad`, the good one first. Of a merged branch, only
    the merge counts. Raises UsageError if `good` is not an ancestor of `bad`."""
    repository = _repository_of(script)
    first, last = (_commit(repository, revision) for revision in (good, bad))
    listed = _git(repository, "log", "--first-parent", "--reverse", "--format=%H %s", f"{first}..{last}").splitlines()
    commits = [Commit(*line.split(" ", 1)) for line in listed]
    common = _git(repository, "merge-base", first, last, why=f"{good} and {bad} have no common history")
    if not commits or common != first:
        raise UsageError(f"{good} is not a revision before {bad}; the range is written GOOD..BAD")
    return [Commit(first, _git(repository, "log", "-1", "--format=%s", first)), *commits]


def revision_of(script: Path, revision: str, unlinked: Sequence[Path] = ()) -> Revision:
    """Check out the revision of the script's repository, unless the cache has it.

    Files in the `unlinked` folders are not linked. Raises UsageError if there is no repository or no such revision.
    """
    repository = _repository_of(script)
    commit = _commit(repository, revision)
    changed = bool(_git(repository, "status", "--porcelain", "--untracked-files=no"))
    name = f"{repository.name}-{hashlib.sha256(str(repository).encode()).hexdigest()[:12]}"
    tree = own_cache("revisions") / name / commit
    if not tree.is_dir():
        tree.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=tree.parent, prefix="new-") as new:
            made = Path(new) / "tree"
            _git(repository, "clone", "--quiet", "--shared", "--no-checkout", str(repository), str(made))
            _git(made, "checkout", "--quiet", "--detach", commit)
            _check_out_submodules(repository, made)
            with suppress(OSError):  # another process was faster
                made.rename(tree)
    _link_untracked(repository, tree, [path.resolve() for path in unlinked])
    return Revision(repository, tree, commit, changed)


def committed_revision(script: Path) -> str:
    """Return the commit of the script's repository; "" if there is none, or if tracked files have changed since."""
    try:
        repository = _repository_of(script)
        changed = _git(repository, "status", "--porcelain", "--untracked-files=no")
        tracked = _git(repository, "ls-files", "--", str(script.resolve()))
        return _commit(repository, "HEAD") if tracked and not changed else ""
    except UsageError:
        return ""


def _repository_of(script: Path) -> Path:
    if shutil.which("git") is None:
        raise UsageError("git is not on the PATH, and revisions need it; install it")
    folder = script.resolve().parent
    return Path(_git(folder, "rev-parse", "--show-toplevel", why=f"{script} is not in a git repository")).resolve()


def _commit(repository: Path, revision: str) -> str:
    unknown = f"{repository} has no revision {revision!r}; `git log --oneline` in it lists revisions"
    return _git(repository, "rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}", why=unknown)


def _check_out_submodules(repository: Path, tree: Path) -> None:
    """Check out the submodules of the revision, from the repository's own copies where it has them."""
    if not (tree / ".gitmodules").exists():
        return
    listed = _git(tree, "config", "--file", ".gitmodules", "--get-regexp", r"submodule\..*\.path").splitlines()
    common = Path(_git(repository, "rev-parse", "--path-format=absolute", "--git-common-dir"))
    for name in (line.split()[0].removeprefix("submodule.").removesuffix(".path") for line in listed):
        own = common / "modules" / name
        if own.is_dir():
            _git(tree, "config", f"submodule.{name}.url", str(own))
    _git(
        tree, "-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--init",
        why=f"the submodules of {repository} cannot be checked out: run `git submodule update --init` there first",
    )  # fmt: skip


def _link_untracked(repository: Path, tree: Path, unlinked: Sequence[Path]) -> None:
    """Link the repository's untracked files and folders into the tree, where it has nothing of that name."""
    listed = _git(repository, "ls-files", "--others", "--directory", "-z").split("\0")
    for name in filter(None, listed):
        path, link = repository / name.rstrip("/"), tree / name.rstrip("/")
        is_source = path.suffix in UNLINKED or path.name == "__pycache__" or (path / ".git").exists()
        of_runs = any(path.resolve() in (folder, *folder.parents) for folder in unlinked)
        if not (is_source or of_runs or path.is_symlink() or link.exists()):
            with suppress(OSError):  # the revision may have no such folder
                link.symlink_to(path)


def _git(folder: Path, *arguments: str, why: str = "") -> str:
    """Return what git prints. Raises UsageError, with `why` in front of git's own words."""
    done = subprocess.run(
        ["git", "--no-optional-locks", "-C", str(folder), *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
        check=False,
    )
    if done.returncode:
        message = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise UsageError(why or f"git {arguments[0]} in {folder} failed: {message}")
    return done.stdout.strip("\n")
