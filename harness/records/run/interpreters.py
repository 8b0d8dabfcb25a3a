"""The differences between the Python environments of a pair's two runs that can change numbers.

    differences({"torch": "2.13.0", "oneDNN": "3.12.0"}, {"torch": "2.9.0", "oneDNN": "3.7.1"})
                                                   ["torch 2.13.0 against 2.9.0", "oneDNN 3.12.0 against 3.7.1"]

This module uses only the standard library. Equal facts, and facts that only one run reports, are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..codec import UNLESS_EMPTY

INSTALLED = {
    "torch": "torch",
    "python": "Python",
    "BLAS": "BLAS",
    "LAPACK": "LAPACK",
    "MKL": "MKL",
    "oneDNN": "oneDNN",
    "OpenMP": "OpenMP",
    "NNPACK": "NNPACK",
    "compiler": "torch's compiler",
    "numpy": "NumPy",
}
"""Facts of the installation, with their names for readers. Two interpreters count as different only if one of these
facts differs."""

AS_IT_RUNS = {
    "cpu_capability": "the CPU's capability",
    "threads": "threads",
    "deterministic": "deterministic algorithms",
    "default_dtype": "default dtype",
    "matmul_precision": "float32 matmul precision",
    "onednn_enabled": "oneDNN in use",
    "onednn_precision": "oneDNN's float32 precision",
    "attention": "kernels of attention",
    "foreach": "foreach on the CPU by default",
    "platform": "the platform",
}
"""Facts of the machine, and settings that are torch's defaults or come from a mode or an environment variable."""

FACTS = INSTALLED | AS_IT_RUNS
"""The entries of a run's environment that may change its numbers."""

VERSION = "version"
MODE = "mode"
VERSION_OR_MODE = "version or mode"
"""The possible reasons why two runs with different versions of torch differ.

If the modes are the same, the reason is the version. Otherwise the mode is tested: a run in the mode executes the plain
kernels of its own version of torch in place of the culprits. If that run equals the reference bit for bit, the reason
is the mode.
"""


def differences(a: Mapping[str, Any], b: Mapping[str, Any], stated: Collection[str] = ()) -> list[str]:
    """Return a phrase for each fact that both runs report and that differs, except for facts that a mode `stated`."""
    return [
        f"{called} {_shown(a[key])} against {_shown(b[key])}"
        for key, called in FACTS.items()
        if key in a and key in b and a[key] != b[key] and key not in stated
    ]


def are_two(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Return whether the installations of the runs differ in any fact that both runs report."""
    return any(key in a and key in b and a[key] != b[key] for key in INSTALLED)


def difference_sentence(a: str, b: str, phrases: Sequence[str]) -> str:
    """Return a sentence, without its full stop, on the differences between the interpreters of the runs `a` and `b`."""
    return f"the interpreters of {a} and {b} differ: {'; '.join(phrases)}"


def _shown(value: object) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True)
class TwoInterpreters:
    """The two different interpreters of a pair.

    torch: the version of torch by side ("a" and "b"), even if both are equal
    differences: a phrase for each difference, torch first
    blame: the reason for the pair's difference, VERSION or MODE; VERSION_OR_MODE if it may be either
    command: for VERSION_OR_MODE, a command that compares b with the reference's mode in b's interpreter; empty if it
        cannot be typed
    """

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    torch: Mapping[str, str]
    differences: Sequence[str]
    blame: str
    command: str = field(default="", metadata=UNLESS_EMPTY)

    @property
    def are_two_versions(self) -> bool:
        """Return whether the two sides have different versions of torch."""
        return self.torch["a"] != self.torch["b"]

    def sentence(self, a: str, b: str) -> str:
        return difference_sentence(a, b, self.differences)
