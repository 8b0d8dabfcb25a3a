"""Evidence: the files that the experiments of an investigation left beside its runs.

    in   folders of recorded runs and of experiments
    out  for each pair of runs: its experiments, its resynced steps and their scores

This package starts no process, so recorded runs can be judged again at any time. `pair_evidence` reads the folders, and
`pair_scores` compares resynced steps with the reference's rounding noise.
"""
