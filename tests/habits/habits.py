"""The table of habits, with what is expected of each: the tests and the tables of `docs` are made from it."""

from __future__ import annotations

from .habit import Habit

OUTSIDE = "where it finds no GPU, what it computes outside of its model is computed on the CPU"
"""The effect of `torch.cuda.is_available()` under numdrift. A bare script for xla computes all of it there."""

NO_DEVICE_MODULE = {mode: f"module 'torch' has no attribute '{mode}'" for mode in ("lazy", "xla")}
"""The error of checkpointing, which looks for the device's module in torch."""

DEVICES = [
    Habit("device_cuda_method", "`.cuda()` hard-coded", 4, cuda=True),
    Habit("device_cuda_factories", '`device="cuda"` in factories of forward', 4, cuda=True),
    Habit("device_flag", "device from a flag", 4, arguments=("--steps", "4"), cuda=True),
    Habit("device_environment", "device from the environment", 4, reads_device=True),
    Habit("device_if_available", "`torch.cuda.is_available()`", 4),
    Habit("device_nowhere", "no device at all", 4, on_cpu=dict.fromkeys(("lazy", "xla"), "it names no device")),
    Habit(
        "device_default",
        "`torch.set_default_device`",
        4,
        cuda=True,
        not_in={"lazy": "torch.set_default_device cannot be lazy"},
    ),
]

COMPILED = [
    Habit("compiled_module", "`torch.compile(model)`", 4, compiles_model=True),
    Habit("compiled_function", "`@torch.compile` on a function", 4),
    Habit("compiled_step", "a compiled training step", 4, compiles_model=True),
    Habit("compiled_method", "`@torch.compile` on a method", 4),
    Habit("compiled_options", "torch.compile with options", 4, compiles_model=True),
    Habit("compiled_in_place", "`module.compile()`", 4, compiles_model=True),
]

PRECISION = [
    Habit("autocast_bfloat16", "autocast in bfloat16", 4),
    Habit(
        "grad_scaler",
        "autocast in float16 with GradScaler",
        6,
        cuda=True,
        not_in={"lazy": "autocast does nothing on lazy"},
    ),
    Habit("float64_default", "`torch.set_default_dtype(float64)`", 5, rounds={"xla": OUTSIDE}),
    Habit("bfloat16_model", "a model in bfloat16", 4),
]

UPDATES = [
    Habit("accumulation", "gradient accumulation", 3, losses=3),
    Habit("clip_norm", "`clip_grad_norm_`", 4, script="clip_gradients.py", arguments=("--clip-norm", "0.5")),
    Habit("clip_value", "`clip_grad_value_`", 4, script="clip_gradients.py", arguments=("--clip-value", "0.02")),
    Habit("one_cycle", "OneCycle schedule", 6, script="schedule.py", arguments=("--schedule", "one-cycle")),
    Habit("warm_up", "warm-up by a lambda", 6, script="schedule.py", arguments=("--schedule", "warm-up")),
    Habit("frozen_and_groups", "frozen parameters, groups of parameters", 4),
    Habit("growing_model", "`add_param_group` during training", 5),
    Habit("gan", "two networks, two optimizers", 6),
    Habit("lbfgs", "LBFGS with a closure", 3, losses=(5, 5, 6), rounds={"xla": OUTSIDE}),
    Habit("sam", "SAM's two passes", 4, losses=2),
    Habit(
        "fused_optimizer",
        "fused and foreach optimizers",
        6,
        losses=(1, 0, 1, 0, 1, 0),
        not_in=dict.fromkeys(
            ("lazy", "xla"), "`fused=True` requires all the params to be floating point Tensors of supported devices"
        ),
    ),
    Habit(
        "sparse_embedding",
        "sparse gradients",
        4,
        not_in=dict.fromkeys(("lazy", "xla"), "Could not run 'aten::_sparse_coo_tensor_with_dims_and_tensors'"),
    ),
    Habit(
        "optimizer_in_backward",
        "optimizers that step in the backward",
        4,
        rounds={"xla": "the bare run is cut within its backward, at each optimizer"},
    ),
    Habit("update_by_hand", "`p -= lr * p.grad`", 4),
    Habit(
        "autograd_grad",
        "`torch.autograd.grad`, update by hand",
        4,
        rounds={"xla": "the bare run is not cut where torch.autograd.grad returns"},
    ),
    Habit(
        "torch_func",
        "`torch.func.grad_and_value`",
        4,
        not_in={mode: f"cannot be moved to {mode} (it is being transformed by torch.func)" for mode in ("lazy", "xla")},
    ),
    Habit(
        "gradient_penalty",
        "gradient penalty",
        4,
        not_in={"compile": "torch.compile with aot_autograd does not currently support double backward"},
        rounds={"xla": OUTSIDE},
    ),
    Habit(
        "several_losses",
        "several losses summed",
        4,
        not_in={"lazy": "expected m1 and m2 to have the same dtype"},
    ),
    Habit("log_by_name", "`numdrift.log`", 4),
    Habit("declared_step", "`numdrift.step`", 4, rounds={"xla": "the bare run is not cut at numdrift.step"}),
]

