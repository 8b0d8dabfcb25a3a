// Memory of the device over all processes that use it: STANDIN_LEDGER names a file that they share.
//
// Each process has a line of it, with its number and the bytes that it keeps. A line whose process has ended counts for
// nothing, so a process that is killed leaves nothing behind.
#include "standin.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace standin {
namespace {

struct LedgerLine {
  int64_t process;
  int64_t bytes;
};

struct LedgerFile {
  int64_t peak;
  LedgerLine lines[1023];
};

struct Ledger {
  int file = -1;
  LedgerFile* shared = nullptr;
};

const Ledger& ledger() {
  static const Ledger opened = [] {
    Ledger made;
    if (const char* path = std::getenv("STANDIN_LEDGER")) {
      made.file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
      TORCH_CHECK(made.file >= 0 && ftruncate(made.file, sizeof(LedgerFile)) == 0, "standin: no ledger at ", path);
      void* mapped = mmap(nullptr, sizeof(LedgerFile), PROT_READ | PROT_WRITE, MAP_SHARED, made.file, 0);
      TORCH_CHECK(mapped != MAP_FAILED, "standin: no ledger at ", path);
      made.shared = static_cast<LedgerFile*>(mapped);
    }
    return made;
  }();
  return opened;
}

bool is_running(int64_t process) { return kill(static_cast<pid_t>(process), 0) == 0 || errno != ESRCH; }

}  // namespace

bool has_ledger() { return ledger().shared != nullptr; }

bool write_to_ledger(int64_t change, int64_t limit) {
  const Ledger& all = ledger();
  flock(all.file, LOCK_EX);
  LedgerLine* own = nullptr;
  LedgerLine* vacant = nullptr;
  int64_t total = change;
  for (LedgerLine& line : all.shared->lines) {
    if (line.process != 0 && line.process != getpid() && !is_running(line.process)) {
      line = {0, 0};
    }
    total += line.bytes;
    own = line.process == getpid() ? &line : own;
    vacant = line.process == 0 ? &line : vacant;
  }
  const bool fits = change <= 0 || total <= limit;
  own = own == nullptr ? vacant : own;
  if (fits && own != nullptr) {
    *own = {getpid(), own->bytes + change};
    all.shared->peak = std::max(all.shared->peak, total);
  }
  flock(all.file, LOCK_UN);
  return fits;
}

}  // namespace standin
