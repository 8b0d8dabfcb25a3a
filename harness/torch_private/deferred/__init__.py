"""Private names of lazy tensors and of torch_xla, which execute a step's ops later."""
