"""Runs that met in a file: one run read a file that another run wrote, so the runs are not independent."""

from __future__ import annotations

from collections.abc import Mapping

from ...runs.manifest import RunManifest


def met_in_files(runs: Mapping[str, RunManifest]) -> list[str]:
    """Return a sentence for each file that one of these runs read and another wrote.

    The keys of `runs` are the names that the sentences use for the runs.
    """
    writers: dict[str, list[str]] = {}
    for name, run in runs.items():
        for file in run.files.outside if run.files is not None else ():
            writers.setdefault(file.path, []).append(name)
    readers: dict[tuple[str, str], list[str]] = {}
    for name, run in runs.items():
        for path in run.files.read if run.files is not None else ():
            others = [writer for writer in writers.get(path, ()) if writer != name]
            if others:
                readers.setdefault((path, others[0]), []).append(name)
    return [
        f"{' and '.join(names)} read {path}, which {writer} had written: differences may come from that file. Give "
        "each mode its own path (env.NAME=value), or remove the file before each run"
        for (path, writer), names in readers.items()
    ]