MODELS = [
    Habit("sequential", "a bare nn.Sequential", 4),
    Habit("loss_in_model", "the loss in an output object", 4),
    Habit(
        "bare_function",
        "a function and a list of tensors",
        4,
        not_in={"compile": "nothing was compiled in the first step"},
    ),
    Habit("parts", "encoder and decoder called separately", 4),
    Habit(
        "tied_weights",
        "tied weights",
        4,
        on_cpu={mode: f'torch\'s `.to("{mode}")` unties them' for mode in ("lazy", "xla")},
    ),
    Habit("averaged_model", "`AveragedModel`", 4, rounds={"xla": OUTSIDE}),
    Habit("average_by_hand", "`copy.deepcopy` averaged by hand", 4),
    Habit(
        "checkpoint_reentrant",
        "checkpointing, reentrant",
        4,
        script="checkpoint.py",
        arguments=("--reentrant",),
        not_in=NO_DEVICE_MODULE,
    ),
    Habit("checkpoint_plain", "checkpointing, not reentrant", 4, script="checkpoint.py", not_in=NO_DEVICE_MODULE),
    Habit("custom_function", "autograd.Function", 4),
    Habit("weight_norm", "`weight_norm`", 4, script="normalized_weights.py", arguments=("--norm", "weight")),
    Habit("spectral_norm", "`spectral_norm`", 4, script="normalized_weights.py", arguments=("--norm", "spectral")),
    Habit("lora", "LoRA adapters", 4),
    Habit(
        "gradient_hooks",
        "hooks on tensors and modules",
        4,
        not_in={"lazy": "expected m1 and m2 to have the same dtype"},
    ),
    Habit("dry_run", "a part called in the constructor", 4),
    Habit(
        "hidden_state",
        "hidden state carried over batches",
        4,
        on_cpu={"lazy": "its cells fail in plain torch"},
        rounds={"lazy": "its cells are executed op by op"},
    ),
    Habit("dropout", "dropout", 4),
    Habit(
        "scripted",
        "`torch.jit.script`",
        4,
        not_in={
            "compile": "nothing was compiled in the first step",
            "lazy": "RecursiveScriptModule is on cpu and cannot be moved to lazy",
            "xla": "RecursiveScriptModule is on cpu and cannot be moved to xla",
        },
    ),
]

