/* Records the ops of a training without Python: a fallback of torch's dispatcher that digests what each op returns.
 *
 * native_ops.py compiles this with the headers of the torch that is running, and describes the functions at the end. The
 * fallback belongs to the dispatch key `Fake`, which lies below autograd and below Python's dispatch modes. The key is
 * in the set of a thread's included keys only while that thread records, so other threads do not come here. No tensor
 * is kept beyond its call, and a call executes as it does without the fallback. The lines are those of operation_recorder.py.
 */
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

using Tensors = c10::SmallVector<at::Tensor, 8>;

/* The types of digest.c. */
struct Item { const void *data; uint64_t numel, code; const int64_t *geometry; };
struct Record { uint64_t hash, numel, nan, inf; double minimum, maximum, mean, l2; };
using Parallel = void (*)(void (*)(void *), void *, unsigned, unsigned);
using Digest = void (*)(const Item *, size_t, Record *, Parallel, unsigned);

constexpr auto KEY = c10::DispatchKey::Fake;
constexpr size_t FLUSH_AT = 1 << 16;           /* bytes of lines, as in operation_recorder.py */
constexpr size_t RELEASE_AFTER = 1 << 20;      /* as in journal_writing.py */
constexpr size_t DESCRIPTIONS_KEPT = 10000;    /* as in operation_recorder.py */
constexpr int64_t MOST_DIMENSIONS = 64;        /* of strided.h */
constexpr int DTYPES = 256;

struct Recording {
    std::atomic<bool> active{false};
    std::mutex lock; /* guards everything below: several threads of autograd may record */
    int file = -1;
    int64_t step = 0, index = 0;
    uint64_t phase = 0;
    std::vector<std::string> phases; /* each as JSON */
    std::unordered_map<std::string, std::string> descriptions;
    std::string key, pending, failure;
    size_t cached = 0; /* bytes that are written, and not yet released from the page cache */
    int error = 0; /* errno of a failed write */
};

Recording recording;
Digest digest;
Parallel parallel; /* of the OpenMP whose threads torch uses, nullptr if it has none */
uint64_t all_codes[DTYPES], plain_codes[DTYPES]; /* row of `kinds` in digest.c | bytes of an element << 8; 0: none */

bool dispatches_itself(const at::Tensor &tensor) { return tensor.key_set().has(c10::DispatchKey::Python); }

bool has_memory(const at::Tensor &tensor) {
    return !tensor.numel() || (tensor.storage().nbytes() && tensor.const_data_ptr());
}

/* A contiguous CPU tensor with the elements of `tensor`, which is undefined if they cannot be read. */
at::Tensor plain_copy(const at::Tensor &tensor) {
    if (tensor.is_meta() || dispatches_itself(tensor)) return {};
    try {
        at::NoGradGuard without_graph;
        at::Tensor plain = tensor.detach();
        if (plain.layout() != at::kStrided) plain = plain.to_dense();
        if (plain.is_quantized()) plain = plain.int_repr();
        if (!has_memory(plain)) return {};
        plain = plain.resolve_conj().resolve_neg().contiguous().cpu();
        return has_memory(plain) ? plain : at::Tensor();
    } catch (const std::exception &) {
        return {};
    }
}

/* The record of a tensor. An ordinary CPU tensor is read in place, another one is copied first. */
Record record_of(const at::Tensor &tensor) {
    int dtype = static_cast<int>(tensor.scalar_type());
    Item item{nullptr, 0, plain_codes[dtype], nullptr};
    Record record;
    int64_t geometry[1 + 2 * MOST_DIMENSIONS];
    at::Tensor read = tensor;
    bool strided = item.code && tensor.is_cpu() && tensor.layout() == at::kStrided && !dispatches_itself(tensor) &&
                   !tensor.is_neg() && !tensor.is_nested() && tensor.dim() <= MOST_DIMENSIONS && has_memory(tensor);
    if (!strided) {
        read = plain_copy(tensor);
        if (!read.defined()) {
            double nan = std::numeric_limits<double>::quiet_NaN();
            return {0, static_cast<uint64_t>(tensor.numel()), 0, 0, nan, nan, nan, nan};
        }
        item.code = all_codes[static_cast<int>(read.scalar_type())];
        if (!item.code) item.code = static_cast<uint64_t>(read.element_size()) << 8;
    } else if (!read.is_contiguous()) {
        geometry[0] = read.dim();
        std::copy(read.sizes().begin(), read.sizes().end(), geometry + 1);
        std::copy(read.strides().begin(), read.strides().end(), geometry + 1 + read.dim());
        item.geometry = geometry;
    }
    item.numel = static_cast<uint64_t>(read.numel());
    item.data = item.numel ? read.const_data_ptr() : nullptr;
    /* These threads wait for the next op, and no others are started. */
    int threads = at::in_parallel_region() ? 1 : at::get_num_threads();
    digest(&item, 1, &record, threads > 1 ? parallel : nullptr, static_cast<unsigned>(threads));
    return record;
}

