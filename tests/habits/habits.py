"""Every habit script with what is to be expected of it: the table that tests and `docs/reference/adoption.md` go by."""

from __future__ import annotations

from .habit import Habit

OUTSIDE = "where it finds no GPU, what it computes outside of its model is computed on the CPU"
"""What numdrift makes of `torch.cuda.is_available()`; a bare script that is written for xla has all of it there."""

DEVICES = [
    Habit("device_cuda_method.py", "`.cuda()` hard-coded", 4, cuda=True),
    Habit("device_cuda_factories.py", '`device="cuda"` in factories of forward', 4, cuda=True),
    Habit("device_flag.py", "device from a flag", 4, arguments=("--steps", "4"), cuda=True),
    Habit("device_environment.py", "device from the environment", 4, reads_device=True),
    Habit("device_if_available.py", "`torch.cuda.is_available()`", 4),
    Habit(
        "device_nowhere.py", "no device at all", 4, lazy_as_cpu="it names no device", xla_rounds="it names no device"
    ),
    Habit(
        "device_default.py",
        "`torch.set_default_device`",
        4,
        cuda=True,
        not_in={"lazy": "torch.set_default_device cannot be lazy"},
    ),
]

COMPILED = [
    Habit("compiled_module.py", "`torch.compile(model)`", 4, compiles_model=True),
    Habit("compiled_function.py", "`@torch.compile` on a function", 4),
    Habit("compiled_step.py", "a compiled training step", 4, compiles_model=True),
    Habit("compiled_method.py", "`@torch.compile` on a method", 4),
    Habit("compiled_options.py", "torch.compile with options", 4, compiles_model=True),
    Habit("compiled_in_place.py", "`module.compile()`", 4, compiles_model=True),
]

PRECISION = [
    Habit("autocast_bfloat16.py", "autocast in bfloat16", 4),
    Habit(
        "grad_scaler.py",
        "autocast in float16 with GradScaler",
        6,
        cuda=True,
        not_in={"lazy": "autocast does nothing on lazy"},
    ),
    Habit("float64_default.py", "`torch.set_default_dtype(float64)`", 5, xla_rounds=OUTSIDE),
    Habit("bfloat16_model.py", "a model in bfloat16", 4),
]

UPDATES = [
    Habit("accumulation.py", "gradient accumulation", 3, losses=3),
    Habit("clip_norm.py", "`clip_grad_norm_`", 4),
    Habit("clip_value.py", "`clip_grad_value_`", 4),
    Habit("one_cycle.py", "OneCycle schedule", 6),
    Habit("warm_up.py", "warm-up by a lambda", 6),
    Habit("frozen_and_groups.py", "frozen parameters, groups of parameters", 4),
    Habit("growing_model.py", "`add_param_group` on the way", 5),
    Habit("gan.py", "two networks, two optimizers", 6),
    Habit("lbfgs.py", "LBFGS with a closure", 3, losses=(5, 5, 6), xla_rounds=OUTSIDE),
    Habit("sam.py", "SAM's two passes", 4, losses=2),
    Habit(
        "fused_optimizer.py",
        "fused and foreach optimizers",
        6,
        losses=(1, 0, 1, 0, 1, 0),
        not_in=dict.fromkeys(
            ("lazy", "xla"), "`fused=True` requires all the params to be floating point Tensors of supported devices"
        ),
    ),
    Habit(
        "sparse_embedding.py",
        "sparse gradients",
        4,
        not_in=dict.fromkeys(("lazy", "xla"), "Could not run 'aten::_sparse_coo_tensor_with_dims_and_tensors'"),
    ),
    Habit(
        "optimizer_in_backward.py",
        "optimizers that step in the backward",
        4,
        xla_rounds="the bare run is cut within its backward, at each optimizer",
    ),
    Habit("update_by_hand.py", "`p -= lr * p.grad`", 4),
    Habit(
        "autograd_grad.py",
        "`torch.autograd.grad`, update by hand",
        4,
        xla_rounds="the bare run is not cut where torch.autograd.grad returns",
    ),
    Habit(
        "torch_func.py",
        "`torch.func.grad_and_value`",
        4,
        not_in={mode: f"cannot be moved to {mode} (it is being transformed by torch.func)" for mode in ("lazy", "xla")},
    ),
    Habit(
        "gradient_penalty.py",
        "gradient penalty",
        4,
        not_in={"compile": "torch.compile with aot_autograd does not currently support double backward"},
        xla_rounds=OUTSIDE,
    ),
    Habit(
        "several_losses.py",
        "several losses summed",
        4,
        not_in={"lazy": "expected m1 and m2 to have the same dtype"},
    ),
    Habit("log_by_name.py", "`numdrift.log`", 4),
    Habit("declared_step.py", "`numdrift.step`", 4, xla_rounds="the bare run is not cut at numdrift.step"),
]

