"""The lab: kernels measured against references, on chosen inputs and on all of them."""
