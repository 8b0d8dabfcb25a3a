"""The record of a cause of a pair's drift in `localization.json` and `investigation.json`, with the cause's proof."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..codec import UNLESS_EMPTY, plain, read_fields

SIDES = ("a", "b")

KERNEL = "kernel"
ORDER = "order"
LAYOUT = "layout"
ARGUMENTS = "arguments"
STRUCTURE = "structure"
SETUP = "setup"
"""The kinds of a culprit that is an op. `setup` is also the kind of a difference in the set-up. An op of kind `order`
reads memory in a compiled graph after a later op has overwritten it."""

SETTING = "setting"
"""The kind of a setting of torch that has a different value on each side. It changes the bits of ops' results, or which
ops are executed."""

NONDETERMINISM = "nondeterminism"
"""The kind of a call that differs between two runs of one mode.

`name` is the mode, `what` the way in which the runs diverged."""

AGAIN = "executed again"
"""The first words of the reason why an op of lazy tensors is a suspect if it was executed more than once.

Such an op draws random numbers, or updates a tensor, once per execution."""

REDRAWN = "draws other random numbers when the compiled backward computes it once more"
"""The reason why an op is a suspect if a compiled graph of the backward repeats it to save memory, and draws anew.

The gradients then belong to other random numbers than the loss: the compiler is at fault."""

RECOMPUTED = "recomputed"
"""The rule of a draw that a recomputation in the backward makes anew. Its text says all about the difference."""

PART = "part"
MARK_STEP = "mark-step"
COMPILER_STAGE = "compiler-stage"
COMPILER_SETTING = "compiler-setting"
WEIGHTS = "weights"
"""The kind of a culprit that is the weighting of the parts of a batch, which only one mode splits."""

WAYS = (PART, MARK_STEP, COMPILER_STAGE, COMPILER_SETTING, WEIGHTS)
"""The kinds of culprits that are not an op, but a way in which a mode executes."""


@dataclass(frozen=True, slots=True)
class SwappedIn:
    """The reference with the mode's side of the culprit swapped in.

    The scores are measured against the unchanged reference. They are None if the changed reference cannot be executed.
    """

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    holds: bool = False
    score_before: float | None = None
    score_after: float | None = None


@dataclass(frozen=True, slots=True)
class SwappedOut:
    """The mode with the reference's side in place of the culprit; for `score_without_all`, in place of all culprits."""

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    holds: bool = False
    score_before: float | None = None
    score_after: float | None = None
    score_without_all: float | None = None


@dataclass(frozen=True, slots=True)
class Proof:
    """The proof of a culprit in both directions: swapped in and swapped out.

    together_with: the number of culprits that act only together with this one
    why: what could not be executed or, if the culprit is not an op, what the scores compare
    swapped_with: the number of culprits that were swapped together with this one, as they all only round differently
    """

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    swap_in: SwappedIn
    swap_out: SwappedOut
    together_with: int = 0
    why: str = ""
    swapped_with: int | None = field(default=None, metadata=UNLESS_EMPTY)

    @property
    def holds(self) -> bool:
        return self.swap_in.holds and self.swap_out.holds


