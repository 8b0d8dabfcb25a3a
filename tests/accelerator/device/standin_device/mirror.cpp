// Tensors of the host over the device's memory. They own nothing: the queue's order keeps the memory theirs.
#include "standin.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>

#include <cstring>

namespace standin {
namespace {

// A tensor of the host may be changed before the kernel runs.
at::Tensor snapshot(const at::Tensor& tensor) {
  at::Tensor copy = tensor.detach().clone();
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {  // a Python number, which promotes no type
    copy.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return copy;
}

}  // namespace

at::Tensor Mirrors::of(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return tensor;
  }
  if (tensor.device().type() != DEVICE_TYPE) {
    return snapshot(tensor);
  }
  c10::StorageImpl* owner = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  c10::Storage seen;
  for (const auto& [impl, storage] : storages_) {
    if (impl == owner) {
      seen = storage;
    }
  }
  if (!seen) {
    c10::DataPtr data(seen_by_kernels(owner->data()), c10::Device(c10::DeviceType::CPU));
    seen = c10::Storage(c10::Storage::use_byte_size_t(), owner->nbytes(), std::move(data), nullptr, false);
    storages_.emplace_back(owner, seen);
  }
  at::Tensor mirrored = at::detail::make_tensor<c10::TensorImpl>(
      std::move(seen), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  mirrored.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  mirrored._set_conj(tensor.is_conj());
  mirrored._set_neg(tensor.is_neg());
  return mirrored;
}

c10::IValue Mirrors::of(const c10::IValue& value) {
  if (value.isTensor()) {
    return of(value.toTensor());
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> mirrored;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      mirrored.push_back(of(tensor));
    }
    return mirrored;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> mirrored;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      mirrored.push_back(tensor ? std::optional<at::Tensor>(of(*tensor)) : std::nullopt);
    }
    return mirrored;
  }
  if (value.isDevice()) {
    return c10::Device(c10::DeviceType::CPU);
  }
  return value;
}

at::Tensor mirror(const at::Tensor& tensor) { return Mirrors().of(tensor); }

at::Tensor like_on_device(const at::Tensor& outline, c10::Device device) {
  const DeviceScope scope(device);
  return at::detail::empty_strided_generic(
      outline.sizes(), outline.strides(), allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      outline.scalar_type());
}

void write(const at::Tensor& result, const at::Tensor& target) {
  TORCH_INTERNAL_ASSERT(
      result.sizes() == target.sizes() && result.dtype() == target.dtype(), "a kernel gives ", result.dtype(),
      result.sizes(), " where ", target.dtype(), target.sizes(), " was expected");
  const bool alike = result.strides() == target.strides() && result.is_non_overlapping_and_dense();
  if (alike && !result.is_conj() && !result.is_neg()) {
    std::memcpy(target.mutable_data_ptr(), result.const_data_ptr(), target.nbytes());
  } else {
    target.copy_(result);
  }
}

}  // namespace standin