LOOPS = [
    Habit("trainer_class", "`Trainer().fit()`", 4),
    Habit("validation", "validation between the steps", 4),
    Habit(
        "inference_mode",
        "`torch.inference_mode()`",
        4,
        not_in={
            "lazy": "as_strided appears to be a view operator, but it has no implementation for the backend",
            "xla": "Inplace update to inference tensor outside InferenceMode is not allowed",
        },
    ),
    Habit("reinforce", "sampled actions (REINFORCE)", 4, rounds={"xla": OUTSIDE}),
    Habit(
        "resume",
        "saved and resumed",
        6,
        on_cpu={"lazy": "torch.save cannot read lazy tensors", "xla": "torch.load has no word for xla"},
    ),
    Habit("early_stop", "`sys.exit(3)`", 4, exit_code=3),
    Habit("signal_checkpoint", "checkpoint at a signal", 4, on_cpu={"lazy": "torch.save cannot read lazy tensors"}),
    Habit("progress_bar", "progress bar, raw bytes on stdout", 5),
    Habit(
        "warnings_as_errors",
        "warnings as errors",
        4,
        not_in={"compile": "`torch.jit.script_method` is deprecated"},  # Inductor's own import, bare as well
    ),
    Habit("deterministic", "deterministic algorithms", 4),
    Habit("anomaly_mode", "anomaly mode, a step left out", 4, rounds={"xla": OUTSIDE}),
    Habit("profiled", "torch.profiler", 4),
    Habit("in_a_thread", "training in a thread", 4),
    Habit("seeded_generators", "generators of its own", 4),
]

PROCESSES = [
    Habit("main_guard", "main guard and argparse", 4, arguments=("--epochs", "2", "--hidden=12")),
    Habit("package/train", "a module of a package (`-m`)", 4, module="package.train"),
    Habit("elsewhere/beside_file", "another directory, files beside `__file__`", 3),
    Habit("elsewhere/in_working_folder", "files in the working directory", 3),
    Habit("train-tool", "a console script", 3, script="train-tool"),
    Habit("loader_workers_fork", "DataLoader workers, forked", 4, script="loader_workers.py"),
    Habit(
        "loader_workers_spawn",
        "DataLoader workers, spawned",
        4,
        script="loader_workers.py",
        arguments=("--workers", "1", "--start-method", "spawn"),
    ),
    Habit("pool_spawn", "a pool of spawned processes", 4),
    Habit("pickled_class", "pickled classes of `__main__`", 4),
]

SECTIONS = {
    "Devices": DEVICES,
    "Compilation": COMPILED,
    "Precision": PRECISION,
    "Losses, steps and optimizers": UPDATES,
    "Models": MODELS,
    "Loops": LOOPS,
    "Processes and files": PROCESSES,
}
"""The habits under the headings of the guide."""

HABITS = {habit.name: habit for section in SECTIONS.values() for habit in section}
"""All habits by name."""

QUICK = ["trainer_class", "accumulation", "early_stop", "progress_bar", "sam"]
"""The habits that the fast tests run, in cpu mode."""

EVERYDAY = ["accumulation", "compiled_module", "device_flag", "gan", "sam", "update_by_hand"]
"""The habits that every run of the tests tries in compile and lazy mode; the exhaustive one tries the others there."""

QUICK_IN_XLA = ["sam"]
"""The habits that every run of the tests tries in xla."""

MEETS_IMPORT = frozenset(["warnings_as_errors"])
"""The habits that cannot work in a mode because of an import within torch. Forked processes have imported all of torch
before, so only the exhaustive run of the tests tries these habits there."""

MEETS_COMPILER = frozenset(
    [
        "accumulation",
        "autocast_bfloat16",
        "autograd_grad",
        "average_by_hand",
        "checkpoint_plain",
        "checkpoint_reentrant",
        "compiled_function",
        "compiled_in_place",
        "compiled_method",
        "compiled_module",
        "compiled_options",
        "compiled_step",
        "custom_function",
        "declared_step",
        "device_cuda_factories",
        "device_cuda_method",
        "device_flag",
        "dropout",
        "gan",
        "grad_scaler",
        "growing_model",
        "hidden_state",
        "lbfgs",
        "log_by_name",
        "lora",
        "loss_in_model",
        "optimizer_in_backward",
        "parts",
        "resume",
        "sam",
        "tied_weights",
        "torch_func",
        "trainer_class",
        "update_by_hand",
        "validation",
        "weight_norm",
    ]
)
"""The habits that meet the compiler: the tests compile these. The command that writes the page compiles all, in half an
hour."""
