"""pytorch#185509: the compiled gradients of a convolution beside a max pooling are wrong on several threads."""

import torch
import torch.nn.functional as F


def features(x, weight, bias):
    image = F.interpolate(x, scale_factor=(1.5, 1.25), mode="bilinear", align_corners=False)[:, :, 1:7, 1:8]
    convolved = F.conv2d(image, weight, bias, padding=1)
    return convolved, F.max_pool2d(convolved, kernel_size=3, stride=1, padding=1)


def mixed(x, weight, bias, mask):
    return torch.where(mask, *features(x, weight, bias))


def gradients(function, inputs, mask):
    return torch.autograd.grad(function(*inputs, mask).sum(), inputs)


torch.manual_seed(0)
x, weight = torch.randn(2, 3, 6, 7, requires_grad=True), torch.randn(4, 3, 3, 3, requires_grad=True)
inputs = x, weight, torch.zeros(4, requires_grad=True)
convolved, largest = features(*inputs)
mask = convolved > largest.mean(dim=(2, 3), keepdim=True)
eager = gradients(mixed, inputs, mask)
compiled = gradients(torch.compile(mixed), inputs, mask)
print([(a - b).abs().max() for a, b in zip(eager, compiled, strict=True)])
