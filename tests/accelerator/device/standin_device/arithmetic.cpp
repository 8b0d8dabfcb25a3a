// Sums, products of matrices and the backward of tanh, whose bits are not the host's: they add in another order, and the
// last is one fused kernel.
#include "standin.h"

#include <ATen/AccumulateType.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tanh_backward.h>
#include <ATen/ops/zeros.h>

namespace standin {
namespace {

using torch::jit::Stack;

constexpr int64_t GRAIN = 1 << 15;  // additions for which another thread is worth it

// The types that are added in a wider type, and rounded once.
at::ScalarType wider(at::ScalarType type) { return type == at::kDouble ? at::kDouble : at::kFloat; }

bool is_real(at::ScalarType type) { return at::isFloatingType(type) && !c10::isFloat8Type(type); }

// Adds the second half of the rows to the first until one is left, as the threads of a block do.
template <typename T>
void fold(T* rows, int64_t count, int64_t width) {
  while (count > 1) {
    const int64_t half = (count + 1) / 2;
    const T* second = rows + half * width;
    at::parallel_for(0, (count - half) * width, GRAIN, [&](int64_t begin, int64_t end) {
      for (int64_t place = begin; place < end; ++place) {
        rows[place] += second[place];
      }
    });
    count = half;
  }
}

// The sum over some dimensions, in the wider type.
at::Tensor summed(const at::Tensor& input, at::OptionalIntArrayRef given, bool keep, int64_t* count) {
  const auto reduced = at::dim_list_to_bitset(given, input.dim());
  std::vector<int64_t> order, sizes;
  *count = 1;
  for (int64_t dim = 0; dim < input.dim(); ++dim) {
    if (reduced[dim]) {
      order.push_back(dim);
      *count *= input.size(dim);
    }
  }
  for (int64_t dim = 0; dim < input.dim(); ++dim) {
    if (!reduced[dim]) {
      order.push_back(dim);
    }
    if (!reduced[dim] || keep) {
      sizes.push_back(reduced[dim] ? 1 : input.size(dim));
    }
  }
  const at::ScalarType type = wider(input.scalar_type());
  if (input.numel() == 0) {
    return at::zeros(sizes, input.options().dtype(type));
  }
  at::Tensor rows = input.permute(order).to(type, false, /*copy=*/true, at::MemoryFormat::Contiguous);
  const int64_t width = input.numel() / *count;
  if (type == at::kDouble) {
    fold(rows.mutable_data_ptr<double>(), *count, width);
  } else {
    fold(rows.mutable_data_ptr<float>(), *count, width);
  }
  return rows.flatten().narrow(0, 0, width).view(sizes);
}

// (Tensor self, int[1]? dim, bool keepdim, *, ScalarType? dtype, Tensor out)
template <bool mean>
void reduce(Stack& stack) {
  const at::Tensor out = stack[4].toTensor();
  const auto given = stack[1].to<std::optional<std::vector<int64_t>>>();
  const at::OptionalIntArrayRef dims = given && !given->empty() ? at::OptionalIntArrayRef(*given) : std::nullopt;
  const auto type = stack[3].toOptional<at::ScalarType>();
  const at::Tensor input = type ? stack[0].toTensor().to(*type) : stack[0].toTensor();
  const bool keep = stack[2].toBool();
  if (!is_real(input.scalar_type())) {
    out.copy_(mean ? at::mean(input, dims, keep, out.scalar_type()) : at::sum(input, dims, keep, out.scalar_type()));
  } else {
    int64_t count = 0;
    at::Tensor total = summed(input, dims, keep, &count);
    out.copy_(mean ? total.div_(count) : total);
  }
  stack = {out};
}

// The last three fifths of the sum over the inner dimension first, then the rest: MKL may split a sum in halves (AVX2).
at::Tensor product(const at::Tensor& left, const at::Tensor& right) {
  const at::ScalarType type = wider(left.scalar_type());
  const at::Tensor a = left.to(type), b = right.to(type);
  const int64_t length = a.size(-1), rest = length * 2 / 5;
  if (rest == 0) {
    return at::matmul(a, b);
  }
  return at::matmul(a.narrow(-1, rest, length - rest), b.narrow(-2, rest, length - rest))
      .add_(at::matmul(a.narrow(-1, 0, rest), b.narrow(-2, 0, rest)));
}

// (Tensor self, Tensor mat2, *, Tensor out)
void multiply(Stack& stack) {
  const at::Tensor left = stack[0].toTensor(), right = stack[1].toTensor();
  const at::Tensor out = stack[2].toTensor();
  out.copy_(is_real(left.scalar_type()) ? product(left, right) : at::matmul(left, right));
  stack = {out};
}

// (Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta, Scalar alpha, Tensor out)
template <at::Tensor (*host)(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Scalar&, const at::Scalar&)>
void multiply_and_add(Stack& stack) {
  const at::Tensor self = stack[0].toTensor(), left = stack[1].toTensor(), right = stack[2].toTensor();
  const at::Scalar beta = stack[3].toScalar(), alpha = stack[4].toScalar();
  const at::Tensor out = stack[5].toTensor();
  if (!is_real(left.scalar_type())) {
    out.copy_(host(self, left, right, beta, alpha));
  } else {
    at::Tensor result = product(left, right).mul_(alpha);
    out.copy_(beta.equal(0) ? result : result.add_(self.to(result.scalar_type()), beta));
  }
  stack = {out};
}

// grad - grad * y * y in double, rounded once: (Tensor grad_output, Tensor output, *, Tensor grad_input)
void tanh_backward(Stack& stack) {
  const at::Tensor grad = stack[0].toTensor(), y = stack[1].toTensor();
  const at::Tensor out = stack[2].toTensor();
  if (!is_real(grad.scalar_type())) {
    out.copy_(at::tanh_backward(grad, y));
  } else {
    const at::Tensor g = grad.to(at::kDouble), wide = y.to(at::kDouble);
    out.copy_(g - g * wide * wide);
  }
  stack = {out};
}

}  // namespace

void add_arithmetic(Kernels& kernels) {
  kernels["aten::sum.IntList_out"] = {reduce<false>};
  kernels["aten::mean.out"] = {reduce<true>};
  kernels["aten::mm.out"] = {multiply};
  kernels["aten::bmm.out"] = {multiply};
  kernels["aten::addmm.out"] = {multiply_and_add<at::addmm>};
  kernels["aten::baddbmm.out"] = {multiply_and_add<at::baddbmm>};
  kernels["aten::tanh_backward.grad_input"] = {tanh_backward};
}

}  // namespace standin
