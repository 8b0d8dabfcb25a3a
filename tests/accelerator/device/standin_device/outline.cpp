// What an op returns, without its data: sizes, strides and types, from torch's kernels for tensors without data.
//
// Most of these kernels are Python. So an outline is kept, and found again by all that it depends on: the op, the sizes,
// strides and types of its tensors, and its other arguments.
#include "operators.h"

#include <ATen/EmptyTensor.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstring>
#include <mutex>
#include <string_view>
#include <unordered_set>

namespace standin {
namespace {

constexpr size_t MOST = 1 << 16;  // outlines that are kept

// All that an outline depends on, as bytes.
class Signature {
 public:
  explicit Signature(const OperatorFacts& facts) : with_values_(facts.creates) {
    add(&facts);
    add(c10::get_default_dtype_as_scalartype());
  }

  bool add_all(c10::ArrayRef<c10::IValue> arguments) {
    for (const c10::IValue& argument : arguments) {
      if (!add_value(argument)) {
        return false;
      }
    }
    return true;
  }
  std::string bytes;

 private:
  template <typename T>
  void add(const T& value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void add_tensor(const at::Tensor& tensor) {
    if (!tensor.defined()) {
      add('u');
      return;
    }
    add(tensor.scalar_type());
    add(tensor.dim());
    add(tensor.device().type());
    add(tensor.unsafeGetTensorImpl()->is_wrapped_number());
    bytes.append(reinterpret_cast<const char*>(tensor.sizes().data()), tensor.dim() * sizeof(int64_t));
    bytes.append(reinterpret_cast<const char*>(tensor.strides().data()), tensor.dim() * sizeof(int64_t));
  }
  bool add_value(const c10::IValue& value);

  bool with_values_;
};

// The value of a number that is no size changes nothing but for an op that creates a tensor from it, as arange does.
bool Signature::add_value(const c10::IValue& value) {
  if (value.isTensor()) {
    add('t');
    add_tensor(value.toTensor());
  } else if (value.isTensorList()) {
    add('l');
    add(value.toListRef().size());
    for (const c10::IValue& element : value.toListRef()) {
      add_tensor(element.toTensor());
    }
  } else if (value.isNone()) {
    add('n');
  } else if (value.isInt()) {
    add('i');
    add(value.toInt());
  } else if (value.isBool()) {
    add('b');
    add(value.toBool());
  } else if (value.isDouble()) {
    add('d');
    if (with_values_) {
      add(value.toDouble());
    }
  } else if (value.isString()) {
    add('s');
    bytes += value.toStringRef();
    add('\0');
  } else if (value.isDoubleList()) {  // factors of sizes, as of an interpolation
    add('f');
    for (const double element : value.toDoubleList()) {
      add(element);
    }
  } else if (value.isList()) {
    add('[');
    add(value.toListRef().size());
    return add_all(value.toListRef());
  } else if (value.isGenerator()) {
    add('g');
  } else {
    return false;
  }
  return true;
}

// A number of the host stays what it is: Python is given it as a number.
at::Tensor without_data(const at::Tensor& tensor) {
  if (!tensor.defined() || (tensor.device().is_cpu() && tensor.dim() == 0)) {
    return tensor;
  }
  return at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type());
}

at::Tensor with_zeros(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return tensor;
  }
  at::Tensor zeros = at::detail::empty_strided_cpu(tensor.sizes(), tensor.strides(), tensor.scalar_type());
  std::memset(zeros.mutable_data_ptr(), 0, zeros.storage().nbytes());
  return zeros;
}

template <at::Tensor (*change)(const at::Tensor&)>
c10::IValue changed(const c10::IValue& value) {
  if (value.isTensor()) {
    return change(value.toTensor());
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> tensors;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      tensors.push_back(change(tensor));
    }
    return tensors;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> tensors;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      tensors.push_back(tensor ? std::optional<at::Tensor>(change(*tensor)) : std::nullopt);
    }
    return tensors;
  }
  return value.isGenerator() ? c10::IValue() : value;
}

