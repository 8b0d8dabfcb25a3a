"""Questions: the ways to look for the cause of a drift.

    in   a pair of runs, its evidence, and the step in which the drift begins
    out  experiments that are left beside the runs, and an answer that is read from them

A question (see `question.Question`) decides whether there is something to find out, runs its experiments, and
answers from their results. Experiments and answer are separate, so that a later judgement runs no experiments.
`question_table` lists all questions in the order in which they are asked.
"""
