"""Commands that a launcher starts several times, as on a cluster: each records one rank of the same runs."""
