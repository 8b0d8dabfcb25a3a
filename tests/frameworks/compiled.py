"""Run a script with its outermost model compiled: `compiled.py CLASS SCRIPT [ARGUMENTS]`.

The first called model of that class is compiled right before that call, with its graph breaks logged. Everything else is
as under plain Python.
"""

import runpy
import sys
from pathlib import Path
from typing import Any

import torch
import torch._logging

torch_call = torch.nn.Module.__call__


def call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    if type(module).__name__ == wanted:
        torch.nn.Module.__call__ = torch_call  # type: ignore[method-assign]
        # as TORCH_LOGS=graph_breaks, which is read only at the import
        torch._logging.set_logs(graph_breaks=True)  # type: ignore[attr-defined]
        module.compile(backend="inductor")
    return torch_call(module, *args, **kwargs)


wanted, script, *arguments = sys.argv[1:]
torch.nn.Module.__call__ = call  # type: ignore[method-assign]
sys.argv = [script, *arguments]
sys.path[0] = str(Path(script).parent)
runpy.run_path(script, run_name="__main__")
