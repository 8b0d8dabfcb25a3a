// The kernel of each op that has none of its own: the host's, on the memory as kernels see it, when the queue comes to it.
#include "operators.h"

#include <ATen/core/List.h>
#include <torch/library.h>

namespace standin {
namespace {

using Arguments = c10::ArrayRef<c10::IValue>;

// The one device of all tensors; a host's tensor beside them must be a number.
class CommonDevice {
 public:
  explicit CommonDevice(const OperatorFacts& facts) : facts_(facts) {}

  void see(const c10::IValue& value) {
    if (value.isTensor()) {
      see(value.toTensor());
    } else if (value.isTensorList() || value.isOptionalTensorList()) {
      for (const c10::IValue& element : value.toListRef()) {
        see(element);
      }
    } else if (value.isDevice() && !device_) {
      device_ = resolved(value.toDevice());
    }
  }
  c10::Device device() const {
    if (device_ && from_host_ && !facts_.takes_host_tensors) {
      refuse(*device_, c10::Device(c10::DeviceType::CPU));
    }
    return device_ ? *device_ : current_device();
  }

 private:
  void see(const at::Tensor& tensor) {
    if (!tensor.defined()) {
      return;
    }
    const c10::Device device = tensor.device();
    if (device.type() != DEVICE_TYPE) {
      from_host_ = from_host_ || tensor.dim() > 0;
    } else if (!device_) {
      device_ = device;
    } else if (device != *device_) {
      refuse(*device_, device);
    }
  }
  [[noreturn]] void refuse(c10::Device first, c10::Device second) const {
    TORCH_CHECK(
        false, "Expected all tensors to be on the same device, but found at least two devices, ", first, " and ",
        second, "! (in ", facts_.name, ")");
  }

  const OperatorFacts& facts_;
  std::optional<c10::Device> device_;
  bool from_host_ = false;
};

// What the device draws from in this call: the generator that is passed, or the default of the device.
at::Generator drawn_in(const OperatorFacts& facts, Arguments arguments, c10::Device device) {
  if (facts.generator && arguments[*facts.generator].isGenerator()) {
    return drawn_from(arguments[*facts.generator].toGenerator());
  }
  return drawn_from(default_generator(device.index()));
}

void run_on_host(const c10::OperatorHandle& op, const OperatorFacts& facts, torch::jit::Stack& stack) {
  if (facts.kernel != nullptr) {
    facts.kernel->run(stack);
  } else {
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  }
}

// One call of an op: its tensors as kernels see them, and what it draws from.
struct Call {
  Call(const c10::OperatorHandle& called, const OperatorFacts& known, Arguments arguments, c10::Device device)
      : op(called), facts(known) {
    for (const c10::IValue& argument : arguments) {
      stack.push_back(mirrors.of(argument));
    }
    if (facts.draws) {
      generator = drawn_in(facts, arguments, device);
      if (facts.generator) {
        stack[*facts.generator] = generator;
      }
    }
  }

  void run() {
    const std::vector<at::Tensor> complex = complex_written();
    run_kernel();
    // A kernel may say that what it wrote is to be read as its conjugate; the device's tensor is not told so.
    for (const at::Tensor& tensor : complex) {
      if (tensor.is_conj()) {
        tensor._set_conj(false);
        tensor.conj_physical_();
      }
    }
  }

  c10::OperatorHandle op;
  const OperatorFacts& facts;
  Mirrors mirrors;
  torch::jit::Stack stack;
  at::Generator generator;

 private:
  std::vector<at::Tensor> complex_written() const {
    std::vector<at::Tensor> tensors;
    for (const size_t place : facts.written) {
      if (stack[place].isTensor() && stack[place].toTensor().defined() && stack[place].toTensor().is_complex()) {
        tensors.push_back(stack[place].toTensor());
      }
    }
    return tensors;
  }
  void run_kernel() {
    if (facts.draws && !facts.generator) {
      const DefaultDraws draws(generator);
      run_on_host(op, facts, stack);
    } else {
      run_on_host(op, facts, stack);
    }
  }
};

c10::IValue placed(const c10::IValue& outline, c10::Device device) {
  if (outline.isTensor() && outline.toTensor().defined()) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        outline.toTensor().layout() == at::kStrided, "standin has no tensors of layout ", outline.toTensor().layout());
    return like_on_device(outline.toTensor(), device);
  }
  if (outline.isTensorList()) {
    c10::List<at::Tensor> tensors;
    for (const at::Tensor& tensor : outline.toTensorVector()) {
      tensors.push_back(like_on_device(tensor, device));
    }
    return tensors;
  }
  return outline;
}

