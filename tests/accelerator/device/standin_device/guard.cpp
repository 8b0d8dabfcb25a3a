// Current device, streams, events, and the hooks by which torch asks for what belongs to a device.
#include "standin.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/ApproximateClock.h>

#include <cstring>
#include <memory>

namespace standin {
namespace {

thread_local c10::DeviceIndex current_index = 0;

// The time at which the queue came to an event, in nanoseconds; 0 until then.
struct Event {
  std::shared_ptr<int64_t> reached = std::make_shared<int64_t>(0);
};

// Told of a device of another type it ends the process, as CUDA's does.
class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return DEVICE_TYPE; }
  c10::Device exchangeDevice(c10::Device device) const override {
    require_own(device);
    const c10::Device before = current_device();
    set_current_device(device.index());
    return before;
  }
  c10::Device getDevice() const override { return current_device(); }
  void setDevice(c10::Device device) const override {
    require_own(device);
    set_current_device(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    require_own(device);
    if (device.index() >= 0) {
      current_index = device.index();
    }
  }
  c10::DeviceIndex deviceCount() const noexcept override { return settings().devices; }

  // One stream does all work.
  c10::Stream getStream(c10::Device device) const override { return stream(device); }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream(device); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return stream(device); }
  c10::Stream getNewStream(c10::Device device, int) const override { return stream(device); }
  c10::Stream exchangeStream(c10::Stream given) const override { return stream(given.device()); }
  bool queryStream(const c10::Stream&) const override { return is_idle(); }
  void synchronizeStream(const c10::Stream&) const override { synchronize(); }
  void synchronizeDevice(const c10::DeviceIndex) const override { synchronize(); }

  void record(void** event, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (*event == nullptr) {
      *event = new Event;
    }
    auto reached = static_cast<Event*>(*event)->reached;
    *reached = 0;
    enqueue([reached] { *reached = c10::getTime(); });
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void* event) const override { return event == nullptr || *static_cast<Event*>(event)->reached != 0; }
  void synchronizeEvent(void*) const override { synchronize(); }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  double elapsedTime(void* from, void* to, const c10::DeviceIndex) const override {  // milliseconds
    TORCH_CHECK(from != nullptr && to != nullptr, "both events must be recorded");
    synchronize();
    return static_cast<double>(*static_cast<Event*>(to)->reached - *static_cast<Event*>(from)->reached) / 1e6;
  }

 private:
  static void require_own(c10::Device device) {
    if (device.type() != DEVICE_TYPE) {
      std::fprintf(stderr, "standin: the guard of standin was told of device %s\n", device.str().c_str());
      std::abort();
    }
  }
  static c10::Stream stream(c10::Device device) { return c10::Stream(c10::Stream::DEFAULT, resolved(device)); }
};

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool hasPrimaryContext(c10::DeviceIndex) const override { return memory_in_use(); }
  void init() const override { require_alive(); }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return settings().devices > 0; }
  c10::DeviceIndex deviceCount() const override { return settings().devices; }
  void setCurrentDevice(c10::DeviceIndex index) const override { set_current_device(index); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device().index(); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    const c10::DeviceIndex before = current_index;
    set_current_device(index);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override { return exchangeDevice(index); }
  at::Device getDeviceFromPtr(void* data) const override { return {DEVICE_TYPE, device_of(data)}; }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override { return default_generator(index); }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override { return new_generator(index); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override;
};

void Hooks::resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const {
  const DeviceScope scope(storage.device());
  c10::DataPtr fresh = allocator()->allocate(bytes);
  allocator()->copy_data(fresh.get(), storage.data(), std::min(bytes, storage.nbytes()));
  storage.set_data_ptr_noswap(std::move(fresh));
  storage.set_nbytes(bytes);
}

const c10::impl::DeviceGuardImplRegistrar guard(DEVICE_TYPE, new Guard);

const bool hooks_known = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

}  // namespace

c10::Device current_device() { return {DEVICE_TYPE, current_index}; }

void set_current_device(c10::DeviceIndex index) {
  if (index >= 0) {
    current_index = resolved({DEVICE_TYPE, index}).index();
  }
}

c10::Device resolved(c10::Device device) {
  if (!device.has_index()) {
    device = current_device();
  }
  TORCH_CHECK(
      device.index() < settings().devices, "standin: invalid device ordinal ", int{device.index()}, " of ",
      int{settings().devices}, " devices");
  return device;
}

}  // namespace standin
