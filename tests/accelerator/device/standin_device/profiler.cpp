// Times of the device for torch.profiler: what the queue ran is told to Kineto, each kernel with the op that launched it.
#include "standin.h"

#include <c10/util/ApproximateClock.h>
#include <libkineto.h>
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <memory>
#include <mutex>
#include <set>
#include <vector>

namespace standin {
namespace {

using libkineto::ActivityType;

// One profile, from start to stop.
class Session final : public libkineto::IActivityProfilerSession {
 public:
  void start() override {
    begin_ = c10::getTime();
    observe_kernels([this](const KernelRecord& record) { records_.push_back(record); });
    status_ = libkineto::TraceStatus::RECORDING;
  }
  void stop() override {
    observe_kernels({});
    end_ = c10::getTime();
    status_ = libkineto::TraceStatus::PROCESSING;
  }
  std::vector<std::string> errors() override { return {}; }
  void processTrace(libkineto::ActivityLogger&) override {}
  void processTrace(
      libkineto::ActivityLogger& logger, libkineto::getLinkedActivityCallback linked, int64_t, int64_t) override;
  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override { return nullptr; }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override { return {}; }
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override { return std::move(buffer_); }
  void pushCorrelationId(uint64_t id) override { push_correlation(id); }
  void popCorrelationId() override { pop_correlation(); }

 private:
  std::vector<KernelRecord> records_;
  int64_t begin_ = 0, end_ = 0;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_;
};

void Session::processTrace(
    libkineto::ActivityLogger& logger, libkineto::getLinkedActivityCallback linked, int64_t, int64_t) {
  buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
  buffer_->span = libkineto::TraceSpan(begin_, end_, "standin");
  for (const KernelRecord& record : records_) {
    const ActivityType type = record.copies ? ActivityType::GPU_MEMCPY : ActivityType::CONCURRENT_KERNEL;
    buffer_->emplace_activity(buffer_->span, type, record.name);
    auto& activity = libkineto::CpuTraceBuffer::toRef(buffer_->activities.back());
    activity.startTime = record.begin;
    activity.endTime = record.end;
    activity.device = record.device;
    activity.resource = 0;
    activity.id = static_cast<int32_t>(record.correlation);
    activity.flow.id = static_cast<uint32_t>(record.correlation);
    activity.flow.type = libkineto::kLinkAsyncCpuGpu;
    activity.flow.start = 0;
    activity.linked = linked(static_cast<int32_t>(record.correlation));
    activity.log(logger);
  }
}

class Profiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override { return name_; }
  const std::set<ActivityType>& availableActivities() const override { return types_; }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      const std::set<ActivityType>& wanted, const libkineto::Config&) override {
    return wanted.count(ActivityType::CONCURRENT_KERNEL) != 0 ? std::make_unique<Session>() : nullptr;
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      int64_t, int64_t, const std::set<ActivityType>& wanted, const libkineto::Config& config) override {
    return configure(wanted, config);
  }

 private:
  std::string name_ = "standin";
  std::set<ActivityType> types_{ActivityType::CONCURRENT_KERNEL, ActivityType::GPU_MEMCPY};
};

REGISTER_PRIVATEUSE1_PROFILER(Profiler);

// Times by events, for torch.autograd.profiler.profile(use_device="standin", use_kineto=False).
class Stubs final : public torch::profiler::impl::ProfilerStubs {
 public:
  using Event = torch::profiler::impl::ProfilerVoidEventStub;

  void record(c10::DeviceIndex* device, Event* event, int64_t* host) const override {
    auto reached = std::make_shared<int64_t>(0);
    if (device != nullptr) {
      *device = current_device().index();
    }
    if (host != nullptr) {
      *host = c10::getTime();
    }
    *event = reached;
    enqueue([reached] { *reached = c10::getTime(); });
  }
  float elapsed(const Event* from, const Event* to) const override {  // microseconds
    synchronize();
    const auto* begin = static_cast<const int64_t*>(from->get());
    const auto* end = static_cast<const int64_t*>(to->get());
    return static_cast<float>(*end - *begin) / 1e3F;
  }
  void mark(const char*) const override {}
  void rangePush(const char*) const override {}
  void rangePop() const override {}
  bool enabled() const override { return true; }
  void onEachDevice(std::function<void(int)> act) const override { act(current_device().index()); }
  void synchronize() const override { standin::synchronize(); }
};

const bool profiled = [] {
  torch::profiler::impl::registerPrivateUse1Methods(new Stubs);
  return true;
}();

}  // namespace
}  // namespace standin
