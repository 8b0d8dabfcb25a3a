// Memory of the host that is called pinned. Nothing comes of it but that torch is told so.
#include "standin.h"

#include <ATen/core/CachingHostAllocator.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

namespace standin {
namespace {

class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* block = bytes == 0 ? nullptr : std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    const std::lock_guard<std::mutex> held(pinned_lock_);
    pinned_[static_cast<char*>(block)] = bytes;
    return {block, block, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
  bool record_event(void*, void*, c10::Stream) override { return true; }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}

  bool holds(const char* address) {
    const std::lock_guard<std::mutex> held(pinned_lock_);
    auto after = pinned_.upper_bound(const_cast<char*>(address));
    if (after == pinned_.begin()) {
      return false;
    }
    --after;
    return address < after->first + std::max<size_t>(1, after->second);
  }

 private:
  static void release(void* block);
  std::mutex pinned_lock_;
  std::map<char*, size_t> pinned_;
};

auto& the_pinned_allocator = *new PinnedAllocator;

void PinnedAllocator::release(void* block) {
  {
    const std::lock_guard<std::mutex> held(the_pinned_allocator.pinned_lock_);
    the_pinned_allocator.pinned_.erase(static_cast<char*>(block));
  }
  std::free(block);
}

const bool pinning = [] {
  at::setHostAllocator(DEVICE_TYPE, &the_pinned_allocator);
  return true;
}();

}  // namespace

c10::Allocator* pinned_allocator() { return &the_pinned_allocator; }

bool is_pinned(const void* address) { return the_pinned_allocator.holds(static_cast<const char*>(address)); }

}  // namespace standin
