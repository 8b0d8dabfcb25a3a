"""Executing a script as `__main__`, with what Python itself would give it."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

from ..records.run_config import RunConfig


def execute(config: RunConfig, code: types.CodeType) -> None:
    """Execute the script's code as `python SCRIPT` or, where it was asked for as a module, `python -m` does."""
    if config.module:
        sys.path.insert(0, str(Path.cwd()))
        facts = _module_facts(config.module)
        first = config.script
    else:
        sys.path.insert(0, str(Path(config.script).resolve().parent))
        facts = _script_facts(config.script)
        first = config.invoked or config.script
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=config.script, __builtins__=__builtins__, **{"__cached__": None, **facts})
    sys.modules["__main__"] = main
    sys.argv = [first, *config.arguments]
    exec(code, main.__dict__)  # noqa: S102, the script that the user asked to run


def _script_facts(script: str) -> dict[str, Any]:
    return {
        "__spec__": None,
        "__package__": None,
        "__loader__": importlib.machinery.SourceFileLoader("__main__", script),
    }


def _module_facts(name: str) -> dict[str, Any]:
    """The packages around the module are imported here, as `python -m` does."""
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{name}.__main__")
    if spec is None:
        raise ModuleNotFoundError(f"No module named {name}")
    return {
        "__spec__": spec,
        "__package__": spec.parent,
        "__loader__": spec.loader,
        "__cached__": spec.cached,
    }
