"""pytorch#197091: compiled ldexp of a half-precision and a float32 tensor keeps half precision."""

import torch


def scaled(mantissa, exponent):
    return torch.ldexp(mantissa, exponent)


torch.manual_seed(0)
mantissa, exponent = torch.randn(3, 4).half(), torch.randn(3, 4)
print(scaled(mantissa, exponent).dtype)
print(torch.compile(scaled)(mantissa, exponent).dtype)