/* Add the defined tensors of a value. Where autograd has made a tensor of a number, Python's modes see the number. */
void collect(const c10::IValue &value, Tensors &tensors, bool numbers) {
    auto add = [&](const at::Tensor &tensor) {
        if (tensor.defined() && (numbers || !tensor.unsafeGetTensorImpl()->is_wrapped_number())) tensors.push_back(tensor);
    };
    if (value.isTensor()) {
        add(value.toTensor());
    } else if (value.isTensorList()) {
        for (const at::Tensor &tensor : value.toTensorList()) add(tensor);
    } else if (value.isList()) {
        for (const c10::IValue &element : value.toListRef()) collect(element, tensors, numbers);
    } else if (value.isTuple()) {
        for (const c10::IValue &element : value.toTupleRef().elements()) collect(element, tensors, numbers);
    }
}

void add_number(std::string &text, int64_t number) { text.append(reinterpret_cast<const char *>(&number), sizeof number); }

void add_signature(std::string &key, const Tensors &tensors) {
    add_number(key, static_cast<int64_t>(tensors.size()));
    for (const at::Tensor &tensor : tensors) {
        add_number(key, static_cast<int64_t>(tensor.scalar_type()) << 32 | tensor.dim());
        for (int64_t size : tensor.sizes()) add_number(key, size);
    }
}

void describe(std::string &text, const Tensors &tensors) {
    const char *before = "";
    for (const at::Tensor &tensor : tensors) {
        text.append(before).append("[\"").append(c10::getDtypeNames(tensor.scalar_type()).first).append("\",[");
        before = "";
        for (int64_t size : tensor.sizes()) {
            text.append(before).append(std::to_string(size));
            before = ",";
        }
        text.append("]]");
        before = ",";
    }
}

/* The part of a line that other calls may share. */
std::string description(const c10::FunctionSchema &schema, const Tensors &inputs, const Tensors &outputs) {
    std::string name = schema.name(), text = "\"phase\":" + recording.phases[recording.phase] + ",\"op\":\"";
    name.replace(name.find("::"), 2, ".");
    text.append(name).append(".").append(schema.overload_name().empty() ? "default" : schema.overload_name());
    text.append("\",\"inputs\":[");
    describe(text, inputs);
    text.append("],\"outputs\":[");
    describe(text, outputs);
    return text.append("]");
}

void add_hexadecimal(std::string &text, const Record &record) {
    static const char digits[] = "0123456789abcdef";
    const auto *bytes = reinterpret_cast<const unsigned char *>(&record);
    char hexadecimal[2 * sizeof record];
    for (size_t i = 0; i < sizeof record; i++) {
        hexadecimal[2 * i] = digits[bytes[i] >> 4];
        hexadecimal[2 * i + 1] = digits[bytes[i] & 15];
    }
    text.append(hexadecimal, sizeof hexadecimal);
}

/* Write the pending lines. If that fails, the file stays as it was, and `error` says why. */
void write_pending() {
    const char *from = recording.pending.data();
    size_t left = recording.pending.size();
    while (left && !recording.error) {
        ssize_t written = write(recording.file, from, left);
        if (written >= 0) {
            from += written;
            left -= static_cast<size_t>(written);
        } else if (errno != EINTR) {
            recording.error = errno;
            off_t end = lseek(recording.file, 0, SEEK_END);
            /* A line that is written in part would make all later ones unreadable. */
            (void)!(end >= 0 && ftruncate(recording.file, end - (from - recording.pending.data())));
            recording.active = false;
        }
    }
    recording.cached += recording.pending.size();
    if (recording.cached >= RELEASE_AFTER) recording.cached = 0, posix_fadvise(recording.file, 0, 0, POSIX_FADV_DONTNEED);
    recording.pending.clear();
}

