// Generators of the device: each draws from a generator of the host of its own, whose seed is another.
#include "standin.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>

#include <cstring>
#include <vector>

namespace standin {
namespace {

constexpr uint64_t OTHER_SEED = 0x9E3779B97F4A7C15;  // so that no draw is the host's of the same seed

at::CPUGeneratorImpl& on_host(const at::Generator& generator) {
  return *generator.get<at::CPUGeneratorImpl>();
}

// What waits has drawn by the time that anything is asked of a generator.
class DeviceGenerator final : public c10::GeneratorImpl {
 public:
  explicit DeviceGenerator(c10::DeviceIndex index)
      : GeneratorImpl({DEVICE_TYPE, index}, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        drawn_(at::detail::createCPUGenerator(seed_ ^ OTHER_SEED)) {}

  const at::Generator& drawn() const { return drawn_; }

  void set_current_seed(uint64_t seed) override {
    settle();
    seed_ = seed;
    on_host(drawn_).set_current_seed(seed ^ OTHER_SEED);
  }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return seed_;
  }
  void set_offset(uint64_t) override { TORCH_CHECK_NOT_IMPLEMENTED(false, "standin: a generator has no offset"); }
  uint64_t get_offset() const override { TORCH_CHECK_NOT_IMPLEMENTED(false, "standin: a generator has no offset"); }

  // The seed, then the state of the host's generator.
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    settle();
    const at::Tensor drawn(on_host(drawn_).get_state());
    at::Tensor state = at::detail::empty_cpu({static_cast<int64_t>(sizeof seed_) + drawn.numel()}, at::kByte);
    auto* bytes = static_cast<char*>(state.mutable_data_ptr());
    std::memcpy(bytes, &seed_, sizeof seed_);
    std::memcpy(bytes + sizeof seed_, drawn.const_data_ptr(), static_cast<size_t>(drawn.numel()));
    return state.getIntrusivePtr();
  }
  void set_state(const c10::TensorImpl& state) override {
    settle();
    const at::Tensor drawn(on_host(drawn_).get_state());
    at::Tensor replaced = at::detail::empty_cpu({drawn.numel()}, at::kByte);
    TORCH_CHECK(
        state.dtype() == caffe2::TypeMeta::Make<uint8_t>() && state.is_contiguous() && state.device().is_cpu(),
        "RNG state must be a torch.ByteTensor of the host");
    TORCH_CHECK(
        state.numel() == static_cast<int64_t>(sizeof seed_) + drawn.numel(), "RNG state is the wrong size");
    const auto* bytes = static_cast<const char*>(state.data());
    std::memcpy(replaced.mutable_data_ptr(), bytes + sizeof seed_, static_cast<size_t>(drawn.numel()));
    on_host(drawn_).set_state(*replaced.unsafeGetTensorImpl());
    std::memcpy(&seed_, bytes, sizeof seed_);
  }

 private:
  DeviceGenerator* clone_impl() const override {
    auto* copy = new DeviceGenerator(device().index());
    copy->set_state(*get_state());
    return copy;
  }

  uint64_t seed_ = c10::default_rng_seed_val;
  at::Generator drawn_;
};

void take_over(at::CPUGeneratorImpl& to, at::CPUGeneratorImpl& from) {
  to.set_engine(from.engine());
  to.set_next_float_normal_sample(from.next_float_normal_sample());
  to.set_next_double_normal_sample(from.next_double_normal_sample());
}

}  // namespace

const at::Generator& default_generator(c10::DeviceIndex index) {
  static const auto& generators = *[] {
    auto* made = new std::vector<at::Generator>;
    for (c10::DeviceIndex each = 0; each < settings().devices; ++each) {
      made->push_back(at::make_generator<DeviceGenerator>(each));
    }
    return made;
  }();
  return generators.at(static_cast<size_t>(resolved({DEVICE_TYPE, index}).index()));
}

at::Generator new_generator(c10::DeviceIndex index) {
  return at::make_generator<DeviceGenerator>(resolved({DEVICE_TYPE, index}).index());
}

at::Generator drawn_from(const at::Generator& generator) {
  TORCH_CHECK(
      generator.device().type() == DEVICE_TYPE, "Expected a 'standin' device type for generator but found '",
      generator.device().type(), "'");
  return static_cast<DeviceGenerator*>(generator.unsafeGetGeneratorImpl())->drawn();
}

DefaultDraws::DefaultDraws(const at::Generator& generator)
    : generator_(generator), kept_(at::detail::createCPUGenerator()) {
  at::CPUGeneratorImpl& host = on_host(at::detail::getDefaultCPUGenerator());
  const std::lock_guard<std::mutex> held(host.mutex_);
  take_over(on_host(kept_), host);
  take_over(host, on_host(generator_));
}

DefaultDraws::~DefaultDraws() {
  at::CPUGeneratorImpl& host = on_host(at::detail::getDefaultCPUGenerator());
  const std::lock_guard<std::mutex> held(host.mutex_);
  take_over(on_host(generator_), host);
  take_over(host, on_host(kept_));
}

}  // namespace standin
