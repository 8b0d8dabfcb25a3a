"""Files of experiments: the tasks that they describe, and what is refused before anything runs."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from numdrift.harness.batches.experiments_file import ExperimentTask, tasks_of_file
from numdrift.harness.errors import UsageError


def tasks_in(folder: Path, text: str) -> list[ExperimentTask]:
    (folder / "train.py").write_text("import torch\n")
    (folder / "experiments.toml").write_text(text)
    return tasks_of_file(folder / "experiments.toml")


def lines(tasks: list[ExperimentTask]) -> dict[str, str]:
    return {task.plan.name: shlex.join(task.words) for task in tasks}


def test_each_combination_of_values_is_a_task(tmp_path: Path) -> None:
    tasks = tasks_in(
        tmp_path,
        """
        [defaults]
        modes = "cpu,compile"
        max_steps = 5

        [[experiments]]
        name = "one"
        script = "train.py"
        arguments = { short = "--epochs 1", quoted = "--name 'a b'" }
        kernels = ["", "tanh_backward=bf16"]

        [[experiments]]
        script = "train.py"
        modes = ["cpu,lazy", "cpu two=cpu,threads=2"]
        seeds = [0, 7]
        max_steps = 9
        """,
    )
    swapped = "--mode cpu --mode compile,kernel.tanh_backward=bf16"
    assert lines(tasks) == {
        "one-none-short": "train.py --mode cpu --mode compile --jobs 2 --max-steps 5 -- --epochs 1",
        "one-none-quoted": "train.py --mode cpu --mode compile --jobs 2 --max-steps 5 -- --name 'a b'",
        "one-tanh-backward-bf16-short": f"train.py {swapped} --jobs 2 --max-steps 5 -- --epochs 1",
        "one-tanh-backward-bf16-quoted": f"train.py {swapped} --jobs 2 --max-steps 5 -- --name 'a b'",
        "train-cpu-lazy-seed0": "train.py --mode cpu,seed=0 --mode lazy,seed=0 --jobs 2 --max-steps 9",
        "train-cpu-lazy-seed7": "train.py --mode cpu,seed=7 --mode lazy,seed=7 --jobs 2 --max-steps 9",
        "train-cpu-two-cpu-threads-2-seed0": "train.py --mode cpu,seed=0 --mode two=cpu,threads=2,seed=0 --jobs 2 --max-steps 9",
        "train-cpu-two-cpu-threads-2-seed7": "train.py --mode cpu,seed=7 --mode two=cpu,threads=2,seed=7 --jobs 2 --max-steps 9",
    }
    assert tasks[0].plan.labels == {"kernels": "none", "arguments": "short"}
    assert tasks[-1].plan.names == ["cpu", "two"] and tasks[-1].plan.experiment == "train"


def test_scripts_are_an_axis_and_need_no_name(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("")
    tasks = tasks_in(tmp_path, '[[experiments]]\nscript = ["train.py", "other.py"]\n')
    assert list(lines(tasks)) == ["train", "other"]


def test_options_and_needs_are_passed_on(tmp_path: Path) -> None:
    (task,) = tasks_in(
        tmp_path,
        '[[experiments]]\nscript = "train.py"\nprocessors = 4\nmemory = "1.5 GiB"\nlocalize = "none"\nscripts = false\n'
        'confirm = true\nstrict = true\nknobs = false\ntimeout = 60\nmodes = "cpu,compile"\n',
    )
    assert lines([task])["train"] == (
        "train.py --mode cpu --mode compile --jobs 4 --timeout 60 --localize none --no-scripts --confirm --strict"
    )
    assert (task.resources.processors, task.resources.memory) == (4, 3 << 29)


@pytest.mark.parametrize(
    ("modes", "stated", "devices"),
    [("cpu,compile", "", 0), ("cpu,lazy", "", 0), ("cpu,cuda", "", 1), ("cpu,cuda", "devices = 2", 2)],
)
def test_a_mode_on_an_accelerator_needs_one(modes: str, stated: str, devices: int, tmp_path: Path) -> None:
    (task,) = tasks_in(tmp_path, f'[[experiments]]\nscript = "train.py"\nmodes = "{modes}"\n{stated}\n')
    assert task.resources.devices == devices


def test_a_file_of_modes_is_beside_the_experiments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    (tmp_path / "modes.toml").write_text('[a]\nbase = "cpu"\n[b]\nbase = "cpu"\nthreads = 1\n')
    (task,) = tasks_in(tmp_path, '[[experiments]]\nscript = "train.py"\nmodes = "@modes.toml"\n')
    assert task.plan.modes == ["a=cpu", "b=cpu,threads=1"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = ", "experiments.toml is not a TOML file: "),
        ("", 'has no experiment; write [[experiments]] with script = "train.py"'),
        ("[[experiment]]\nscript = 'train.py'", "the file has an unknown key 'experiment'; did you mean 'experiments'?"),
        ("[[experiments]]\nname = 'a'", "experiment a: an experiment has either a script or a module"),
        ("[[experiments]]\nscript = 'trai.py'", "there is no script"),
        ("[[experiments]]\nscript = 'train.py'\nmode = 'cpu'", "experiment 1 has an unknown key 'mode'; did you mean 'modes'?"),
        ("[defaults]\nmax_step = 3\n[[experiments]]\nscript = 'train.py'", "did you mean 'max_steps'?"),
        ("[[experiments]]\nscript = 'train.py'\nmodes = ['cpu', 'compile']", "modes = \"cpu\" compares nothing; write \"cpu,compile\""),
        ("[[experiments]]\nscript = 'train.py'\nmodes = 'cpu,compyle'", "compyle"),
        ("[[experiments]]\nscript = 'train.py'\nkernels = 'tanh_backward'", "kernels: 'tanh_backward' is not OP=KERNEL"),
        ("[[experiments]]\nscript = 'train.py'\nkernels = 'tanh_backward=bf17'", "bf17"),
        ("[[experiments]]\nscript = 'train.py'\nseeds = ['a']", "seeds = 'a' is not a whole number"),
        ("[[experiments]]\nscript = 'train.py'\nseeds = [-1]", "seed"),
        ("[[experiments]]\nscript = 'train.py'\nseeds = []", "seeds is empty"),
        ("[[experiments]]\nscript = 'train.py'\narguments = '--a \"'", "a quote is not closed"),
        ("[[experiments]]\nscript = 'train.py'\nmax_steps = 'x'", "--max-steps x is not a number of steps"),
        ("[[experiments]]\nscript = 'train.py'\nknobs = 3", "knobs = 3 has the wrong type"),
        ("[[experiments]]\nscript = 'train.py'\nlocalize = 'fault'", "did you mean 'faults'?"),
        ("[[experiments]]\nscript = 'train.py'\nmemory = 4", 'memory = 4 is not a size; write "4 GiB"'),
        ("[[experiments]]\nscript = 'train.py'\nprocessors = 0", "processors = 0 is not a whole number of at least 1"),
        ("[[experiments]]\nname = 'a b'\nscript = 'train.py'", "the name 'a b' cannot be part of a file name"),
        ("[[experiments]]\nscript = 'train.py'\n[[experiments]]\nscript = 'train.py'", "has two tasks named 'train'"),
        ("[[experiments]]\nscript = 'train.py'\narguments = ['--a 1', '--a=1']", "has two tasks named 'train-a-1'"),
    ],
)  # fmt: skip
def test_what_cannot_be_investigated_is_refused(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        tasks_in(tmp_path, text)
    assert said in str(refused.value)
    assert str(tmp_path / "experiments.toml") in str(refused.value) and "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent\.toml cannot be read: No such file"):
        tasks_of_file(tmp_path / "absent.toml")