void add_line(const c10::FunctionSchema &schema, const Tensors &inputs, const Tensors &outputs) {
    c10::SmallVector<Record, 4> records;
    for (const at::Tensor &output : outputs) records.push_back(record_of(output));
    std::lock_guard<std::mutex> locked(recording.lock);
    if (!recording.active) return;
    std::string &key = recording.key, &lines = recording.pending;
    key.clear();
    add_number(key, static_cast<int64_t>(recording.phase));
    add_number(key, reinterpret_cast<int64_t>(&schema));
    add_signature(key, inputs);
    add_signature(key, outputs);
    auto found = recording.descriptions.find(key);
    if (found == recording.descriptions.end()) {
        if (recording.descriptions.size() >= DESCRIPTIONS_KEPT) recording.descriptions.clear();
        found = recording.descriptions.emplace(key, description(schema, inputs, outputs)).first;
    }
    lines.append("{\"step\":").append(std::to_string(recording.step));
    lines.append(",\"index\":").append(std::to_string(recording.index++)).append(",").append(found->second);
    const char *before = ",\"digests\":[\"";
    for (const Record &record : records) {
        lines.append(before);
        add_hexadecimal(lines, record);
        before = "\",\"";
    }
    lines.append(records.empty() ? "}\n" : "\"]}\n");
    if (lines.size() >= FLUSH_AT) write_pending();
}

/* Profilers and TorchScript insert such ops, which compute nothing. */
bool is_idle(const std::string &name) { return !name.compare(0, 10, "profiler::") || !name.compare(0, 6, "prim::"); }

void call(const c10::OperatorHandle &op, c10::DispatchKeySet keys, torch::jit::Stack *stack) {
    const auto below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, KEY);
    /* Where Python's modes see nothing, numdrift itself executes ops. */
    bool hidden = c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::Python);
    c10::impl::ExcludeDispatchKeyGuard once(KEY); /* the ops that this op's kernel calls are part of this op */
    const c10::FunctionSchema &schema = op.schema();
    if (hidden || !recording.active || is_idle(schema.name())) return op.redispatchBoxed(below, stack);
    Tensors inputs, outputs;
    for (const c10::IValue &value : torch::jit::last(*stack, schema.arguments().size())) collect(value, inputs, false);
    op.redispatchBoxed(below, stack);
    try {
        for (const c10::IValue &value : torch::jit::last(*stack, schema.returns().size())) collect(value, outputs, true);
        add_line(schema, inputs, outputs);
    } catch (const std::exception &error) {
        std::lock_guard<std::mutex> locked(recording.lock);
        recording.active = false;
        recording.failure = error.what();
    }
}

std::unique_ptr<torch::Library> registered;

}  // namespace

extern "C" {

/* Install the fallback. A row of the arrays belongs to one dtype; NULL ends the names. Return the error, "" for none. */
const char *numdrift_ops_install(Digest function, const char *const *names, const uint64_t *plain, const uint64_t *all) {
    static std::string error;
    try {
        if (c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(KEY)) return "the dispatch key Fake is in use";
        for (int dtype = 0; dtype < static_cast<int>(c10::ScalarType::NumOptions); dtype++) {
            auto type = static_cast<c10::ScalarType>(dtype);
            if (type == c10::ScalarType::Undefined) continue;
            auto name = c10::getDtypeNames(type).first;
            for (int row = 0; names[row]; row++)
                if (name == names[row]) plain_codes[dtype] = plain[row], all_codes[dtype] = all[row];
        }
        digest = function;
        parallel = reinterpret_cast<Parallel>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
        registered = std::make_unique<torch::Library>(torch::Library::IMPL, "_", KEY, __FILE__, __LINE__);
        registered->fallback(torch::CppFunction::makeFromBoxedFunction<&call>());
        return "";
    } catch (const std::exception &raised) {
        return (error = raised.what()).c_str();
    }
}

void numdrift_ops_enter(int file, int64_t step) {
    std::lock_guard<std::mutex> locked(recording.lock);
    recording.file = file;
    recording.step = step;
    recording.index = 0;
    recording.failure.clear();
    recording.error = 0;
    recording.active = true;
    c10::impl::tls_set_dispatch_key_included(KEY, true);
}

/* Return the next op's index, which is the number of recorded ops. */
int64_t numdrift_ops_leave(void) {
    std::lock_guard<std::mutex> locked(recording.lock);
    c10::impl::tls_set_dispatch_key_included(KEY, false);
    recording.active = false;
    write_pending();
    return recording.index;
}

/* `phase` is a JSON text. */
void numdrift_ops_phase(const char *phase) {
    std::lock_guard<std::mutex> locked(recording.lock);
    for (recording.phase = 0; recording.phase < recording.phases.size(); recording.phase++)
        if (recording.phases[recording.phase] == phase) return;
    recording.phases.emplace_back(phase);
}

/* Also undo what autograd may have restored in this thread after `numdrift_ops_leave`. */
void numdrift_ops_hide(void) { c10::impl::tls_set_dispatch_key_included(KEY, false); }

/* In a fork, the lock may be held by a thread that does not exist there. */
void numdrift_ops_forget(void) { recording.active = false; }

int numdrift_ops_error(void) { return recording.error; }

const char *numdrift_ops_failure(void) { return recording.failure.c_str(); }
}
