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

#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace standin {
namespace {

using c10::CachingDeviceAllocator::DeviceStats;

constexpr size_t PAGE = 4096;
constexpr size_t ARENA = size_t{64} << 30;  // addresses of one device, in bytes
constexpr size_t LEAST_KEPT = size_t{4} << 20;  // bytes of freed blocks whose pages a device keeps at any rate
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
      madvise(hidden, bytes, MADV_DONTDUMP);  // a core dump would have all addresses
    madvise(open, bytes, MADV_DONTDUMP);
    device_begin = static_cast<char*>(hidden);
    kernel_begin = static_cast<char*>(open);
    return true;
  }();
  (void)mapped;
}

// Whole pages, with steps of an eighth of the size at most, so that sizes meet again.
size_t rounded(size_t bytes) {
  size_t step = PAGE;
  while (step * 16 < bytes) {
    step *= 2;
  }
  return (bytes + step - 1) / step * step;
}

int64_t most_bytes() { return std::min<int64_t>(settings().memory, ARENA); }

struct Block {
  char* begin;
  bool backed;  // by pages of the system
};

struct Arena {
  size_t used = 0;                     // bytes from its beginning that were ever given out
  std::multimap<size_t, Block> freed;  // by their size
  DeviceStats statistics;
};

void count_up(c10::CachingAllocator::StatArray& statistic, size_t amount) { statistic[0].increase(amount); }
void count_down(c10::CachingAllocator::StatArray& statistic, size_t amount) { statistic[0].decrease(amount); }

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
    if (keeps_too_much(device.index())) {
      give_back();
    }
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
  char* placed(c10::DeviceIndex index, size_t size);
  bool keeps_too_much(c10::DeviceIndex index);
  void give_back();
  static void release(void* block);
};

std::mutex memory_lock;
auto& sizes = *new std::unordered_map<void*, size_t>;  // of the blocks in use; never destroyed, as tensors may outlive it
auto& arenas = *new std::map<c10::DeviceIndex, Arena>;

char* Allocator::take(c10::DeviceIndex index, size_t bytes) {
  map_once();
  const size_t size = rounded(bytes);
  if (char* block = placed(index, size)) {
    return block;
  }
  give_back();  // what other processes keep may leave room for what is kept here for nothing
  if (char* block = placed(index, size)) {
    return block;
  }
  const auto limit = static_cast<size_t>(most_bytes());
  const std::lock_guard<std::mutex> held(memory_lock);
  DeviceStats& statistics = arenas[index].statistics;
  statistics.num_ooms++;
  const auto in_use = static_cast<size_t>(statistics.allocated_bytes[0].current);
  TORCH_CHECK_WITH(
      OutOfMemoryError, false, "standin out of memory. Tried to allocate ", size, " bytes. standin:", int{index},
      " has a total capacity of ", limit, " bytes of which ", limit - std::min(limit, in_use), " bytes are free.");
}

// A block of this size, or null where there is no memory for it.
char* Allocator::placed(c10::DeviceIndex index, size_t size) {
  const std::lock_guard<std::mutex> held(memory_lock);
  Arena& arena = arenas[index];
  const auto in_use = static_cast<size_t>(arena.statistics.allocated_bytes[0].current);
  const auto found = arena.freed.find(size);
  const bool backed = found != arena.freed.end() && found->second.backed;
  if (in_use + size > static_cast<size_t>(most_bytes()) || (found == arena.freed.end() && arena.used + size > ARENA) ||
      (has_ledger() && !backed && !write_to_ledger(static_cast<int64_t>(size), most_bytes()))) {
    return nullptr;
  }
  Block block{device_begin + ARENA * static_cast<size_t>(index) + arena.used, false};
  if (found != arena.freed.end()) {
    block = found->second;
    arena.freed.erase(found);
  } else {
    arena.used += size;
  }
  if (!block.backed) {
    count_up(arena.statistics.reserved_bytes, size);
    count_up(arena.statistics.segment, 1);
  }
  sizes[block.begin] = size;
  count_up(arena.statistics.allocated_bytes, size);
  count_up(arena.statistics.active_bytes, size);
  count_up(arena.statistics.requested_bytes, size);
  count_up(arena.statistics.allocation, 1);
  count_up(arena.statistics.active, 1);
  return block.begin;
}

// A block serves its own size only, so what is kept is soon worth little: a quarter of what is in use at most.
bool Allocator::keeps_too_much(c10::DeviceIndex index) {
  const std::lock_guard<std::mutex> held(memory_lock);
  const DeviceStats& statistics = arenas[index].statistics;
  const int64_t in_use = statistics.allocated_bytes[0].current;
  return statistics.reserved_bytes[0].current - in_use > in_use / 4 + static_cast<int64_t>(LEAST_KEPT);
}

// Gives the pages of the freed blocks back to the system, once all that may use them has run; their addresses stay.
void Allocator::give_back() {
  std::vector<std::pair<void*, size_t>> given;
  {
    const std::lock_guard<std::mutex> held(memory_lock);
    for (auto& [index, arena] : arenas) {
      for (auto& [size, block] : arena.freed) {
        if (block.backed) {
          block.backed = false;
          given.emplace_back(seen_by_kernels(block.begin), size);
          count_down(arena.statistics.reserved_bytes, size);
          count_down(arena.statistics.segment, 1);
          if (has_ledger()) {
            write_to_ledger(-static_cast<int64_t>(size), most_bytes());
          }
        }
      }
    }
  }
  enqueue([given] {
    for (const auto& [begin, size] : given) {
      madvise(begin, size, MADV_REMOVE);
    }
  });
}

void Allocator::release(void* block) {
  if (block == nullptr || in_bad_fork()) {
    return;
  }
  const std::lock_guard<std::mutex> held(memory_lock);
  Arena& arena = arenas[device_of(block)];
  const auto entry = sizes.find(block);
  const size_t size = entry->second;
  sizes.erase(entry);
  arena.freed.emplace(size, Block{static_cast<char*>(block), true});
  count_down(arena.statistics.allocated_bytes, size);
  count_down(arena.statistics.active_bytes, size);
  count_down(arena.statistics.requested_bytes, size);
  count_down(arena.statistics.allocation, 1);
  count_down(arena.statistics.active, 1);
}

void Allocator::emptyCache(c10::MempoolId_t) {
  give_back();
  synchronize();
}

DeviceStats Allocator::getDeviceStats(c10::DeviceIndex index) {
  const std::lock_guard<std::mutex> held(memory_lock);
  return arenas[index].statistics;
}

void Allocator::resetAccumulatedStats(c10::DeviceIndex index) {
  const std::lock_guard<std::mutex> held(memory_lock);
  DeviceStats& statistics = arenas[index].statistics;
  for (auto* statistic : {&statistics.allocation, &statistics.allocated_bytes, &statistics.reserved_bytes}) {
    (*statistic)[0].reset_accumulated();
  }
}

void Allocator::resetPeakStats(c10::DeviceIndex index) {
  const std::lock_guard<std::mutex> held(memory_lock);
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

auto& the_allocator = *new Allocator;

const bool allocating = [] {
  c10::SetAllocator(DEVICE_TYPE, &the_allocator);
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

bool memory_in_use() { return device_begin != nullptr; }

}  // namespace standin
