/* The linear sketch of one part of a tensor, as defined in sketch_record.py.
 *
 * The part consists of contiguous runs of the whole: `run` elements from index `start` on, repeated for every
 * combination of the outer dimensions. Dimension d has `sizes[d]` steps that are `strides[d]` elements of the whole
 * apart. In memory the elements of the part are contiguous.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define NUMBERS 8
#define BLOCK 512
#define LANES 4
#define GOLDEN 0x9E3779B97F4A7C15ull
#define SEED 0x736B657463686564ull /* "sketched" */
#define MOST_DIMENSIONS 64

typedef double numbers __attribute__((vector_size(64)));
typedef uint64_t words __attribute__((vector_size(64)));
struct total { numbers sum, compensation; };

static inline uint64_t mix64(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

/* Return the element with the sign of each of the eight numbers, or 0 if it is not finite. */
static inline numbers signed_element(double value, uint64_t index) {
    const words shifts = {63, 62, 61, 60, 59, 58, 57, 56};
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7FF0000000000000ull) == 0x7FF0000000000000ull) bits = 0;
    uint64_t signs = mix64(SEED + (index + 1) * GOLDEN);
    words flipped = ((words){} + signs) << shifts & 0x8000000000000000ull;
    flipped ^= bits;
    numbers element;
    memcpy(&element, &flipped, sizeof element);
    return element;
}

static inline numbers absolute(numbers x) {
    words bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= 0x7FFFFFFFFFFFFFFFull;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Neumaier's sum: the part of the smaller summand that is lost is accumulated separately. */
static inline void add_block(struct total *total, numbers block) {
    numbers sum = total->sum + block;
    words larger = (words)(absolute(total->sum) >= absolute(block));
    words a, b;
    numbers lost_of_block = (total->sum - sum) + block, lost_of_sum = (block - sum) + total->sum;
    memcpy(&a, &lost_of_block, sizeof a);
    memcpy(&b, &lost_of_sum, sizeof b);
    words chosen = (a & larger) | (b & ~larger);
    numbers lost;
    memcpy(&lost, &chosen, sizeof lost);
    total->compensation += lost;
    total->sum = sum;
}

#define ANY __attribute__((aligned(1), may_alias))
typedef float f32 ANY; typedef double f64 ANY; typedef uint16_t u16 ANY;

static inline double from_f32(f32 x) { return x; }
static inline double from_f64(f64 x) { return x; }
static inline double from_bf16(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

#define DEFINE_RUN(NAME, T, LOAD)                                                                          \
    static void NAME(const unsigned char *bytes, uint64_t count, uint64_t index, struct total *total) {    \
        const T *x = (const T *)bytes;                                                                     \
        for (uint64_t at = 0; at < count; at += BLOCK) {                                                   \
            uint64_t end = count - at < BLOCK ? count : at + BLOCK, i = at;                                \
            numbers lanes[LANES] = {{0}, {0}, {0}, {0}};                                                   \
            for (; i + LANES <= end; i += LANES)                                                           \
                for (int lane = 0; lane < LANES; lane++)                                                   \
                    lanes[lane] += signed_element(LOAD(x[i + lane]), index + i + lane);                    \
            for (; i < end; i++) lanes[0] += signed_element(LOAD(x[i]), index + i);                        \
            add_block(total, (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]));                               \
        }                                                                                                  \
    }

DEFINE_RUN(run_f32, f32, from_f32)
DEFINE_RUN(run_f64, f64, from_f64)
DEFINE_RUN(run_bf16, u16, from_bf16)

static const struct { size_t size; void (*add)(const unsigned char *, uint64_t, uint64_t, struct total *); } kinds[] = {
    {4, run_f32}, {8, run_f64}, {2, run_bf16},
};

void numdrift_sketch(const unsigned char *bytes, uint64_t kind, uint64_t run, uint64_t start, uint64_t dimensions,
                     const uint64_t *sizes, const uint64_t *strides, double *out) {
    struct total total = {{0}, {0}};
    uint64_t at[MOST_DIMENSIONS] = {0}, index = start, done = 0;
    while (!done) {
        kinds[kind].add(bytes, run, index, &total);
        bytes += run * kinds[kind].size;
        done = 1;
        for (uint64_t d = dimensions; d-- > 0;) {
            index += strides[d];
            if (++at[d] < sizes[d]) { done = 0; break; }
            index -= strides[d] * sizes[d];
            at[d] = 0;
        }
    }
    numbers sum = total.sum + total.compensation;
    memcpy(out, &sum, sizeof sum);
}
