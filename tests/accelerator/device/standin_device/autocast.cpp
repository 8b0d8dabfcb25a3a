// Autocast of the device: the types of arguments are changed before an op is called.
#include "standin.h"

#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

namespace at::autocast {  // of ATen/autocast_mode.h, which includes every op there is
TORCH_API at::ScalarType get_autocast_dtype(at::DeviceType device);
TORCH_API at::Tensor cached_cast(at::ScalarType to, const at::Tensor& tensor, c10::DeviceType device);
}  // namespace at::autocast

namespace standin {
namespace {

bool is_cast(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() && value.toTensor().device().type() == DEVICE_TYPE &&
      at::isFloatingType(value.toTensor().scalar_type()) && value.toTensor().scalar_type() != at::kDouble;
}

void cast(c10::IValue& value, at::ScalarType type) {
  if (is_cast(value)) {
    value = at::autocast::cached_cast(type, value.toTensor(), DEVICE_TYPE);
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> casts;
    for (c10::IValue element : value.toListRef()) {
      cast(element, type);
      casts.push_back(element.toTensor());
    }
    value = casts;
  }
}

at::ScalarType lower_type() { return at::autocast::get_autocast_dtype(DEVICE_TYPE); }
at::ScalarType single_type() { return at::kFloat; }

template <at::ScalarType (*type)()>
void call_cast(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard without(c10::DispatchKey::AutocastPrivateUse1);
  const size_t count = op.schema().arguments().size();
  for (auto argument = stack->end() - static_cast<std::ptrdiff_t>(count); argument != stack->end(); ++argument) {
    cast(*argument, type());
  }
  op.callBoxed(stack);
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  for (const char* name :
       {"linear", "matmul", "mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "addbmm", "chain_matmul",
        "linalg_multi_dot", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d.input",
        "conv_transpose3d.input", "convolution", "prelu", "gru_cell", "lstm_cell", "rnn_tanh_cell", "rnn_relu_cell",
        "scaled_dot_product_attention"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&call_cast<lower_type>>());
  }
  for (const char* name :
       {"exp", "expm1", "log", "log1p", "log2", "log10", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "reciprocal",
        "rsqrt", "sum", "sum.dim_IntList", "prod", "cumsum", "cumprod", "softmax.int", "log_softmax.int", "layer_norm",
        "native_layer_norm", "group_norm", "norm.Scalar", "linalg_vector_norm", "nll_loss", "nll_loss2d",
        "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "cosine_similarity", "cosine_embedding_loss",
        "binary_cross_entropy_with_logits", "cross_entropy_loss", "softplus", "renorm", "dist", "cdist"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&call_cast<single_type>>());
  }
}

}  // namespace
}  // namespace standin
