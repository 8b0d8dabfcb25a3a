"""The runs that a command names, and what is removed with the last of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from numdrift.harness.api.chosen_runs import remove
from numdrift.harness.api.plotting import FORMATS
from numdrift.harness.runs.run_layout import BATCH_PLOTS, PAIR_PLOTS, InvestigationFolder


@pytest.mark.parametrize("kind", [*BATCH_PLOTS, *PAIR_PLOTS])
def test_every_plot_goes_with_the_last_run(kind: str, tmp_path: Path) -> None:
    # given the plots of batches with and without suffixes, or those of a pair, and the user's own file
    folder = InvestigationFolder(tmp_path / "study")
    names = [("cpu", "lazy")] if kind in PAIR_PLOTS else [("",), ("main",), ("main", "other")]
    plots = [folder.plot(suffixes, kind) for suffixes in names]
    folder.path.mkdir()
    for plot in plots:
        for suffix in FORMATS:
            plot.with_name(f"{plot.name}.{suffix}").touch()
    (folder.path / f"my_notes_on_{kind}").touch()
    # when
    remove(folder.path, [])
    # then
    assert [path.name for path in folder.path.iterdir()] == [f"my_notes_on_{kind}"]
