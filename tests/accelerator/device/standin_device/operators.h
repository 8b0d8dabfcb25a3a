// Ops in general: what is known of one, and what it returns.
#pragma once

#include "standin.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>
#include <optional>
#include <vector>

namespace standin {

struct OperatorFacts {
  explicit OperatorFacts(const c10::OperatorHandle& op);

  std::string name;                               // with its overload
  const Kernel* kernel;                           // the device's own, or null
  bool late;                                      // what it returns can be told before it runs
  bool draws;                                     // random numbers
  bool in_place;                                  // and so returns what it was given, as it is
  bool creates;                                   // tensors from numbers alone
  bool takes_host_tensors;                        // beside those of the device
  std::optional<size_t> generator;                // its place among the arguments
  std::vector<size_t> written;                    // places of the arguments that it writes
  std::vector<std::optional<size_t>> same_as;     // for each return the argument that it is
};

const OperatorFacts& facts_of(const c10::OperatorHandle& op);

// Null where only the kernel itself can say what it returns, or why it refuses.
std::shared_ptr<const Outline> outline_of(
    const c10::OperatorHandle& op, const OperatorFacts& facts, c10::ArrayRef<c10::IValue> arguments);

}  // namespace standin
