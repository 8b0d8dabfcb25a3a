"""The common parts of the modes that defer ops: policies, snapshots of cuts, and recorders of steps."""
