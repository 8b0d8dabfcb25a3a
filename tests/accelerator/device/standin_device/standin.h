// The device "standin": parts that its files share.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace c10 {
class OperatorHandle;
}

namespace standin {

constexpr c10::DeviceType DEVICE_TYPE = c10::DeviceType::PrivateUse1;

// settings.cpp: the environment variables, read once.
struct Settings {
  c10::DeviceIndex devices;  // STANDIN_COUNT
  bool eager;                // STANDIN_EAGER: kernels run where they are launched
  bool unrepeatable;         // STANDIN_UNREPEATABLE: scatters add up in another order each time
  int64_t memory;            // STANDIN_MEMORY: bytes of a device
  int64_t lost_at;           // STANDIN_LOST_AT: launches until the device is lost, -1 for never
};
const Settings& settings();

// guard.cpp: the current device of this thread.
c10::Device current_device();
void set_current_device(c10::DeviceIndex index);
c10::Device resolved(c10::Device device);  // with the current index where it has none; raises for one that is not there

class DeviceScope {
 public:
  explicit DeviceScope(c10::Device device) : before_(current_device().index()) { set_current_device(device.index()); }
  ~DeviceScope() { set_current_device(before_); }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  c10::DeviceIndex before_;
};

// memory.cpp: memory that the host cannot read; kernels see the same pages at another address.
c10::DeviceAllocator* allocator();
void* seen_by_kernels(const void* address);
c10::DeviceIndex device_of(const void* address);  // -1 for memory that is not the device's
bool memory_in_use();

// ledger.cpp: what all processes together keep of the device's memory.
bool has_ledger();
bool write_to_ledger(int64_t change, int64_t limit);  // false, and nothing is written, where more than the limit is kept then

// pinned.cpp
c10::Allocator* pinned_allocator();
bool is_pinned(const void* address);

// queue.cpp: work in order, done at the next synchronization.
struct Counts {
  int64_t launches, to_device, to_host, bytes;
};
struct KernelRecord {  // of the profiler
  std::string name;
  c10::DeviceIndex device;
  uint64_t correlation;
  int64_t begin, end;  // nanoseconds since the epoch
  bool copies;
};
void require_alive();  // raises where the device is lost, in a forked process, or after a kernel that failed
void enqueue(std::function<void()> work);  // counts as nothing
void launch(std::string name, std::function<void()> kernel);
void run_at_once(const std::string& name, const std::function<void()>& kernel);  // after all that waits
void settle();       // does all that waits
void synchronize();  // does all that waits, and raises what a kernel raised
bool is_idle();
void count_copy(bool to_host, int64_t bytes);
Counts counts();
bool in_bad_fork();
void observe_kernels(std::function<void(KernelRecord)> observer);  // an empty function ends it
void push_correlation(uint64_t correlation);
void pop_correlation();

// mirror.cpp: tensors of the host over the device's memory, as kernels see it.
class Mirrors {
 public:
  at::Tensor of(const at::Tensor& tensor);
  c10::IValue of(const c10::IValue& value);

 private:
  std::vector<std::pair<c10::StorageImpl*, c10::Storage>> storages_;
};
at::Tensor mirror(const at::Tensor& tensor);
at::Tensor like_on_device(const at::Tensor& outline, c10::Device device);  // sizes, strides and type of `outline`
void write(const at::Tensor& result, const at::Tensor& target);           // both seen by the host

// tensors.cpp
void resize(const at::Tensor& tensor, c10::IntArrayRef sizes, c10::IntArrayRef strides);
at::Tensor& copy(const at::Tensor& from, at::Tensor& to);

// outline.cpp: what an op returns, from its kernel for tensors without data.
struct Outline {
  torch::jit::Stack returns;                                 // tensors without data, and all else as it is
  std::vector<std::pair<size_t, at::Tensor>> written;        // arguments that the op writes, as they are afterwards
};

// operators.cpp: the kernel of each op that has none of its own.
void run_operator(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// kernels.cpp and the files of single kernels: kernels of the device's own, on tensors of the host.
struct Kernel {
  void (*run)(torch::jit::Stack& stack);
  void (*infer)(torch::jit::Stack& stack) = nullptr;  // does the same for tensors without data
  bool draws = false;
};
using Kernels = std::unordered_map<std::string, Kernel>;  // by the names of ops
void add_arithmetic(Kernels& kernels);
void add_scatters(Kernels& kernels);
void add_convolutions(Kernels& kernels);
void add_attention(Kernels& kernels);
void add_cells(Kernels& kernels);
const Kernel* own_kernel(const std::string& name);

// random.cpp: the generators of the devices.
const at::Generator& default_generator(c10::DeviceIndex index);
at::Generator new_generator(c10::DeviceIndex index);
at::Generator drawn_from(const at::Generator& generator);  // the host's, which a kernel draws from
class DefaultDraws {                                       // lets the host's default generator draw what this one would
 public:
  explicit DefaultDraws(const at::Generator& generator);
  ~DefaultDraws();
  DefaultDraws(const DefaultDraws&) = delete;
  DefaultDraws& operator=(const DefaultDraws&) = delete;

 private:
  at::Generator generator_;
  at::Generator kept_;
};

}  // namespace standin