MODELS = [
    Habit("sequential.py", "a bare nn.Sequential", 4),
    Habit("loss_in_model.py", "the loss in an output object", 4),
    Habit(
        "bare_function.py",
        "a function and a list of tensors",
        4,
        not_in={"compile": "nothing was compiled in the first step"},
    ),
    Habit("parts.py", "encoder and decoder called apart", 4),
    Habit(
        "tied_weights.py",
        "tied weights",
        4,
        lazy_as_cpu='torch\'s `.to("lazy")` unties them',
        xla_rounds='torch\'s `.to("xla")` unties them',
    ),
    Habit("averaged_model.py", "`AveragedModel`", 4, xla_rounds=OUTSIDE),
    Habit("average_by_hand.py", "`copy.deepcopy` averaged by hand", 4),
    Habit(
        "checkpoint_reentrant.py",
        "checkpointing, reentrant",
        4,
        not_in={mode: f"module 'torch' has no attribute '{mode}'" for mode in ("lazy", "xla")},
    ),
    Habit(
        "checkpoint_plain.py",
        "checkpointing, not reentrant",
        4,
        not_in={mode: f"module 'torch' has no attribute '{mode}'" for mode in ("lazy", "xla")},
    ),
    Habit("custom_function.py", "autograd.Function", 4),
    Habit("weight_norm.py", "`weight_norm`", 4),
    Habit("spectral_norm.py", "`spectral_norm`", 4),
    Habit("lora.py", "LoRA adapters", 4),
    Habit(
        "gradient_hooks.py",
        "hooks on tensors and modules",
        4,
        not_in={"lazy": "expected m1 and m2 to have the same dtype"},
    ),
    Habit("dry_run.py", "a part called in the constructor", 4),
    Habit(
        "hidden_state.py",
        "hidden state carried over batches",
        4,
        lazy_rounds="its cells are executed op by op there, and fail in plain torch",
    ),
    Habit("dropout.py", "dropout", 4),
    Habit(
        "scripted.py",
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
    Habit("trainer_class.py", "`Trainer().fit()`", 4),
    Habit("validation.py", "validation between the steps", 4),
    Habit(
        "inference_mode.py",
        "`torch.inference_mode()`",
        4,
        not_in={
            "lazy": "as_strided appears to be a view operator, but it has no implementation for the backend",
            "xla": "Inplace update to inference tensor outside InferenceMode is not allowed",
        },
    ),
    Habit("reinforce.py", "sampled actions (REINFORCE)", 4, xla_rounds=OUTSIDE),
    Habit(
        "resume.py",
        "saved and resumed",
        6,
        lazy_as_cpu="torch.save cannot read lazy tensors",
        xla_rounds="torch.load has no word for xla",
    ),
    Habit("early_stop.py", "`sys.exit(3)`", 4, exit_code=3),
    Habit("signal_checkpoint.py", "checkpoint at a signal", 4, lazy_as_cpu="torch.save cannot read lazy tensors"),
    Habit("progress_bar.py", "progress bar, raw bytes on stdout", 5),
    Habit(
        "warnings_as_errors.py",
        "warnings as errors",
        4,
        not_in={"compile": "`torch.jit.script_method` is deprecated"},  # Inductor's own import, bare as well
    ),
    Habit("deterministic.py", "deterministic algorithms", 4),
    Habit("anomaly_mode.py", "anomaly mode, a step left out", 4, xla_rounds=OUTSIDE),
    Habit("profiled.py", "torch.profiler", 4),
    Habit("in_a_thread.py", "training in a thread", 4),
    Habit("seeded_generators.py", "generators of its own", 4),
]

PROCESSES = [
    Habit("main_guard.py", "main guard and argparse", 4, arguments=("--epochs", "2", "--hidden=12")),
    Habit("package/train.py", "a module of a package (`-m`)", 4, module="package.train"),
    Habit("elsewhere/beside_file.py", "another directory, files beside `__file__`", 3),
    Habit("elsewhere/in_working_folder.py", "files in the working directory", 3),
    Habit("train-tool", "a console script", 3),
    Habit("loader_workers_fork.py", "DataLoader workers, forked", 4),
    Habit("loader_workers_spawn.py", "DataLoader workers, spawned", 4),
    Habit("pool_spawn.py", "a pool of spawned processes", 4),
    Habit("pickled_class.py", "pickled classes of `__main__`", 4),
]

HABITS = [*DEVICES, *COMPILED, *PRECISION, *UPDATES, *MODELS, *LOOPS, *PROCESSES]

QUICK = ["trainer_class", "accumulation", "early_stop", "progress_bar", "sam"]
"""Those that the fast tests run, in cpu mode."""

EVERYDAY = ["accumulation", "compiled_module", "device_flag", "gan", "sam", "update_by_hand"]
"""Those that every run of the tests tries in compile and lazy mode; the others are tried there by the exhaustive one."""

QUICK_IN_XLA = ["sam"]
"""The habits that every run of the tests tries in xla."""

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
"""Those whose habit meets the compiler: the tests compile these. The page's command compiles all, in half an hour."""