@dataclass(frozen=True, slots=True)
class CulpritScript:
    """The standalone script of a culprit.

    path: the script's file, None if there is no script
    why: the reason why there is no script
    output: the last line of the script's output
    error_ulp: by side, the error of the one block that the script shows; the culprit's own `error_ulp` has the largest
        error of all its places
    """

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True
    EMPTY_IS_LEFT_OUT: ClassVar[bool] = True

    path: str | None
    why: str | None = None
    reproduces: bool | None = None
    output: str | None = None
    error_ulp: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class ArgumentLayouts:
    """An argument of an op that has a different layout on each side.

    number, name: its number among the arguments, counted from 1, and its name
    look: by side, the usual name of the layout
    stride: by side, the strides in elements
    start: by side, the offset in bytes from a multiple of 64
    """

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    number: int
    name: str
    look: Mapping[str, str]
    stride: Mapping[str, Sequence[int]]
    start: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CulpritSetting:
    """A setting that has a different value on each side.

    name: a key of a mode, or the setting's name in a tape
    what: the difference, in words
    values: by side, the value in words
    lines: by side, the line of the script that set it, if a line did
    statements: by side, the statements of plain torch that set it, if there are any
    """

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    name: str
    what: str
    values: Mapping[str, str]
    lines: Mapping[str, str] = field(default_factory=dict)
    statements: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Culprit:
    """A cause of a drift. docs/guide/investigation-json.md describes each field.

    `frames` are the frames of the user's own files, each as `file:line function`, innermost first; the innermost one is
    also in `source`. `phases` is set for a cause that acts in more than one phase, such as an op's forward and its
    backward. A cause of kind `setting` has the `setting` and the ops that the setting changes, if they are known. Three
    sorts of causes have fields of their own:

    - an op: `kernel`, `beside` (further ops of the reference with different kernels, such as the backward of an op
      whose forward is in `ops`), `layouts`, `bound`, `largest_relative`, `lead` (the block that its script shows);
    - a way in which a mode executes: `name`, `policy`, and `swapped` (the key of a mode that undoes it);
    - a difference in the set-up, the only sort without a proof: `what`, `name`, `text`.

    A cause that changes the batch lists the arguments of the model's call that it changes (`batch`), and describes the
    change (`text`). Mappings by side have the keys "a" and "b". In a pair with two versions of torch, `torch` has the
    version of each side, and `blame` says whether the version or the mode is the reason, as in `TwoInterpreters`.
    `script` and `command` are added when the findings of the pair are put together.
    """

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    kind: str
    status: str | None = None
    phase: str | None = None
    module: str | None = None
    op: str | None = None
    name: str | None = None
    step: int | None = None
    source: str | None = None
    frames: Sequence[str] = ()
    kernel: Mapping[str, str | None] | None = None
    reasons: Sequence[str] = ()
    ops: Mapping[str, Sequence[str]] = field(default_factory=lambda: {"a": (), "b": ()})
    places: Sequence[str] = ()
    sites: int = 0
    significance: str | None = None
    local_significance: str | None = None
    local_rule: str | None = None
    error_ulp: Mapping[str, float] = field(default_factory=dict)
    rho: Mapping[str, float] = field(default_factory=dict)
    bias: Mapping[str, float] = field(default_factory=dict)
    bound: Mapping[str, float | None] = field(default_factory=dict)
    largest_relative: float = 0.0
    roundings: float | None = None
    share_of_drift: float | None = None
    proof: Proof | None = None
    lead: int | None = None
    layouts: Sequence[ArgumentLayouts] = ()
    policy: Mapping[str, str | None] = field(default_factory=dict)
    swapped: str | None = None
    what: str | None = None
    text: str | None = None
    batch: Sequence[str] | None = None
    script: CulpritScript | None = None
    command: str | None = None
    phases: Sequence[str] | None = None
    beside: Sequence[str] = ()
    setting: CulpritSetting | None = None
    torch: Mapping[str, str] = field(default_factory=dict)
    blame: str = ""

    @property
    def is_proven(self) -> bool:
        """Return whether it is more than a suspect: swapping it in causes the drift, and swapping it out removes the
        drift."""
        return self.proof is not None and self.status == "culprit"

    @property
    def is_of_kernel(self) -> bool:
        """Return whether both sides execute one op on the same values, so that the sides' errors can be compared."""
        return self.kind in (KERNEL, LAYOUT) or self.setting is not None

    @property
    def is_way(self) -> bool:
        """Return whether it is a way in which a mode executes, not an op. This includes a setting of the mode."""
        return self.kind in WAYS or (self.kind == SETTING and self.setting is None)

    @property
    def is_wrong_by_itself(self) -> bool:
        """Return whether it is proven, and beyond rounding both in the step's drift and in its own results."""
        acts = self.is_proven and self.significance == "beyond-rounding"
        return acts and self.local_significance in ("beyond-rounding", "different-setup")

    @property
    def is_within_its_inputs(self) -> bool:
        """Return whether its whole error is within the error that rounding of its inputs causes in any kernel."""
        return self.local_significance == "rounding" and self.local_rule == "within"

    def to_json(self) -> dict[str, object]:
        """Return the file's content. Each sort of culprit has different fields, in a different order."""
        of_kind = WRITTEN_OF_MODE.get(self.kind, WRITTEN_OF_WAY if self.name else WRITTEN_OF_OP)
        # a culprit without a proof was observed without an experiment: as a difference in the set-up, or as a
        # difference between repetitions
        observed = WRITTEN_OF_CALL if self.kind == NONDETERMINISM or self.source else WRITTEN_OF_SETUP
        names = of_kind if self.proof else observed
        added = (*ADDED, "swapped") if names is WRITTEN_OF_OP else ADDED
        written = [name for name in names if name not in added or getattr(self, name) not in (None, (), [], {}, "")]
        return {name: plain(getattr(self, name)) for name in written}

    @classmethod
    def from_json(cls, data: Any) -> Culprit:
        """Read a culprit. Raises Unreadable."""
        return read_fields(cls, data)


ADDED = (
    *("script", "command", "local_rule", "roundings", "layouts", "phases", "beside"),
    *("batch", "text", "frames", "setting", "torch", "blame"),
)

# The fields keep the order of numdrift's first version, so that rewriting a file changes no byte of it.
_SEEN = ("places", "sites", "significance", "local_significance", "error_ulp", "rho", "bias")
_OF_MODE = (
    "status", "phase", "module", "op", "name", "step", "source", "kind", "reasons", "ops", *_SEEN, "share_of_drift",
    "proof",
)  # fmt: skip
WRITTEN_OF_OP = (
    "status", "phase", "phases", "module", "op", "step", "source", "frames", "kind", "kernel", "reasons", "ops",
    "beside", "setting", *_SEEN, "local_rule", "bound", "largest_relative", "roundings", "share_of_drift", "proof",
    "lead", "layouts", "swapped", "script", "command", "batch", "text", "torch", "blame",
)  # fmt: skip
WRITTEN_OF_MODE: Mapping[str, Sequence[str]] = {
    PART: (*_OF_MODE, "command", "script"),
    MARK_STEP: (*_OF_MODE, "policy", "swapped", "command", "script"),
}
WRITTEN_OF_WAY = (*_OF_MODE, "swapped", "command", "script")
"""The fields of a way in which a mode executes, if WRITTEN_OF_MODE does not list its kind. A way has a name; an op has
none."""
WRITTEN_OF_CALL = (
    "status", "phase", "module", "op", "kind", "step", "source", "what", "name", "text", "significance",
)  # fmt: skip
"""The fields of a call that differs between two runs."""
WRITTEN_OF_SETUP = ("phase", "module", "op", "kind", "step", "what", "name", "text", "significance")
