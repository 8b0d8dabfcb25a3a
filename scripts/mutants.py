"""Measure how many faults the tests catch: run each mutant of the sources against the tests that reach it.

scripts/mutants run OUT [--tree CHECKOUT]    run the sample on a checkout, or resume a run; writes a line per mutant
scripts/mutants table OUT                    killed and survived, by area; --survivors shows each survivor
scripts/mutants compare BEFORE AFTER         both tables, and the mutants that were killed before and no longer are
scripts/mutants where [--tree CHECKOUT]      the mutants of the sample that are gone from a checkout; runs nothing
scripts/mutants draw                         draw the sample anew; only for a new baseline

The sample is scripts/mutants.json. A mutant is one statement with a fault. In another tree, a mutant is found by the
text and the function of its statement, whatever the file. Tests run in forks of one process, on a copy of the checkout,
one at a time. First, every test that is not slow and does not run whole commands runs once, with probes in the mutants'
statements. The probes record which tests reach which mutant. A mutant is killed if a test that passes without the
mutant fails or hangs with it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from mutation import sample, table, trial

ROOT = Path(__file__).parent.parent
SAMPLE = Path(__file__).with_suffix(".json")


def main() -> None:
    given = _arguments()
    match given.command:
        case "draw":
            drawn = sample.draw(given.tree)
            sample.write(drawn, given.sample)
            print(f"Wrote {given.sample}, {len(drawn)} mutants")
        case "where":
            _where(given)
        case "run":
            mutants, limits = sample.read(given.sample), trial.Limits(given.seconds)
            root = given.tree.resolve()
            trial.run(root, mutants, given.out, limits, area=given.area)
            if given.slow is not None:
                trial.run_slowly(root, mutants, given.out, limits, given.slow)
            print(table.table(trial.read(given.out)))
        case "table":
            results = trial.read(given.out)
            print(table.table(results))
            for one in sample.read(given.sample) if given.survivors else ():
                if one.id in results and results[one.id].result == "survived":
                    print(f"\n{table.shown(one, results[one.id])}")
        case "compare":
            mutants = sample.read(given.sample)
            print(table.comparison(mutants, trial.read(given.before), trial.read(given.after)))


def _where(given: argparse.Namespace) -> None:
    mutants = sample.read(given.sample)
    places = sample.find(given.tree, mutants)
    for one in mutants:
        if one.id not in places:
            print(f"{one.id} gone, {one.file} {one.function}\n  {one.before}")
        elif places[one.id].found == "alike":
            place = places[one.id]
            print(f"{one.id} alike, {place.statement.file}:{place.statement.node.lineno} {place.statement.function}")
            print(f"  was {one.before}\n  is  {place.statement.text}\n  +   {place.after}")
    found = [place.found for place in places.values()]
    counts = ", ".join(f"{found.count(how)} {how}" for how in ("same", "moved", "alike"))
    print(f"{len(mutants)} mutants: {counts}, {len(mutants) - len(places)} gone")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=Path, default=SAMPLE, help="the sample's file")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("draw", "where", "run"):
        command = commands.add_parser(name)
        command.add_argument("--tree", type=Path, default=ROOT, help="the checkout (default: this one)")
    run = commands.choices["run"]
    run.add_argument(
        "out",
        type=Path,
        help="the file for the results, as JSON lines; the mutants that each test reaches are kept beside it",
    )
    run.add_argument("--area", help="only the mutants of one area")
    run.add_argument(
        "--seconds",
        type=float,
        default=10.0,
        help="time limit for the tests of one mutant (default: 10)",
    )
    run.add_argument(
        "--slow",
        nargs="*",
        metavar="FILE",
        help="then run slow tests on the survivors: those in these files (default: some files of tests/e2e)",
    )
    shown = commands.add_parser("table")
    shown.add_argument("out", type=Path)
    shown.add_argument("--survivors", action="store_true")
    compared = commands.add_parser("compare")
    compared.add_argument("before", type=Path)
    compared.add_argument("after", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
