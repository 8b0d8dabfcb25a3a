// Memory of the device.
//
// Its pages are those of one file without a name, mapped twice: where tensors point, nobody may read or write; where
// kernels look, a constant number of bytes away, they may. So a host that follows the pointer of a tensor dies, also
// while a kernel runs, and no kernel has to open or close a page.
//
// A block that is freed is kept, and serves the next allocation of its size at once: kernels run in the order in which
// they are launched, so whatever still waits for the old content runs before the fill that the new owner begins with.
#include "standin.h"

#include <sys/mman.h>
#include <unistd.h>

#include <ATen/core/CachingHostAllocator.h>

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace standin {
namespace {

using c10::CachingDeviceAllocator::DeviceStats;

constexpr size_t PAGE = 4096;
constexpr size_t ARENA = size_t{64} << 30;  // addresses of one device, in bytes
constexpr int UNFILLED = 0xFF;              // each byte of new memory: NaN in every floating-point type, -1 in integers

char* device_begin = nullptr;
char* kernel_begin = nullptr;

void map_once() {
  static const bool mapped = [] {
    const size_t bytes = ARENA * std::max<size_t>(1, settings().devices);
    const int file = memfd_create("standin", MFD_CLOEXEC);
    TORCH_CHECK(file >= 0 && ftruncate(file, static_cast<off_t>(bytes)) == 0, "standin: no memory can be had");
    void* hidden = mmap(nullptr, bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0);
    void* open = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    close(file);
    TORCH_CHECK(hidden != MAP_FAILED && open != MAP_FAILED, "standin: no addresses can be had");
    madvise(open, bytes, MADV_DONTDUMP);
    device_begin = static_cast<char*>(hidden);
    kernel_begin = static_cast<char*>(open);
    return true;
  }();
  (void)mapped;
}

// Whole pages, and an eighth of the next power of two at most beyond the bytes asked for, so that sizes meet again.
size_t rounded(size_t bytes) {
  size_t step = PAGE;
  while (step * 16 < bytes) {
    step *= 2;
  }
  return (bytes + step - 1) / step * step;
}

struct Arena {
  size_t used = 0;                     // bytes from its beginning that were ever given out
  std::multimap<size_t, char*> freed;  // blocks by their size
  DeviceStats statistics;
};

void raise(c10::CachingAllocator::StatArray& statistic, size_t amount) { statistic[0].increase(amount); }
void lower(c10::CachingAllocator::StatArray& statistic, size_t amount) { statistic[0].decrease(amount); }

class Allocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device device = current_device();
    require_alive();
    if (bytes == 0) {
      return {nullptr, nullptr, &release, device};
    }
    char* block = take(device.index(), bytes);
    char* seen = static_cast<char*>(seen_by_kernels(block));
    enqueue([seen, bytes] { std::memset(seen, UNFILLED, bytes); });
    return {block, block, &release, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    enqueue([to = seen_by_kernels(to), from = seen_by_kernels(from), bytes] { std::memcpy(to, from, bytes); });
  }

  bool initialized() override { return device_begin != nullptr; }
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  void emptyCache(c10::MempoolId_t = {0, 0}) override;
  DeviceStats getDeviceStats(c10::DeviceIndex index) override;
  void resetAccumulatedStats(c10::DeviceIndex index) override;
  void resetPeakStats(c10::DeviceIndex index) override;
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override;

 private:
  char* take(c10::DeviceIndex index, size_t bytes);
  static void release(void* block);
};

std::mutex lock;
auto& sizes = *new std::unordered_map<void*, size_t>;  // of the blocks in use; never destroyed, as tensors may outlive it
auto& arenas = *new std::map<c10::DeviceIndex, Arena>;

char* Allocator::take(c10::DeviceIndex index, size_t bytes) {
  map_once();
  const std::lock_guard<std::mutex> held(lock);
  Arena& arena = arenas[index];
  const size_t size = rounded(bytes);
  const auto in_use = static_cast<size_t>(arena.statistics.allocated_bytes[0].current);
  const auto limit = static_cast<size_t>(std::min<int64_t>(settings().memory, ARENA));
  const auto found = arena.freed.find(size);
  if (in_use + size > limit || (found == arena.freed.end() && arena.used + size > ARENA)) {
    arena.statistics.num_ooms++;
    TORCH_CHECK_WITH(
        OutOfMemoryError, false, "standin out of memory. Tried to allocate ", size, " bytes. standin:", int{index},
        " has a total capacity of ", limit, " bytes of which ", limit - std::min(limit, in_use), " bytes are free.");
  }
  char* block = nullptr;
  if (found != arena.freed.end()) {
    block = found->second;
    arena.freed.erase(found);
  } else {
    block = device_begin + ARENA * static_cast<size_t>(index) + arena.used;
    arena.used += size;
    raise(arena.statistics.reserved_bytes, size);
    raise(arena.statistics.segment, 1);
  }
  sizes[block] = size;
  raise(arena.statistics.allocated_bytes, size);
  raise(arena.statistics.active_bytes, size);
  raise(arena.statistics.requested_bytes, size);
  raise(arena.statistics.allocation, 1);
  raise(arena.statistics.active, 1);
  return block;
}

void Allocator::release(void* block) {
  if (block == nullptr) {
    return;
  }
  const std::lock_guard<std::mutex> held(lock);
  Arena& arena = arenas[device_of(block)];
  const auto entry = sizes.find(block);
  const size_t size = entry->second;
  sizes.erase(entry);
  arena.freed.emplace(size, static_cast<char*>(block));
  lower(arena.statistics.allocated_bytes, size);
  lower(arena.statistics.active_bytes, size);
  lower(arena.statistics.requested_bytes, size);
  lower(arena.statistics.allocation, 1);
  lower(arena.statistics.active, 1);
}

// Gives the pages of the freed blocks back to the system; their addresses stay.
void Allocator::emptyCache(c10::MempoolId_t) {
  synchronize();
  const std::lock_guard<std::mutex> held(lock);
  for (auto& [index, arena] : arenas) {
    for (const auto& [size, block] : arena.freed) {
      madvise(seen_by_kernels(block), size, MADV_REMOVE);
    }
  }
}

DeviceStats Allocator::getDeviceStats(c10::DeviceIndex index) {
  const std::lock_guard<std::mutex> held(lock);
  return arenas[index].statistics;
}

void Allocator::resetAccumulatedStats(c10::DeviceIndex index) {
  const std::lock_guard<std::mutex> held(lock);
  DeviceStats& statistics = arenas[index].statistics;
  for (auto* statistic : {&statistics.allocation, &statistics.allocated_bytes, &statistics.reserved_bytes}) {
    (*statistic)[0].reset_accumulated();
  }
}

void Allocator::resetPeakStats(c10::DeviceIndex index) {
  const std::lock_guard<std::mutex> held(lock);
  DeviceStats& statistics = arenas[index].statistics;
  for (auto* statistic :
       {&statistics.allocation, &statistics.allocated_bytes, &statistics.reserved_bytes, &statistics.segment,
        &statistics.active, &statistics.active_bytes, &statistics.requested_bytes}) {
    (*statistic)[0].reset_peak();
  }
}

std::pair<size_t, size_t> Allocator::getMemoryInfo(c10::DeviceIndex index) {
  const size_t total = std::min<int64_t>(settings().memory, ARENA);
  const auto in_use = static_cast<size_t>(getDeviceStats(index).allocated_bytes[0].current);
  return {total - std::min(total, in_use), total};
}

// Memory of the host that is called pinned. Nothing comes of it but that torch is told so.
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

auto& the_allocator = *new Allocator;
auto& the_pinned_allocator = *new PinnedAllocator;

void PinnedAllocator::release(void* block) {
  {
    const std::lock_guard<std::mutex> held(the_pinned_allocator.pinned_lock_);
    the_pinned_allocator.pinned_.erase(static_cast<char*>(block));
  }
  std::free(block);
}

const bool registered = [] {
  c10::SetAllocator(DEVICE_TYPE, &the_allocator);
  at::setHostAllocator(DEVICE_TYPE, &the_pinned_allocator);
  return true;
}();

}  // namespace

c10::DeviceAllocator* allocator() { return &the_allocator; }

void* seen_by_kernels(const void* address) {
  if (address == nullptr) {
    return nullptr;
  }
  return kernel_begin + (static_cast<const char*>(address) - device_begin);
}

c10::DeviceIndex device_of(const void* address) {
  const auto* place = static_cast<const char*>(address);
  const size_t bytes = ARENA * static_cast<size_t>(settings().devices);
  if (device_begin == nullptr || place < device_begin || place >= device_begin + bytes) {
    return -1;
  }
  return static_cast<c10::DeviceIndex>((place - device_begin) / static_cast<std::ptrdiff_t>(ARENA));
}

bool is_pinned(const void* address) { return the_pinned_allocator.holds(static_cast<const char*>(address)); }

bool memory_in_use() { return device_begin != nullptr; }

}  // namespace standin
