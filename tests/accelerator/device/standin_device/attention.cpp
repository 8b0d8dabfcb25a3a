// The fused attention that torch leaves to a device. Two of its outputs, the seed and the offset of the random numbers,
// are memory that nobody fills where nothing is dropped: other bits each time.
#include "standin.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_safe_softmax.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/library.h>

#include <cmath>
#include <limits>
#include <random>

namespace standin {
namespace {

using at::Tensor;
using torch::jit::Stack;

// One call's attention: all that both directions compute, in float32 at least.
struct Attention {
  Attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& bias, bool causal, std::optional<double> by)
      : type(q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat),
        query(q.to(type)),
        key(k.to(type)),
        value(v.to(type)),
        scale(by.value_or(1 / std::sqrt(static_cast<double>(q.size(-1))))) {
    scores = at::matmul(query, key.transpose(-2, -1)) * scale;
    if (bias.defined()) {
      scores = scores + bias.to(type);
    }
    if (causal) {
      const Tensor seen = at::ones({q.size(-2), k.size(-2)}, query.options().dtype(at::kBool)).tril();
      scores = scores.masked_fill(seen.logical_not(), -std::numeric_limits<double>::infinity());
    }
    weights = at::_safe_softmax(scores, -1);
  }

  // What each weight is multiplied by; undefined where nothing is dropped.
  Tensor kept(double dropped, int64_t seed) const {
    if (dropped == 0) {
      return {};
    }
    const at::Generator generator = at::detail::createCPUGenerator(static_cast<uint64_t>(seed));
    return at::empty_like(weights).bernoulli_(1 - dropped, generator).div_(1 - dropped);
  }

  at::ScalarType type;
  Tensor query, key, value;
  double scale;
  Tensor scores, weights;
};

int64_t any_bits() {
  std::random_device device;
  return static_cast<int64_t>(uint64_t{device()} << 32 | device());
}

// (query, key, value, attn_bias, dropout_p, is_causal, return_debug_mask, *, scale)
void attend(Stack& stack) {
  const Tensor query = stack[0].toTensor(), key = stack[1].toTensor(), value = stack[2].toTensor();
  const Tensor bias = stack[3].isNone() ? Tensor() : stack[3].toTensor();
  const double dropped = stack[4].toDouble();
  const Attention attention(query, key, value, bias, stack[5].toBool(), stack[7].toOptional<double>());
  auto& draws = *at::detail::getDefaultCPUGenerator().get<at::CPUGeneratorImpl>();
  const int64_t seed = dropped == 0 ? any_bits() : static_cast<int64_t>(draws.random64());
  const Tensor kept = attention.kept(dropped, seed);
  const Tensor weights = kept.defined() ? attention.weights * kept : attention.weights;
  const Tensor out = at::matmul(weights, attention.value).to(query.scalar_type());
  stack = {
      out, at::logsumexp(attention.scores, -1), Tensor(), Tensor(), query.size(-2), key.size(-2),
      at::scalar_tensor(seed, at::kLong), at::scalar_tensor(any_bits(), at::kLong), Tensor()};
}

void infer_attend(Stack& stack) {
  const Tensor query = stack[0].toTensor(), key = stack[1].toTensor(), value = stack[2].toTensor();
  std::vector<int64_t> sizes = query.sizes().vec();
  const auto meta = [](c10::IntArrayRef shape, at::ScalarType type) -> Tensor {
    return at::detail::empty_meta(shape, type);
  };
  const auto rows = c10::IntArrayRef(sizes).slice(0, sizes.size() - 1);
  const Tensor logsumexp = meta(rows, query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  sizes.back() = value.size(-1);
  stack = {
      meta(sizes, query.scalar_type()), logsumexp, Tensor(), Tensor(), query.size(-2), key.size(-2),
      meta({}, at::kLong), meta({}, at::kLong), Tensor()};
}

// (grad_out, query, key, value, attn_bias, grad_input_mask, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k,
//  dropout_p, is_causal, philox_seed, philox_offset, *, scale)
void attend_backward(Stack& stack) {
  const Tensor query = stack[1].toTensor(), key = stack[2].toTensor(), value = stack[3].toTensor();
  const Tensor bias = stack[4].isNone() ? Tensor() : stack[4].toTensor();
  const double dropped = stack[12].toDouble();
  const Attention attention(query, key, value, bias, stack[13].toBool(), stack[16].toOptional<double>());
  const Tensor kept = dropped == 0 ? Tensor() : attention.kept(dropped, stack[14].toTensor().item<int64_t>());
  const Tensor grad = stack[0].toTensor().to(attention.type);
  const Tensor used = kept.defined() ? attention.weights * kept : attention.weights;
  const Tensor of_value = at::matmul(used.transpose(-2, -1), grad);
  Tensor of_weights = at::matmul(grad, attention.value.transpose(-2, -1));
  if (kept.defined()) {
    of_weights = of_weights * kept;
  }
  const Tensor& weights = attention.weights;
  const Tensor of_scores = weights * (of_weights - (of_weights * weights).sum(-1, true));
  const Tensor of_query = at::matmul(of_scores, attention.key) * attention.scale;
  const Tensor of_key = at::matmul(of_scores.transpose(-2, -1), attention.query) * attention.scale;
  const bool for_bias = bias.defined() && stack[5].toBoolList()[3];
  const Tensor of_bias = for_bias ? of_scores.sum_to_size(bias.sizes()).to(bias.scalar_type()) : Tensor();
  stack = {
      of_query.to(query.scalar_type()), of_key.to(key.scalar_type()), of_value.to(value.scalar_type()), of_bias};
}

void infer_attend_backward(Stack& stack) {
  const bool for_bias = stack[4].isTensor() && stack[4].toTensor().defined() && stack[5].toBoolList()[3];
  stack = {
      at::empty_like(stack[1].toTensor()), at::empty_like(stack[2].toTensor()), at::empty_like(stack[3].toTensor()),
      for_bias ? at::empty_like(stack[4].toTensor()) : Tensor()};
}

// Torch's own composition for all but batches of heads.
int64_t attention_choice(
    const Tensor& query, const Tensor& key, const Tensor& value, const std::optional<Tensor>&, double, bool,
    std::optional<double>, bool groups) {
  const bool fused = query.dim() == 4 && key.dim() == 4 && value.dim() == 4 && !groups;
  return static_cast<int64_t>(fused ? at::SDPBackend::overrideable : at::SDPBackend::math);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_fused_sdp_choice", attention_choice); }

}  // namespace

void add_attention(Kernels& kernels) {
  kernels["aten::_scaled_dot_product_fused_attention_overrideable"] = {attend, infer_attend, /*draws=*/true};
  kernels["aten::_scaled_dot_product_fused_attention_overrideable_backward"] = {attend_backward, infer_attend_backward};
}

}  // namespace standin

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &standin::attention_choice)
}