// Ops for which torch's kernels without data foretell what CUDA returns, where the host returns other sizes or types:
// they are tried on zeros.
const std::unordered_set<std::string>& tried_on_zeros() {
  static const std::unordered_set<std::string> names{
      "aten::native_layer_norm",
      "aten::native_batch_norm",
      "aten::_native_batch_norm_legit",
      "aten::_native_batch_norm_legit.no_stats",
      "aten::_batch_norm_with_update",
      "aten::_embedding_bag",
      "aten::_embedding_bag_forward_only",
  };
  return names;
}

// Torch's kernels for tensors without data see no mode of the script's and no autograd.
class OutlineScope {
 public:
  OutlineScope() : before_(at::impl::PythonTorchFunctionTLS::get_disabled_state()) {
    at::impl::PythonTorchFunctionTLS::set_disabled_state(at::impl::ALL_DISABLED);
  }
  ~OutlineScope() { at::impl::PythonTorchFunctionTLS::set_disabled_state(before_); }
  OutlineScope(const OutlineScope&) = delete;
  OutlineScope& operator=(const OutlineScope&) = delete;

 private:
  c10::impl::ForceDispatchKeyGuard keys_{
      c10::DispatchKeySet(c10::DispatchKey::BackendSelect),
      c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::default_excluded_set};
  at::DisableRecordFunctionGuard unseen_;
  at::impl::TorchFunctionDisabledState before_;
};

std::shared_ptr<const Outline> inferred(
    const c10::OperatorHandle& op, const OperatorFacts& facts, c10::ArrayRef<c10::IValue> arguments) {
  auto outline = std::make_shared<Outline>();
  torch::jit::Stack& stack = outline->returns;
  for (const c10::IValue& argument : arguments) {
    stack.push_back(changed<without_data>(argument));
    if (stack.back().isDevice()) {
      stack.back() = c10::Device(c10::DeviceType::Meta);
    }
  }
  std::vector<std::pair<size_t, at::Tensor>> written;
  for (const size_t place : facts.written) {
    if (stack[place].isTensor() && stack[place].toTensor().defined()) {
      written.emplace_back(place, stack[place].toTensor());
    }
  }
  const OutlineScope scope;
  if (facts.kernel != nullptr && facts.kernel->infer != nullptr) {
    facts.kernel->infer(stack);
  } else if (tried_on_zeros().count(facts.name) != 0) {
    stack.clear();
    for (const c10::IValue& argument : arguments) {
      stack.push_back(changed<with_zeros>(argument));
    }
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
    for (c10::IValue& result : stack) {
      result = changed<without_data>(result);
    }
  } else {
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &stack);
  }
  for (const auto& [place, after] : written) {
    const at::Tensor& before = arguments[place].toTensor();
    if (after.sizes() != before.sizes() || after.strides() != before.strides()) {
      outline->written.emplace_back(place, after);
    }
  }
  return outline;
}

std::mutex outline_lock;
auto& known_outlines = *new std::unordered_map<std::string, std::shared_ptr<const Outline>>;

}  // namespace

std::shared_ptr<const Outline> outline_of(
    const c10::OperatorHandle& op, const OperatorFacts& facts, c10::ArrayRef<c10::IValue> arguments) {
  Signature signature(facts);
  const bool complete = signature.add_all(arguments);
  if (complete) {
    const std::lock_guard<std::mutex> held(outline_lock);
    const auto found = known_outlines.find(signature.bytes);
    if (found != known_outlines.end()) {
      return found->second;
    }
  }
  std::shared_ptr<const Outline> outline;
  try {
    outline = inferred(op, facts, arguments);
  } catch (const c10::NotImplementedError&) {
    outline = facts.in_place ? std::make_shared<Outline>(Outline{torch::jit::Stack(facts.same_as.size()), {}}) : nullptr;
  } catch (const std::exception&) {
    // The kernel itself says why it refuses, or does without.
  }
  if (complete) {
    const std::lock_guard<std::mutex> held(outline_lock);
    if (known_outlines.size() >= MOST) {
      known_outlines.clear();
    }
    known_outlines.emplace(std::move(signature.bytes), outline);
  }
  return outline;
}

}  // namespace standin
