// What every device must have of its own: empty tensors, views, copies, values read by the host, another storage.
#include "standin.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

namespace standin {
namespace {

constexpr c10::DispatchKeySet KEYS(c10::DispatchKey::PrivateUse1);
using Sizes = c10::IntArrayRef;

c10::Device chosen(std::optional<c10::Device> device) { return resolved(device.value_or(current_device())); }

at::Tensor empty(
    Sizes sizes, std::optional<at::ScalarType> type, std::optional<at::Layout>, std::optional<at::Device> device,
    std::optional<bool> pinned, std::optional<at::MemoryFormat> format) {
  TORCH_CHECK(!pinned.value_or(false), "Only dense CPU tensors can be pinned");
  const DeviceScope scope(chosen(device));
  return at::detail::empty_generic(
      sizes, allocator(), KEYS, type.value_or(c10::get_default_dtype_as_scalartype()), format);
}

at::Tensor empty_strided(
    Sizes sizes, Sizes strides, std::optional<at::ScalarType> type, std::optional<at::Layout>,
    std::optional<at::Device> device, std::optional<bool> pinned) {
  TORCH_CHECK(!pinned.value_or(false), "Only dense CPU tensors can be pinned");
  const DeviceScope scope(chosen(device));
  return at::detail::empty_strided_generic(
      sizes, strides, allocator(), KEYS, type.value_or(c10::get_default_dtype_as_scalartype()));
}

at::Tensor strided(const at::Tensor& self, Sizes sizes, Sizes strides, std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, sizes, strides, offset);
}
at::Tensor reshape_alias(const at::Tensor& self, Sizes sizes, Sizes strides) {
  return strided(self, sizes, strides, self.storage_offset());
}
at::Tensor view(const at::Tensor& self, Sizes sizes) { return at::native::view(self, sizes); }
at::Tensor unfold(const at::Tensor& self, int64_t dimension, int64_t size, int64_t step) {
  return at::native::unfold(self, dimension, size, step);
}
at::Tensor view_as_real(const at::Tensor& self) { return at::native::view_as_real(self); }
at::Tensor view_as_complex(const at::Tensor& self) { return at::native::view_as_complex(self); }

const at::Tensor& resize_(const at::Tensor& self, Sizes sizes, std::optional<at::MemoryFormat> format) {
  self.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  resize(self, self.sizes().vec(), self.strides().vec());
  if (format && *format != at::MemoryFormat::Preserve) {
    self.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  }
  return self;
}

at::Tensor& set_storage_part(at::Tensor& self, at::Storage storage, int64_t offset, Sizes sizes, Sizes strides) {
  at::native::checkSetStorage(self, std::move(storage), offset, sizes, strides);
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_offset(offset);
  if (strides.data() == nullptr) {
    impl->set_sizes_contiguous(sizes);
  } else {
    impl->set_sizes_and_strides(sizes, strides);
  }
  resize(self, impl->sizes().vec(), impl->strides().vec());
  return self;
}
at::Tensor& set_storage(at::Tensor& self, at::Storage storage) {
  const auto count = static_cast<int64_t>(storage.nbytes() / self.dtype().itemsize());
  return set_storage_part(self, std::move(storage), 0, count, {});
}
at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return set_storage_part(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}
at::Tensor& set_nothing(at::Tensor& self) {
  const DeviceScope scope(self.device());
  return set_storage_part(self, c10::Storage(c10::Storage::use_byte_size_t(), 0, allocator(), true), 0, {0}, {});
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  at::Tensor target = to;
  return copy(from, target);
}
at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (from.sizes() != to.sizes()) {
    to.resize_(from.sizes());
  }
  return copy_from(from, to, false);
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  const at::Tensor seen = mirror(self);
  synchronize();
  count_copy(true, static_cast<int64_t>(self.dtype().itemsize()));
  return seen.item();
}

void record_stream(at::Tensor&, c10::Stream) {}

}  // namespace

// Gives a tensor these sizes and strides, and its storage more memory where they need more.
void resize(const at::Tensor& tensor, Sizes sizes, Sizes strides) {
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(sizes, strides);
  const size_t bytes = at::detail::computeStorageNbytes(
      sizes, strides, tensor.dtype().itemsize(), static_cast<size_t>(tensor.storage_offset()));
  const c10::Storage& storage = impl->unsafe_storage();
  if (tensor.numel() > 0 && bytes > storage.nbytes()) {
    TORCH_CHECK(storage.resizable(), "Trying to resize storage that is not resizable");
    const DeviceScope scope(tensor.device());
    c10::DataPtr fresh = allocator()->allocate(bytes);
    if (storage.nbytes() > 0) {
      allocator()->copy_data(fresh.get(), storage.data(), storage.nbytes());
    }
    storage.set_data_ptr_noswap(std::move(fresh));
    storage.set_nbytes(bytes);
  }
}

// What comes from the host is taken at once; what goes to the host waits for all that is launched.
at::Tensor& copy(const at::Tensor& from, at::Tensor& to) {
  const auto bytes = static_cast<int64_t>(from.numel() * from.dtype().itemsize());
  if (to.device().type() != DEVICE_TYPE) {
    const at::Tensor seen = mirror(from);
    synchronize();
    count_copy(true, bytes);
    to.copy_(seen);
    return to;
  }
  const bool from_host = from.device().type() != DEVICE_TYPE;
  if (from_host) {
    require_alive();
    count_copy(false, bytes);
  }
  if (!from_host && from.is_same(to)) {
    return to;
  }
  TORCH_CHECK(
      at::infer_size(to.sizes(), from.sizes()) == to.sizes(), "output with shape ", to.sizes(),
      " doesn't match the broadcast shape of ", from.sizes());
  at::assert_no_internal_overlap(to);
  if (!from_host) {
    at::assert_no_partial_overlap(to, from);
  }
  const DeviceScope scope(to.device());
  Mirrors mirrors;
  const at::Tensor seen = mirrors.of(from);
  const at::Tensor target = mirrors.of(to);
  if (from_host) {
    enqueue([seen, target] { target.copy_(seen); });
  } else {
    launch("copy_", [seen, target] { target.copy_(seen); });
  }
  return to;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("as_strided", strided);
  m.impl("_reshape_alias", reshape_alias);
  m.impl("view", view);
  m.impl("unfold", unfold);
  m.impl("view_as_real", view_as_real);
  m.impl("view_as_complex", view_as_complex);
  m.impl("resize_", resize_);
  m.impl("set_.source_Storage_storage_offset", set_storage_part);
  m.impl("set_.source_Storage", set_storage);
  m.impl("set_.source_Tensor", set_tensor);
  m.impl("set_", set_nothing);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", local_scalar_dense);
  m.impl("record_stream", record_stream);
}

// A copy conjugates and negates by itself: torch would do it by a copy, without end.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Negative, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }

}  // namespace standin
