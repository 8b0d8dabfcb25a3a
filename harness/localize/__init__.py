"""The causes of a difference: aligns two tapes of a step, executes hybrids, proves culprits."""
