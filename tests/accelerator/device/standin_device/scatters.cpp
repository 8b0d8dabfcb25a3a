// With STANDIN_UNREPEATABLE: sums over indices that add in another order each time, as atomic additions do.
#include "standin.h"

#include <ATen/Context.h>
#include <ATen/ExpandUtils.h>
#include <ATen/ops/_index_put_impl.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/scatter_add.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace standin {
namespace {

using torch::jit::Stack;

// A script that asks torch for deterministic algorithms gets the same order each time.
at::Tensor shuffled(int64_t count) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  if (!at::globalContext().deterministicAlgorithms()) {
    std::shuffle(order.begin(), order.end(), std::mt19937_64(std::random_device()()));
  }
  return at::from_blob(order.data(), {count}, at::kLong).clone();
}

// (Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha, Tensor out)
void index_add(Stack& stack) {
  const int64_t dim = stack[1].toInt();
  const at::Tensor index = stack[2].toTensor(), source = stack[3].toTensor(), order = shuffled(index.numel());
  at::Tensor out = stack[5].toTensor();
  const at::Tensor rows = source.dim() == 0 ? source : source.index_select(dim, order);
  const at::Tensor places = index.dim() == 0 ? index : index.index_select(0, order);
  at::index_add_out(out, stack[0].toTensor(), dim, places, rows, stack[4].toScalar());
  stack = {out};
}

// (Tensor self, int dim, Tensor index, Tensor src, *, Tensor out)
void scatter_add(Stack& stack) {
  const int64_t dim = stack[1].toInt();
  at::Tensor index = stack[2].toTensor(), source = stack[3].toTensor(), out = stack[4].toTensor();
  if (index.dim() > 0 && index.numel() > 0) {
    for (int64_t each = 0; each < index.dim(); ++each) {
      source = source.narrow(each, 0, index.size(each));
    }
    const at::Tensor order = shuffled(index.size(dim));
    index = index.index_select(dim, order);
    source = source.index_select(dim, order);
  }
  at::scatter_add_out(out, stack[0].toTensor(), dim, index, source);
  stack = {out};
}

// (Tensor grad_output, Tensor indices, SymInt num_weights, SymInt padding_idx, bool scale_grad_by_freq)
void embedding_dense_backward(Stack& stack) {
  const at::Tensor indices = stack[1].toTensor().flatten(), order = shuffled(indices.numel());
  const at::Tensor grad = stack[0].toTensor();
  const at::Tensor rows = grad.reshape({indices.numel(), grad.size(-1)}).index_select(0, order);
  stack = {at::embedding_dense_backward(
      rows, indices.index_select(0, order), stack[2].toInt(), stack[3].toInt(), stack[4].toBool())};
}

// (Tensor self, Tensor?[] indices, Tensor values, bool accumulate, bool unsafe)
void index_put(Stack& stack) {
  at::Tensor self = stack[0].toTensor();
  const at::Tensor values = stack[2].toTensor();
  c10::List<std::optional<at::Tensor>> indices = stack[1].toOptionalTensorList();
  const bool accumulate = stack[3].toBool();
  // One tensor of numbers indexes the first dimension, as the backward of `x[index]` has it; all else goes as it came.
  const std::optional<at::Tensor> first = indices.size() == 1 ? indices.get(0) : std::nullopt;
  if (accumulate && first && first->dim() > 0 && first->scalar_type() == at::kLong) {
    std::vector<int64_t> sizes = first->sizes().vec();
    sizes.insert(sizes.end(), self.sizes().begin() + 1, self.sizes().end());
    const at::Tensor order = shuffled(first->size(0));
    indices.set(0, first->index_select(0, order));
    at::_index_put_impl_(self, indices, values.expand(sizes).index_select(0, order), true, stack[4].toBool());
  } else {
    at::_index_put_impl_(self, indices, values, accumulate, stack[4].toBool());
  }
  stack = {self};
}

}  // namespace

void add_scatters(Kernels& kernels) {
  if (settings().unrepeatable) {
    kernels["aten::index_add.out"] = {index_add};
    kernels["aten::scatter_add.out"] = {scatter_add};
    kernels["aten::embedding_dense_backward"] = {embedding_dense_backward};
    kernels["aten::_index_put_impl_"] = {index_put};
  }
}

}  // namespace standin