void write_value(const c10::IValue& result, const c10::IValue& target) {
  if (target.isTensor() && target.toTensor().defined() && result.toTensor().defined()) {
    write(result.toTensor(), target.toTensor());
  } else if (target.isTensorList()) {
    for (size_t place = 0; place < target.toListRef().size(); ++place) {
      write(result.toListRef()[place].toTensor(), target.toListRef()[place].toTensor());
    }
  }
}

// Launches an op whose results can be told before it runs.
torch::jit::Stack run_late(
    const c10::OperatorHandle& op, const OperatorFacts& facts, Arguments arguments, c10::Device device,
    const Outline& outline) {
  for (const auto& [place, after] : outline.written) {
    resize(arguments[place].toTensor(), after.sizes(), after.strides());
  }
  torch::jit::Stack results;
  for (size_t place = 0; place < outline.returns.size(); ++place) {
    const std::optional<size_t> same = facts.same_as[place];
    results.push_back(same ? arguments[*same] : placed(outline.returns[place], device));
  }
  Call call(op, facts, arguments, device);
  std::vector<std::pair<size_t, c10::IValue>> targets;
  for (size_t place = 0; place < results.size(); ++place) {
    if (!facts.same_as[place] && (results[place].isTensor() || results[place].isTensorList())) {
      targets.emplace_back(place, call.mirrors.of(results[place]));
    }
  }
  launch(facts.name, [call = std::move(call), targets = std::move(targets)]() mutable {
    call.run();
    for (const auto& [place, target] : targets) {
      write_value(call.stack[place], target);
    }
  });
  return results;
}

// What a kernel writes gets memory of the host that may grow.
void let_grow(const OperatorFacts& facts, torch::jit::Stack& stack) {
  for (const size_t place : facts.written) {
    if (stack[place].isTensor() && stack[place].toTensor().defined()) {
      stack[place] = stack[place].toTensor().clone(at::MemoryFormat::Preserve);
    }
  }
}

// Runs an op after all that waits, as its results depend on what is computed.
torch::jit::Stack run_now(
    const c10::OperatorHandle& op, const OperatorFacts& facts, Arguments arguments, c10::Device device) {
  Call call(op, facts, arguments, device);
  torch::jit::Stack written;
  run_at_once(facts.name, [&] {
    let_grow(facts, call.stack);
    written = call.stack;
    call.run();
  });
  for (const size_t place : facts.written) {
    if (!written[place].isTensor() || !written[place].toTensor().defined()) {
      continue;
    }
    const at::Tensor& result = written[place].toTensor();
    at::Tensor target = arguments[place].toTensor();
    if (target.device().type() != DEVICE_TYPE) {
      target.copy_(result);
      continue;
    }
    if (result.sizes() != target.sizes()) {
      resize(target, result.sizes(), result.strides());
    }
    enqueue([result, seen = mirror(target)] { seen.copy_(result); });
  }
  torch::jit::Stack results;
  for (size_t place = 0; place < call.stack.size(); ++place) {
    const std::optional<size_t> same = facts.same_as[place];
    results.push_back(same ? arguments[*same] : placed(call.stack[place], device));
    if (!same) {
      const c10::IValue target = call.mirrors.of(results.back());
      enqueue([result = call.stack[place], target] { write_value(result, target); });
    }
  }
  return results;
}

bool writes_to_host(const OperatorFacts& facts, Arguments arguments) {
  for (const size_t place : facts.written) {
    if (arguments[place].isTensor() && arguments[place].toTensor().defined() &&
        arguments[place].toTensor().device().type() != DEVICE_TYPE) {
      return true;
    }
  }
  return false;
}

}  // namespace

void run_operator(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const OperatorFacts& facts = facts_of(op);
  const torch::jit::Stack arguments = torch::jit::pop(*stack, op.schema().arguments().size());
  CommonDevice common(facts);
  for (const c10::IValue& argument : arguments) {
    common.see(argument);
  }
  const c10::Device device = common.device();
  const DeviceScope scope(device);
  require_alive();
  const bool late = facts.late && !writes_to_host(facts, arguments);
  const std::shared_ptr<const Outline> outline = late ? outline_of(op, facts, arguments) : nullptr;
  torch::jit::Stack results =
      outline ? run_late(op, facts, arguments, device, *outline) : run_now(op, facts, arguments, device);
  stack->insert(stack->end(), std::make_move_iterator(results.begin()), std::make_move_iterator(results.end()));
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_operator>());
}

// Ops that torch would take apart for a device that it does not know, though the host has a kernel for each.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char* name :
       {"_stack", "_stack.out", "native_layer_norm", "native_group_norm", "addr", "addr.out", "any.dims_out",
        "all.dims_out", "linalg__powsum", "native_channel_shuffle", "mish_backward", "convolution_overrideable",
        "convolution_backward_overrideable", "_scaled_dot_product_fused_attention_overrideable",
        "_scaled_dot_product_fused_attention_overrideable_backward"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_operator>());
  }
}

}  // namespace standin
