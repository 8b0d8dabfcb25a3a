// Work of the device, in one order for all its devices.
//
// A launch returns at once. What was launched runs at the next synchronization, in the thread that synchronizes, or
// when too much waits. What a kernel raises comes out at the synchronization.
#include <Python.h>

#include "standin.h"

#include <pthread.h>

#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ApproximateClock.h>

#include <atomic>
#include <deque>
#include <mutex>
#include <vector>

namespace standin {
namespace {

constexpr size_t LONGEST = 256;  // kernels that may wait

struct Work {
  std::function<void()> run;
  std::string name;  // empty for what is no kernel
  c10::DeviceIndex device = 0;
  uint64_t correlation = 0;
};

struct Queue {
  std::recursive_mutex lock;
  std::deque<Work> waiting;
  size_t kernels = 0;  // among what waits
  bool running = false;
  std::string raised;  // by a kernel since the last synchronization
  bool raised_ends = false;
  std::string ended;  // the error that ended the device
  std::function<void(KernelRecord)> observer;
};

Queue* queue = new Queue;  // never destroyed, as tensors may outlive it
std::atomic<int64_t> launched{0}, to_device{0}, to_host{0}, bytes_copied{0};
std::atomic<bool> forked{false};
thread_local std::vector<uint64_t> correlations;

// A forked process leaves the queue alone: its work is the other process's.
const bool fork_watched = [] {
  pthread_atfork(nullptr, nullptr, [] {
    if (memory_in_use()) {
      forked = true;
      queue = new Queue;
    }
  });
  return true;
}();

// Waits for the queue without holding the interpreter's lock: a kernel that runs meanwhile may need it.
class Held {
 public:
  Held() {
    if (queue->lock.try_lock()) {
      return;
    }
    if (Py_IsInitialized() && PyGILState_Check()) {
      PyThreadState* state = PyEval_SaveThread();
      queue->lock.lock();
      PyEval_RestoreThread(state);
    } else {
      queue->lock.lock();
    }
  }
  ~Held() { queue->lock.unlock(); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
};

// Kernels see neither autograd nor modes nor the profiler of the thread that happens to run them.
struct KernelScope {
  c10::impl::ForceDispatchKeyGuard keys{
      c10::DispatchKeySet(c10::DispatchKey::BackendSelect),
      c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::default_excluded_set};
  at::NoGradGuard no_grad;
  at::DisableRecordFunctionGuard unseen;
};

void run_kernel(const Work& work) {
  const bool observed = static_cast<bool>(queue->observer) && !work.name.empty();
  const int64_t begin = observed ? c10::getTime() : 0;
  work.run();
  if (observed) {
    queue->observer({work.name, work.device, work.correlation, begin, c10::getTime(), work.name == "copy_"});
  }
}

// A kernel that the host does not have leaves the device as it was. Any other failure, such as an index out of range,
// ends the device, as an assertion in a kernel does on a real one.
void note_error(const Work& work, const std::exception& error) {
  if (!queue->raised.empty()) {
    return;
  }
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  const std::string message = of_torch != nullptr ? of_torch->what_without_backtrace() : error.what();
  const bool missing = dynamic_cast<const c10::NotImplementedError*>(&error) != nullptr ||
      message.find("not implemented for") != std::string::npos;
  queue->raised = "standin: " + (work.name.empty() ? "a copy" : work.name) + " failed: " + message;
  queue->raised_ends = !missing;
}

void drain() {
  if (queue->running) {
    return;
  }
  queue->running = true;
  const KernelScope scope;
  while (!queue->waiting.empty()) {
    const Work work = std::move(queue->waiting.front());
    queue->waiting.pop_front();
    try {
      run_kernel(work);
    } catch (const std::exception& error) {
      note_error(work, error);
    }
  }
  queue->kernels = 0;
  queue->running = false;
}

void raise_errors() {
  if (queue->raised.empty()) {
    return;
  }
  const std::string message = std::exchange(queue->raised, "");
  if (queue->raised_ends) {
    queue->ended = message;
  }
  TORCH_CHECK(false, message);
}

Work work_of(std::string name, std::function<void()> run) {
  return {std::move(run), std::move(name), current_device().index(), correlations.empty() ? 0 : correlations.back()};
}

}  // namespace

void require_alive() {
  TORCH_CHECK(
      !forked, "Cannot re-initialize standin in forked subprocess. To use standin with multiprocessing, you must use ",
      "the 'spawn' start method");
  const int64_t lost_at = settings().lost_at;
  TORCH_CHECK(lost_at < 0 || launched < lost_at, "standin: the device is lost");
  TORCH_CHECK(queue->ended.empty(), queue->ended);
}

void enqueue(std::function<void()> work) {
  const Held held;
  queue->waiting.push_back({std::move(work), "", 0, 0});
  if (settings().eager) {
    drain();
  }
}

void launch(std::string name, std::function<void()> kernel) {
  const Held held;
  require_alive();
  launched++;
  queue->waiting.push_back(work_of(std::move(name), std::move(kernel)));
  if (settings().eager) {
    drain();
    raise_errors();
  } else if (++queue->kernels > LONGEST) {
    drain();
  }
}

void run_at_once(const std::string& name, const std::function<void()>& kernel) {
  const Held held;
  require_alive();
  launched++;
  drain();
  raise_errors();
  const KernelScope scope;
  run_kernel(work_of(name, kernel));
}

void settle() {
  const Held held;
  drain();
}

void synchronize() {
  const Held held;
  require_alive();
  drain();
  raise_errors();
}

bool is_idle() {
  const Held held;
  return queue->waiting.empty();
}

void count_copy(bool host, int64_t bytes) {
  (host ? to_host : to_device)++;
  bytes_copied += bytes;
}

Counts counts() { return {launched, to_device, to_host, bytes_copied}; }

bool in_bad_fork() { return forked; }

void observe_kernels(std::function<void(KernelRecord)> observer) {
  const Held held;
  drain();
  queue->observer = std::move(observer);
}

void push_correlation(uint64_t correlation) { correlations.push_back(correlation); }

void pop_correlation() {
  if (!correlations.empty()) {
    correlations.pop_back();
  }
}

}  // namespace standin
