"""Run a script eagerly with copies of what is transposed: the bits that lazy mode gives it, on every machine.

python transposes_copied.py SCRIPT [ARGUMENTS]
"""

import runpy
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "harness" / "backends"))

from lazy_transposes import TransposesCopied  # type: ignore[import-not-found]

if __name__ == "__main__":
    del sys.argv[0]
    sys.path.insert(0, str(Path(sys.argv[0]).parent))
    with TransposesCopied():
        runpy.run_path(sys.argv[0], run_name="__main__")
