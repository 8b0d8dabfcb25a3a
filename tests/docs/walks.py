"""Which commands of the pages are executed together, with what in place of a user's files, and how each ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .shown import ROOT, blocks

STAND_IN = "tests/docs/scripts/train.py"
MODEL = "tests/docs/scripts/model.py"

Files = Mapping[str, str | tuple[str, str, int]]
"""The files of a folder, each with the file of the repository that it is a copy of, or the block of a page that it is."""


@dataclass(frozen=True, slots=True)
class Walk:
    """Commands of pages, or of sections of them, that are executed in their order in one folder.

    What is shown twice is executed once. A command ends with exit code 0, but for those of `codes`. What the pages take for
    granted is executed `before`. The plug-ins of docs/guide/add-a-backend.md are installed where the walk is `plugged`.
    """

    name: str
    places: tuple[str, ...]
    files: Files
    before: tuple[str, ...] = ()
    codes: Mapping[str, int | tuple[int, ...]] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    plugged: bool = False

    def ends_with(self, text: str) -> tuple[int, ...]:
        """The exit codes that a command may end with."""
        code = self.codes.get(text, 0)
        return code if isinstance(code, tuple) else (code,)

    def lay_out(self, folder: Path) -> None:
        for name, source in self.files.items():
            text = (ROOT / source).read_text() if isinstance(source, str) else block(*source)
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)


def block(page: str, language: str, number: int) -> str:
    return blocks(page, language)[number].text


def at(folder: str, *names: str) -> dict[str, str]:
    """Files of the repository at their own place."""
    return {f"{folder}/{name}": f"{folder}/{name}" for name in names}


def guide(*names: str) -> tuple[str, ...]:
    return tuple(f"docs/guide/{name}.md" for name in names)


def help_of(*commands: str) -> tuple[str, ...]:
    return tuple(f"docs/reference/commands.md#{command}" for command in commands)


TWO_SETTINGS = {"two_settings.py": "tests/e2e/scripts/two_settings.py"}
TRAIN = {"train.py": STAND_IN}
MODULE = {"package/train.py": STAND_IN}
SAM = at("reproducers", "sam_tanh.py", "sam.py")
QUICK_SAM = {"reproducers/sam_tanh.py": STAND_IN}
"""In place of the reproducer, for pages that other walks follow with the reproducer itself."""
RANKS = at("tests/e2e/scripts", "ranks.py")
MLP: Files = {"mlp.py": ("docs/guide/partition.md", "python", 0)}
MINE: Files = {"mine.c": ("docs/guide/own-kernel.md", "c", 0), "mine.py": ("docs/guide/own-kernel.md", "python", 0)}
CHOOSE: Files = {"choose.py": ("docs/guide/snapshots.md", "python", 0)}

A_DRIFT, UNDECIDED, WRONG_USAGE, A_LIMIT, NOT_THERE, NOBODY_ANSWERED = 1, 1, 2, 2, 3, 130
AS_THE_PROCESSOR_HAS_IT = (0, 1)
"""Lazy mode is eager bit for bit where the library has one path for transposed views and for their copies."""

OF_RANKS = {"OMP_NUM_THREADS": "1"}
"""What each rank is given anyway: with it they are forked from a process that has the same."""

PLANTED = '--mode cpu --mode "lazy,kernel.tanh_backward=bf16"'

WALKS = (
    Walk(
        "readme",
        ("README.md",),
        {**TRAIN, **QUICK_SAM, "issue.py": ("docs/guide/check.md", "python", 0)},
        codes={"numdrift check issue.py": A_DRIFT, "numdrift compare": AS_THE_PROCESSOR_HAS_IT},
    ),
    Walk(
        "accelerators",
        ("docs/architecture.md", "docs/index.md", *guide("accelerators"), *help_of("numdrift", "numdrift doctor")),
        {**TRAIN, **QUICK_SAM, **at("tests/gpu/trainings", "transformer.py")},
        codes={
            "numdrift compare runs/train": AS_THE_PROCESSOR_HAS_IT,
            "numdrift run reproducers/sam_tanh.py --mode cpu --mode cuda:3 --name absent -- --epochs 2": NOT_THERE,
        },
    ),
    Walk(
        "check",
        (*guide("check"), *help_of("numdrift check")),
        {
            "issue.py": ("docs/guide/check.md", "python", 0),
            "ops.py": ("docs/guide/check.md", "python", 1),
            "index.py": ("docs/guide/check.md", "python", 3),
        },
        codes={
            "numdrift check issue.py": A_DRIFT,
            "numdrift check issue.py --markdown issue.md --force": A_DRIFT,
            "numdrift check issue.py --shrink": A_DRIFT,
            "numdrift check index.py --shrink": A_DRIFT,
        },
    ),
    Walk(
        "batches",
        (*guide("batches"), *help_of("numdrift batch")),
        {
            **TRAIN,
            "experiments.toml": ("docs/guide/batches.md", "toml", 0),
        },
        codes={
            "numdrift batch experiments.toml": A_DRIFT,
            "numdrift batch experiments.toml --suffix jobs --engine submitit --engine-option cluster=local": A_DRIFT,
            "numdrift batch experiments.toml --jobs 4 --parquet table.parquet": A_DRIFT,
            "numdrift batch runs/experiments/main --json -": A_DRIFT,
        },
    ),
    Walk(
        "watch",
        (*guide("watch"), *help_of("numdrift watch")),
        {"train.py": "tests/docs/scripts/spiking.py"},
        before=(
            "numdrift watch --name prod train.py --steps 30",
            "numdrift watch --name prod train.py --epochs 1 --steps 30",
        ),
        codes={"numdrift run train.py --modes cpu --record ops --steps 40 --name nan -- --fault nan": 3},
        variables={"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])},
    ),
    Walk("run", guide("run"), {**TRAIN, **TWO_SETTINGS, "pkg/train.py": STAND_IN}),
    Walk(
        "help of graph and run",
        help_of("numdrift graph", "numdrift graph diff", "numdrift run"),
        {**TRAIN, **MODULE, **MINE},
        variables=OF_RANKS,
    ),
    Walk(
        "adopt-your-script",
        guide("adopt-your-script", "frameworks"),
        {
            "device_cuda_factories.py": "tests/habits/scripts/device_cuda_factories.py",
            "finetune.py": STAND_IN,
        },
    ),
    Walk(
        "verdict",
        guide("report", "verdict"),
        {**TRAIN, **SAM},
        codes={
            'numdrift investigate reproducers/sam_tanh.py --mode cpu --mode "bad=cpu,kernel.tanh_backward=bf16" --name bad -- --epochs 30': A_DRIFT,
        },
    ),
    Walk(
        "investigate",
        (
            "docs/guide/investigate.md#An example: tanh with torch.compile and in lazy mode",
            "docs/guide/investigate.md#Which stage and which setting of the compiler?",
        ),
        QUICK_SAM,
        codes={f"numdrift investigate reproducers/sam_tanh.py {PLANTED} -- --epochs 10": A_DRIFT},
    ),
    Walk(
        "investigate, on its own scripts",
        guide("investigate"),
        {**SAM, **TWO_SETTINGS, "redrawn.py": "tests/e2e/scripts/redrawn.py"},
        codes={
            f"numdrift investigate reproducers/sam_tanh.py {PLANTED} -- --epochs 10": A_DRIFT,
            'numdrift investigate redrawn.py --mode cpu --mode "lazy,mark_step=step"': A_DRIFT,
        },
    ),
    Walk(
        "several processes and what reads runs",
        (
            *guide("several-processes"),
            *help_of(
                "numdrift graph list",
                "numdrift graph open",
                "numdrift graph export",
                "numdrift compare",
                "numdrift plot",
                "numdrift runs",
                "numdrift runs export",
            ),
        ),
        {**SAM, **RANKS},
        before=(
            "numdrift run reproducers/sam_tanh.py --modes cpu,compile --metrics --name sam_tanh -- --epochs 5",
            "numdrift investigate runs/sam_tanh --envelope 2 --localize none",
            "numdrift run reproducers/sam_tanh.py --modes cpu --name changed --suffix before -- --epochs 2",
            "numdrift run reproducers/sam_tanh.py --modes cpu --name changed --suffix after -- --epochs 2",
            "numdrift run reproducers/sam_tanh.py --modes cpu,compile,lazy --graphs --name sam_tanh --suffix main -- --epochs 2",
        ),
        codes={
            'numdrift investigate tests/e2e/scripts/ranks.py --nproc 2 --mode cpu --mode "b=cpu,env.FAULT=1" --name inv -- --steps 3': A_DRIFT,
            "numdrift compare runs/one/cpu runs/sharded/cpu --global-batch": UNDECIDED,
            "numdrift compare runs/sam_tanh": UNDECIDED,
            "numdrift compare runs/sam_tanh --suffix main": UNDECIDED,
            "numdrift compare runs/sam_tanh/cpu_main runs/sam_tanh/compile_main --json -": UNDECIDED,
            "numdrift compare runs/one/cpu runs/two/cpu --global-batch": UNDECIDED,
            "numdrift runs rm sam_tanh --suffix main": NOBODY_ANSWERED,
        },
        variables=OF_RANKS,
    ),
    Walk(
        "bundle",
        guide("bundle"),
        QUICK_SAM,
        before=(f"numdrift investigate reproducers/sam_tanh.py {PLANTED} --name study -- --epochs 3",),
        codes={f"numdrift investigate reproducers/sam_tanh.py {PLANTED} --name study -- --epochs 3": A_DRIFT},
    ),
    Walk(
        "swap-a-kernel",
        guide("swap-a-kernel"),
        SAM,
        codes={
            "numdrift compare runs/tanh": UNDECIDED,
            "numdrift compare runs/tanh/cpu_dec runs/tanh/lazy_dec": AS_THE_PROCESSOR_HAS_IT,
            'numdrift run reproducers/sam_tanh.py --mode "b=cpu,kernel.gelu=fp64" --mode "c=cpu,kernel.tanh_backward@layers.9=fma" --name never -- --epochs 1': WRONG_USAGE,
        },
    ),
    Walk("read-the-graphs", guide("read-the-graphs"), SAM),
    Walk(
        "analyze",
        (*guide("analyze"), *help_of("numdrift analyze")),
        {
            **TRAIN,
            **MODULE,
            **at("reproducers", "analyze_supported.py", "analyze_unsupported.py"),
            **at("tests/e2e/scripts", "support.py"),
        },
    ),
    Walk(
        "partition",
        guide("partition"),
        {**TRAIN, **SAM, **MLP},
        codes={"numdrift partition mlp.py:SortedBetween --inference --max-subgraph-count 2": A_LIMIT},
    ),
    Walk("metrics", guide("metrics"), {**TRAIN, **at("tests/e2e/scripts", "two_layers.py")}),
    Walk("help of metrics", help_of("numdrift metrics"), TRAIN),
    Walk(
        "op-by-op",
        guide("op-by-op"),
        {**TRAIN, "drop.py": "tests/e2e/scripts/redrawn.py", **at("tests/e2e/scripts", "two_layers.py")},
    ),
    Walk("profile", guide("profile"), {"train.py": "tests/e2e/scripts/named_blocks.py"}),
    Walk("snapshots", guide("snapshots"), {**SAM, **CHOOSE, **at("tests/e2e/scripts", "snapshots.py")}),
    Walk("export", guide("export"), TRAIN),
    Walk(
        "add-a-backend",
        guide("add-a-backend"),
        {"sorting.py": "tests/backend/sorting.py"},
        codes={
            "numdrift compare runs/first": UNDECIDED,
            "numdrift investigate sorting.py --mode standin --mode faulty=standin,kernel.tanh_backward=bf16 --name planted": A_DRIFT,
            "numdrift investigate sorting.py --modes cpu,toy": A_DRIFT,
        },
        plugged=True,
    ),
    Walk(
        "help of investigate",
        help_of("numdrift investigate"),
        {**TRAIN, **MODULE},
        before=("numdrift run train.py --modes cpu,compile --suffix main --name train",),
        variables=OF_RANKS,
    ),
    Walk(
        "help of what reads findings",
        help_of(
            "numdrift report",
            "numdrift localize",
            "numdrift bundle",
            "numdrift bundle make",
            "numdrift bundle show",
            "numdrift bundle open",
        ),
        TRAIN,
        before=("numdrift investigate train.py --modes cpu,compile",),
    ),
    Walk(
        "help of partition",
        help_of("numdrift partition"),
        {**TRAIN, **MODULE, "model.py": MODEL, "package/model.py": MODEL},
    ),
    Walk("help of profile", help_of("numdrift profile"), TRAIN),
    Walk(
        "help of snapshot",
        help_of(
            "numdrift snapshot",
            "numdrift snapshot take",
            "numdrift snapshot list",
            "numdrift snapshot show",
            "numdrift snapshot replay",
        ),
        {**TRAIN, **CHOOSE},
    ),
    Walk(
        "kernels",
        (
            *guide("own-kernel"),
            *help_of(
                "numdrift kernels",
                "numdrift kernels list",
                "numdrift kernels check",
                "numdrift kernels sweep",
                "numdrift kernels build",
            ),
        ),
        {"train.py": "tests/habits/scripts/compiled_module.py", **MINE},
        before=("numdrift run train.py --modes cpu --trace-kernel native_layer_norm",),
    ),
)

SERVES = "serves a page until Ctrl-C"
BUCKET = "writes to or reads from a bucket"
XLA = "needs torch_xla; tests/xla runs the like of it where bash scripts/xla was run"
GPU = "needs a GPU; scripts/gpu runs the like of it where there is one"
ANOTHER_TORCH = "another torch"
PLACEHOLDER = "names a file that is any snapshot"
ON_A_PAGE = "is executed for a guide, of another script, and takes long"
REPOSITORY = "needs a repository; tests/e2e/test_changed_code.py bisects one and compares its revisions"
VERSIONS = (
    "needs other versions of torch; tests/harness/launch/test_torch_versions.py and tests/harness/api/test_bisecting.py"
)
GATED = "needs a repository; tests/e2e/test_baseline.py"
PACKED = "needs the arguments of a script of its own; tests/e2e/test_reference.py"
RESUMED = "needs a script that writes checkpoints; tests/e2e/test_resume.py"
NEUTRAL = "takes some minutes for all changes; tests/e2e/test_neutral.py tries four"
SEVERAL = "has to be typed on two machines; tests/e2e/test_tasks.py types it twice"
OPS = "takes ten seconds for each op; tests/e2e/test_check.py checks two"
A_CLUSTER = "needs a cluster; tests/harness/engines has Slurm's programs and a Ray cluster of this machine"
FOUNDING = "takes four minutes; tests/e2e/test_batch_of_experiments.py takes the first steps of it"
ONE_OP = "takes ten seconds for each op; tests/e2e/test_check.py checks one on this engine"
WATCHED = "needs a launcher, or a package of its own; tests/e2e/test_watch.py"
NOT_EXECUTED = {
    "numdrift watch --name prod python -m package.train --config large.yaml": WATCHED,
    "numdrift watch --name prod python -u -m package.train --config large.yaml": WATCHED,
    "torchrun --nproc-per-node 8 -m numdrift watch --name prod train.py": WATCHED,
    (
        "numdrift run train.py --modes cpu --nnodes 2 --nproc 2 --rdzv-endpoint node0:29400 --out /shared/runs --name four"
    ): SEVERAL,
    ("numdrift run train.py --modes cpu --nproc 4 --nnodes 2 --rdzv-endpoint node0:29400 --out /shared/runs"): SEVERAL,
    "numdrift batch reproducers/founding.toml": FOUNDING,
    "numdrift check --ops . --engine ray --engine-option address=auto": A_CLUSTER,
    'numdrift check --ops "^(abs|tanh)$" --samples 1 --quick --engine submitit --engine-option cluster=local': ONE_OP,
    "numdrift batch experiments.toml --engine submitit --engine-option slurm_partition=gpu": A_CLUSTER,
    "numdrift batch experiments.toml --engine ray --engine-option address=auto": A_CLUSTER,
    "numdrift batch experiments.toml --engine ray --engine-option address=auto --shared s3://bucket/runs": A_CLUSTER,
    (
        "numdrift investigate train.py --modes cpu,cuda --name train --engine submitit --engine-option slurm_partition=gpu"
    ): A_CLUSTER,
    "numdrift reference train.py --to ref.zip -- --steps 6": PACKED,
    "numdrift reference train.py --to ref.zip -- --epochs 1": PACKED,
    "numdrift reference train.py --to ref.zip --keep ops --steps 0,3 -- --steps 5": PACKED,
    "numdrift reference train.py --mode cuda --steps 0,10,100 --keep ops --to ref.zip": PACKED,
    'numdrift investigate train.py --mode "new=cuda" --against ref.zip': PACKED,
    'numdrift investigate train.py --mode here=cpu --mode "bad=cpu,kernel.tanh_backward=bf16" --against ref.zip': PACKED,
    "numdrift baseline save train.py --to baselines/train.zip -- --steps 5": GATED,
    "numdrift baseline save train.py --to baselines/train.zip -- --steps 6": GATED,
    "numdrift baseline save train.py --mode compile --steps 0,5 --max-steps 6": GATED,
    "numdrift baseline save -m package.train --limit 1 --force": GATED,
    "numdrift baseline check baselines/train.zip": GATED,
    "numdrift baseline check baselines/train.zip --junit report.xml": GATED,
    "numdrift baseline check baselines/train.zip --script train.py --mode compile -- --steps 6": GATED,
    'numdrift resume train.py --at 3 --with "--resume out/last.pt" -- --keep model,step': RESUMED,
    'numdrift resume train.py --at 50 --with "--resume ckpt.pt" -- --epochs 2': RESUMED,
    "numdrift resume train.py --at 20 --max-steps 30 --crash": RESUMED,
    (
        'numdrift check ops.py:scaled --load inputs.pt --mode cpu --mode "plain=cpu,kernel.gelu=decomposed"'
    ): "needs a file of inputs; tests/harness/script/calls/test_call_targets.py reads one",
    'numdrift check --ops "^tanh$|floor" --samples 2': OPS,
    "numdrift check --ops . --samples 5 --name library": OPS,
    "numdrift neutral train.py": NEUTRAL,
    "numdrift neutral train.py -- --epochs 1": NEUTRAL,
    "numdrift neutral train.py --max-steps 20 --mode cuda": GPU,
    "numdrift neutral train.py --change checkpointing --change optimizer-fused --json -": NEUTRAL,
    "numdrift resume -m package.train --at 5 --json -": RESUMED,
    "pip install .": "changes the environment",
    "bash run.sh": "tests/e2e/test_batches.py executes it",
    (
        'numdrift investigate train.py --mode cpu --mode "before=cpu,git=HEAD~1" --mode "four=cpu,args+=--accum 4" '
        "-- --steps 3"
    ): REPOSITORY,
    "numdrift bisect train.py --git HEAD~5..HEAD -- --steps 3": REPOSITORY,
    "numdrift bisect train.py --git v1.0..main": REPOSITORY,
    "numdrift bisect train.py --git HEAD~20..HEAD --mode compile --max-steps 20 -- --epochs 1": REPOSITORY,
    "numdrift bisect -m package.train --git good..bad --bits --json -": REPOSITORY,
    "numdrift bisect train.py --torch 2.9.0..2.13.0 --with numpy --with einops": VERSIONS,
    "numdrift bisect train.py --torch 2.9.0..2.13.0 --with numpy": VERSIONS,
    "numdrift bisect grouped.py --python .venv-xla/bin/python --python .venv/bin/python --bits --max-steps 5": VERSIONS,
    "bash scripts/test": "is what runs this test",
    "bash scripts/setup": "changes the environment",
    "bash scripts/browser": "changes the environment",
    "bash scripts/xla": "changes the environment",
    "source .venv/bin/activate": "changes a shell",
    "pip install tensorboard torch-tb-profiler": "changes the environment",
    "tensorboard --logdir logs --load_fast=false": SERVES,
    "numdrift view": SERVES,
    "numdrift view runs --port 8765 --no-browser": SERVES,
    "numdrift graph open runs/train --mode lazy --phase backward": SERVES,
    "numdrift graph open runs/sam_tanh/compile_main": SERVES,
    "numdrift graph open runs/sam_tanh --mode lazy --phase backward": SERVES,
    "numdrift graph open runs/sam_tanh --mode compile --phase backward --post": SERVES,
    "numdrift graph open runs/sam_tanh --mode compile --graph 0-backward-post --port 8080 --no-browser": SERVES,
    'numdrift investigate reproducers/sam_tanh.py --mode cpu --mode "other=cpu,python=.venv-xla/bin/python" -- --epochs 40': ANOTHER_TORCH,
    'numdrift investigate reproducers/sam_tanh.py --mode cpu --mode "other=compile,python=.venv-xla/bin/python" -- --epochs 30': ANOTHER_TORCH,
    'numdrift investigate grouped.py --mode new=cpu --mode "old=cpu,python=.venv-xla/bin/python"': XLA,
    'numdrift investigate plain.py --mode "cpu,python=.venv/bin/python" --mode xla --quick': XLA,
    'numdrift analyze train.py --mode "cuda,dtype=bfloat16" --max-steps 1 --output reports/cuda.json': GPU,
    "numdrift profile train.py --modes cuda --mode compile,device=cuda --type operator": GPU,
    "numdrift profile reproducers/char_gpt.py --modes cuda --mode compile,device=cuda --type operator --steps 5-6 --top 6 -- --steps 10": GPU,
    "numdrift investigate reproducers/sam_tanh.py --modes cpu,cuda -- --epochs 10": GPU,
    "numdrift investigate reproducers/sam_tanh.py --mode cuda --mode faulty=cuda,kernel.tanh_backward=bf16 -- --epochs 10": GPU,
    "numdrift investigate tests/gpu/trainings/transformer.py --mode cuda,deterministic=on --mode tf32=cuda,tf32=on,deterministic=on -- --steps 8": GPU,
    "numdrift investigate tests/gpu/trainings/masked.py --mode math=cuda,sdpa=math --mode cuda -- --steps 4": GPU,
    "numdrift kernels sweep tanh": "takes minutes: four thousand million numbers",
    "numdrift investigate train.py --modes cpu,compile --envelope 8 --seeds 12": ON_A_PAGE,
    "numdrift investigate train.py --modes cpu,lazy --partition-bisect": ON_A_PAGE,
    "numdrift bundle runs/train --to s3://bucket/train.zip": BUCKET,
    "numdrift bundle open s3://bucket/train.zip --to train --replay": BUCKET,
    "numdrift bundle show s3://bucket/train.zip --json -": BUCKET,
    "numdrift bundle open s3://bucket/train.zip --replay --run-scripts": BUCKET,
    "numdrift doctor --modes cpu,compile,lazy,xla": XLA,
    "numdrift run reproducers/sam_tanh.py --modes cpu,xla -- --epochs 4": XLA,
    'numdrift run plain.py --mode xla --mode "op=xla,execute=op" --metrics': XLA,
    "numdrift metrics plain": XLA,
    "numdrift investigate reproducers/sam_tanh.py --modes cpu,xla -- --epochs 12": XLA,
    "numdrift run reproducers/sam_tanh.py --modes cpu,xla --graphs -- --epochs 2": XLA,
    "numdrift graph list sam_tanh --mode xla": XLA,
    "numdrift graph diff runs/sam_tanh/cpu runs/sam_tanh/xla": XLA,
    "numdrift run reproducers/char_gpt.py --modes cpu,xla --graphs -- --epochs 2": XLA,
    "numdrift graph diff runs/char_gpt/cpu runs/char_gpt/xla": XLA,
    "numdrift run reproducers/resnet_digits.py --modes cpu,xla --graphs -- --epochs 2": XLA,
    "numdrift graph diff runs/resnet_digits/cpu runs/resnet_digits/xla": XLA,
    "numdrift analyze reproducers/analyze_unsupported.py --mode xla --output result.json --analyze-verbosity 1": XLA,
    'numdrift run plain.py --mode xla --mode "mac=xla,kernel.tanh_backward=mac" --mode "fma=xla,kernel.tanh_backward=fma"': XLA,
    "numdrift snapshot take tests/e2e/scripts/snapshots.py --modes xla --callback choose.py:choose --name hlo -- --steps 8": XLA,
    "numdrift snapshot list runs/hlo": XLA,
    "numdrift snapshot take tests/e2e/scripts/snapshots.py --modes xla --on nonfinite --name hlo-nan -- --steps 9 --nan-at 2": XLA,
    "numdrift snapshot show runs/hlo/xla/snapshots/0-forward+backward-step000005-execution000005.safetensors --hlo": XLA,
    "numdrift snapshot replay runs/hlo/xla/snapshots/0-forward+backward-step000005-execution000005.safetensors": XLA,
    "numdrift snapshot replay runs/hlo/xla/snapshots/0-forward+backward-step000005-execution000005.safetensors --mode cpu": XLA,
    "numdrift analyze reproducers/analyze_unsupported.py --mode xla --analyze-verbosity 1": XLA,
    "numdrift analyze reproducers/analyze_supported.py --mode xla": XLA,
    'numdrift run tests/xla/scripts/layers.py --mode xla --mode "op=xla,execute=op" --metrics --name words -- printed marked closed four': XLA,
    "numdrift profile tests/xla/scripts/named.py --modes cpu,xla --top 6": XLA,
    "numdrift partition mlp.py:MLP --inference --mode xla --ops-to-partition aten::sort": XLA,
    "numdrift partition mlp.py:SortedBetween --inference --mode xla --ops-to-partition aten::sort --max-subgraph-count 2": XLA,
    "numdrift partition mlp.py:MLP --inference --mode xla --min-operator-percentage-threshold 0.8 --ops-to-partition aten::sort,aten::log_softmax": XLA,
    "numdrift investigate reproducers/sam_tanh.py --modes cpu,xla --partition-bisect -- --epochs 2": XLA,
    "numdrift snapshot show SNAPSHOT --json -": PLACEHOLDER,
    "numdrift snapshot show SNAPSHOT --hlo": PLACEHOLDER,
    "numdrift snapshot replay SNAPSHOT": PLACEHOLDER,
    "numdrift snapshot replay SNAPSHOT --mode cpu": PLACEHOLDER,
    'numdrift snapshot replay SNAPSHOT --mode "compile,contract=fast" --json -': PLACEHOLDER,
}
"""Commands that no test of this folder executes, each with the reason."""
