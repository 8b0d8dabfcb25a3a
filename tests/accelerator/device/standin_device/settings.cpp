// The environment variables of the device, read once.
#include "standin.h"

#include <cstdlib>
#include <limits>

namespace standin {
namespace {

int64_t number(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') {
    return otherwise;
  }
  char* end = nullptr;
  const int64_t value = std::strtoll(text, &end, 10);
  TORCH_CHECK(*end == '\0', name, " must be a number, not ", text);
  return value;
}

}  // namespace

const Settings& settings() {
  static const Settings read{
      static_cast<c10::DeviceIndex>(number("STANDIN_COUNT", 2)),
      number("STANDIN_EAGER", 0) != 0,
      number("STANDIN_UNREPEATABLE", 0) != 0,
      number("STANDIN_MEMORY", std::numeric_limits<int64_t>::max()),
      number("STANDIN_LOST_AT", -1),
  };
  return read;
}

}  // namespace standin
