// What is known of an op from its schema and its tags, found out once.
#include "operators.h"

#include <algorithm>
#include <mutex>
#include <unordered_set>

namespace standin {
namespace {

// The indices and lengths that torch lets stay with the host.
const std::unordered_set<std::string>& takers_of_host_tensors() {
  static const std::unordered_set<std::string> names{
      "aten::index.Tensor",     "aten::index.Tensor_out",      "aten::index_put_",
      "aten::_index_put_impl_", "aten::_pack_padded_sequence", "aten::_pack_padded_sequence_backward",
  };
  return names;
}

bool is_tensor(const c10::Argument& argument) {
  return argument.type()->isSubtypeOf(*c10::OptionalType::ofTensor()) ||
      argument.type()->isSubtypeOf(*c10::ListType::ofTensors());
}

}  // namespace

OperatorFacts::OperatorFacts(const c10::OperatorHandle& op)
    : name(toString(op.operator_name())), kernel(own_kernel(name)), creates(true) {
  const c10::FunctionSchema& schema = op.schema();
  for (size_t place = 0; place < schema.arguments().size(); ++place) {
    const c10::Argument& argument = schema.arguments()[place];
    const bool writes = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    if (writes) {
      written.push_back(place);
    } else if (is_tensor(argument)) {
      creates = false;
    }
    if (argument.real_type()->str().rfind("Generator", 0) == 0) {
      generator = place;
    }
  }
  for (const c10::Argument& result : schema.returns()) {
    std::optional<size_t> same;
    for (const size_t place : written) {
      const c10::AliasInfo* info = result.alias_info();
      if (info != nullptr && info->isWrite() && *info == *schema.arguments()[place].alias_info()) {
        same = place;
      }
    }
    same_as.push_back(same);
  }
  const bool dynamic = op.hasTag(at::Tag::dynamic_output_shape) || op.hasTag(at::Tag::data_dependent_output);
  const bool outlined = (kernel != nullptr && kernel->infer != nullptr) ||
      op.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta);
  late = outlined && !dynamic;
  const std::string& base = op.schema().operator_name().name;
  in_place = base.back() == '_' && std::all_of(same_as.begin(), same_as.end(), [](const auto& same) { return same; });
  draws = op.hasTag(at::Tag::nondeterministic_seeded) || generator.has_value() || (kernel != nullptr && kernel->draws);
  takes_host_tensors = takers_of_host_tensors().count(name) != 0;
}

const OperatorFacts& facts_of(const c10::OperatorHandle& op) {
  static std::mutex lock;
  static auto& known = *new std::unordered_map<c10::OperatorName, std::unique_ptr<OperatorFacts>>;
  const std::lock_guard<std::mutex> held(lock);
  std::unique_ptr<OperatorFacts>& facts = known[op.operator_name()];
  if (!facts) {
    facts = std::make_unique<OperatorFacts>(op);
  }
  return *facts;
}

}  // namespace standin
