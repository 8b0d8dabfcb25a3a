"""Run the list of investigations in `tests/gpu`. `scripts/gpu` starts this file.

On a machine that is not ours, another package named `tests` may be installed, and would be imported instead of our
folder.
"""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path

ROOT = Path(__file__).parent.parent

sys.path[0] = str(ROOT)
ours = types.ModuleType("tests")
ours.__path__ = [str(ROOT / "tests")]
sys.modules["tests"] = ours

if __name__ == "__main__":
    sys.exit(importlib.import_module("tests.gpu.benchmark").main())
