// Work of the device, in one order for all its devices.
//
// A launch returns at once. What was launched runs at the next synchronization, in the thread that synchronizes, or
// when too much waits. What a kernel raises comes out at the synchronization.
#include "standin.h"

#include <Python.h>
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

std::recursive_mutex lock;
auto& waiting = *new std::deque<Work>;
size_t kernels_waiting = 0;
bool running = false;
auto& raised = *new std::string;  // by a kernel since the last synchronization
auto& broken = *new std::string;  // the error that ended the device
bool raised_breaks = false;
std::atomic<int64_t> launches{0}, to_device{0}, to_host{0}, bytes_copied{0};
std::atomic<bool> forked{false};
auto& observer = *new std::function<void(KernelRecord)>;
std::atomic<bool> observed{false};
thread_local std::vector<uint64_t> correlations;

// Waits for the queue without holding the interpreter's lock: a kernel that runs meanwhile may need it.
class Held {
 public:
  Held() {
    if (lock.try_lock()) {
      return;
    }
    if (Py_IsInitialized() && PyGILState_Check()) {
      PyThreadState* state = PyEval_SaveThread();
      lock.lock();
      PyEval_RestoreThread(state);
    } else {
      lock.lock();
    }
  }
  ~Held() { lock.unlock(); }
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

void note_error(const std::string& name, const std::exception& error, bool breaks) {
  if (raised.empty()) {
    const auto* known = dynamic_cast<const c10::Error*>(&error);
    raised = "standin: " + name + " failed: " + (known ? known->what_without_backtrace() : error.what());
    raised_breaks = breaks;
  }
}

void run_kernel(const Work& work) {
  const int64_t begin = observed ? c10::getTime() : 0;
  work.run();
  if (observed && !work.name.empty()) {
    observer({work.name, work.device, work.correlation, begin, c10::getTime(), work.name.rfind("copy", 0) == 0});
  }
}

// Kernels that a host's kernel is missing for ("not implemented") leave the device as it was; any other failure, such
// as an index out of range, ends it, as an assertion on a real device does.
void drain() {
  if (running) {
    return;
  }
  running = true;
  const KernelScope scope;
  while (!waiting.empty()) {
    const Work work = std::move(waiting.front());
    waiting.pop_front();
    try {
      run_kernel(work);
    } catch (const c10::NotImplementedError& error) {
      note_error(work.name, error, false);
    } catch (const std::exception& error) {
      note_error(work.name, error, std::string(error.what()).find("not implemented for") == std::string::npos);
    }
  }
  kernels_waiting = 0;
  running = false;
}

void raise_errors() {
  if (raised.empty()) {
    return;
  }
  const std::string message = std::move(raised);
  raised.clear();
  if (raised_breaks) {
    broken = message;
  }
  TORCH_CHECK(false, message);
}

Work work_of(std::string name, std::function<void()> run) {
  return {std::move(run), std::move(name), current_device().index(), correlations.empty() ? 0 : correlations.back()};
}

const bool watched = [] {
  pthread_atfork(nullptr, nullptr, [] { forked = memory_in_use(); });
  return true;
}();

}  // namespace

void require_alive() {
  TORCH_CHECK(!forked, "Cannot re-initialize standin in forked subprocess. To use standin with multiprocessing, you "
                       "must use the 'spawn' start method");
  const int64_t lost_at = settings().lost_at;
  TORCH_CHECK(lost_at < 0 || launches < lost_at, "standin: the device is lost");
  TORCH_CHECK(broken.empty(), broken);
}

void enqueue(std::function<void()> work) {
  const Held held;
  waiting.push_back({std::move(work), "", 0, 0});
  if (settings().eager) {
    drain();
  }
}

void launch(std::string name, std::function<void()> kernel) {
  const Held held;
  require_alive();
  launches++;
  waiting.push_back(work_of(std::move(name), std::move(kernel)));
  if (settings().eager) {
    drain();
    raise_errors();
  } else if (++kernels_waiting > LONGEST) {
    drain();
  }
}

void run_at_once(const std::string& name, const std::function<void()>& kernel) {
  const Held held;
  require_alive();
  launches++;
  drain();
  raise_errors();
  const KernelScope scope;
  run_kernel(work_of(name, kernel));
}

void synchronize() {
  const Held held;
  require_alive();
  drain();
  raise_errors();
}

bool is_idle() {
  const Held held;
  return waiting.empty();
}

void count_copy(bool host, int64_t bytes) {
  (host ? to_host : to_device)++;
  bytes_copied += bytes;
}

Counts counts() { return {launches, to_device, to_host, bytes_copied}; }

bool in_bad_fork() { return forked; }

void observe_kernels(std::function<void(KernelRecord)> given) {
  const Held held;
  drain();
  observed = static_cast<bool>(given);
  observer = std::move(given);
}

void push_correlation(uint64_t correlation) { correlations.push_back(correlation); }

void pop_correlation() {
  if (!correlations.empty()) {
    correlations.pop_back();
  }
}

}  // namespace standin
