"""The first file that runs in a script's process: `python bootstrap.py PACKAGE CONFIG.json [MODULE]`.

With a MODULE of numdrift, it calls that module's `main` with the path of the configuration, and starts no recorder.

This file is started by its path, so the interpreter need not have numdrift installed. The package is loaded from its
folder PACKAGE, and nothing else is added to the import path.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import importlib.util
import signal
import sys
from pathlib import Path

DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of prctl(2)."""


def main() -> int:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGTERM)
    root, config = Path(sys.argv[1]), Path(sys.argv[2])
    del sys.path[0]  # this folder: the script's own folder takes its place
    spec = importlib.util.spec_from_file_location(
        "numdrift", root / "__init__.py", submodule_search_locations=[str(root)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"numdrift is not in {root}")
    package = importlib.util.module_from_spec(spec)
    sys.modules["numdrift"] = package
    spec.loader.exec_module(package)
    if len(sys.argv) > 3:
        return int(importlib.import_module(sys.argv[3]).main(config))
    run_config = importlib.import_module("numdrift.harness.records.run.run_config").RunConfig.load(config)
    # before torch is imported: torch starts threads
    shared = importlib.import_module("numdrift.harness.recorder.own_folder").enter(run_config)
    # What the imports of torch and of the recorder create stays to the end. Collections would look through it again and
    # again, which takes a tenth of a second.
    gc.disable()
    process = importlib.import_module("numdrift.harness.recorder.script_process")
    gc.freeze()
    gc.enable()
    return int(process.run(run_config, shared))


if __name__ == "__main__":
    sys.exit(main())
