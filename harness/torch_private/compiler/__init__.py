"""Private names of torch.compile: graphs, stages, kernels, decompositions, probes."""
