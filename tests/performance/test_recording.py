"""What is measured of recording, and what the page makes of it."""

from __future__ import annotations

import pytest

from .journals import compare_journals
from .recording_page import CALLS, LACKED_MEMORY, PROCESSOR, SIZE, STEPS, Measurement, page
from .turns import Way, take_turns


def steps(way: str, *seconds: float, model: str = "char_gpt") -> list[Measurement]:
    return [Measurement(model, f"{way}, {quantity}", seconds) for quantity in (STEPS, PROCESSOR)]


def test_a_ratio_is_the_median_of_the_rounds() -> None:
    text = page([*steps("bare", 1.0, 2.0, 4.0), *steps("ops", 1.5, 2.2, 8.0)], "measured today")
    assert "| a step takes | char_gpt |" in text
    assert "| bare | 2000.00 ms |" in text
    assert text.count("| `--record ops` | 1.50 (1.10 to 2.00) |") == 2
    assert (
        "- `--record ops`, char_gpt: **missed**, 1.50 (1.10 to 2.00) times a bare step, where 1.25 is allowed" in text
    )


def test_the_page_says_how_long_the_digest_reads_the_outputs_of_a_step() -> None:
    step = [Measurement("char_gpt", f"ops, {CALLS}", [1430]), Measurement("char_gpt", f"ops, {SIZE}", [5e8])]
    speed = Measurement("bandwidth", "digest, AVX2", [10.0])
    text = page([*steps("bare", 0.1), *steps("ops", 0.2), *step, speed], "measured today")
    assert (
        "a step calls 1,430 ops, whose outputs take 500 MB, which one thread digests in 50.0 ms, 0.50 of a bare" in text
    )


def test_the_page_says_what_a_dispatch_mode_costs_beside_compiled_graphs() -> None:
    calls = [
        Measurement("char_gpt", f"{way}, {CALLS}", [count]) for way, count in (("ops", 1000), ("ops compiled", 500))
    ]
    compiled = [*steps("bare compiled", 0.5), *steps("ops compiled", 0.8)]
    text = page([*steps("bare", 1.0), *steps("mode", 1.4), *compiled, *calls], "measured today")
    assert "that is 300.00 ms more than a bare step; a step calls 500 ops outside of the compiled graphs" in text
    assert "takes 400 µs for an op, so that these ops alone would make a step 1.40 times a bare one" in text


@pytest.mark.parametrize(("ratios", "word"), [((0.99, 1.01, 1.02), "met"), ((1.01, 1.02, 1.03), "**missed**")])
def test_losses_may_exceed_the_bare_time_by_noise(ratios: tuple[float, ...], word: str) -> None:
    text = page([*steps("bare", *(1.0 for _ in ratios)), *steps("losses", *ratios)], "measured today")
    assert f"- `--record losses`, char_gpt: {word}, " in text
    assert ("that is 20.00 ms more than a bare step" in text) == (word != "met")


def test_a_bandwidth_is_a_share_of_the_sum() -> None:
    speeds = {"torch.sum": (10.0, 20.0), "digest": (6.0, 14.0), "comparison": (4.0, 4.0)}
    text = page([Measurement("bandwidth", f"{name}, AVX2", values) for name, values in speeds.items()], "today")
    assert "- the digest, AVX2: met, 65 % of the bandwidth of `torch.sum`" in text
    assert "- the comparison, AVX2: **missed**, 4.0 GB/s" in text


def test_the_memory_of_a_large_model_is_compared_with_the_bare_script() -> None:
    peaks = {"bare": 6.0, "params": 9.0, "tape": 24.0}
    text = page([Measurement("large", f"{way}, bytes of memory", [gib * 2**30]) for way, gib in peaks.items()], "today")
    assert "parameters, `--record params`, the default: met, 9.0 GiB at the peak" in text
    assert (
        "the tape of a step and its replays: **missed**, 24.0 GiB at the peak of all processes together, 4.00" in text
    )


def test_a_way_that_took_all_memory_misses_the_goal() -> None:
    peaks = {"bare, bytes of memory": 6.0, f"tape, {LACKED_MEMORY}": 17.0}
    text = page([Measurement("large", name, [gib * 2**30]) for name, gib in peaks.items()], "today")
    assert "replays: **missed**, ended after it had taken 17.0 GiB and the machine had none left" in text


def test_memory_that_grows_with_the_steps_misses_the_goal() -> None:
    grown = [
        Measurement("char_gpt", "bare, bytes of memory", [1 << 28, 1 << 28]),
        Measurement("char_gpt", "ops, bytes of memory", [1 << 28, (1 << 28) + (3 << 20)]),
    ]
    text = page([*steps("bare", 1.0, 1.0), *steps("ops", 1.0, 1.0), *grown], "measured today")
    assert (
        "- memory, char_gpt: **missed**, in the second half of its 2 turns, a process that records ops has grown by 3.00"
        in text
    )


@pytest.mark.slow
def test_processes_take_turns() -> None:
    ways = [Way("bare"), Way("hashes", tool="hashes"), Way("ops", level="ops")]
    found = take_turns("small", ways, steps=2, rounds=2, environment={"OMP_NUM_THREADS": "1"})
    assert {name: len(turns) for name, turns in found.taken.items()} == {"bare": 2, "hashes": 2, "ops": 2}
    assert all(turn.seconds > 0 and turn.resident > 1 << 20 for turns in found.taken.values() for turn in turns)
    # two of the optimizer's tensors have the shape of each parameter, so a step writes more than three times its 410 kB
    assert found.ops["ops"].calls > 100
    assert found.ops["ops"].size > 3 * 410_000


def test_a_process_that_ends_early_is_named() -> None:
    with pytest.raises(SystemExit, match=r"bare has ended before its first turn: (?s:.)*invalid choice: 'missing'"):
        take_turns("missing", [Way("bare")], steps=1, rounds=1, environment={})


def test_equal_journals_are_compared_to_their_end() -> None:
    [compared] = compare_journals(20, 3, 1)
    assert compared.size > 20 * 2 * 3 * 64
    assert compared.peak > 1 << 20
