/* Digests of many tensors in one call: see digest.py for the record and digest_record.py for its layout.
 *
 * Memory is read once: a block of 4 KiB comes into the L1 cache, is hashed there, then summed there.
 * Words are little endian. Compile without -ffast-math (NaN and infinity are data here) and with
 * -ffp-contract=off (the sums must not depend on whether the CPU has fused multiply-add).
 */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define STRIPE 64  /* bytes: 8 lanes of two 32-bit words */
#define BLOCK 4096 /* bytes that come into the L1 cache, to be hashed and then summed */
#define LANES 16   /* independent sums, so that the result does not depend on the vector width */
#define GOLDEN 0x9E3779B97F4A7C15ull
#define KEY_SEED 0x6E756D6472696674ull /* "numdrift" */
#define LENGTH_FACTOR 0xD6E8FEB86659FD93ull

struct item { const void *data; uint64_t numel; uint64_t code; };
struct record { uint64_t hash, numel, nan, inf; double minimum, maximum, mean, l2; };
struct stats { uint64_t nan, inf, finite; double minimum, maximum, sum, squares; };

/* Memory of any alignment and type may stand behind a tensor. */
#define ANY __attribute__((aligned(1), may_alias))
typedef float f32 ANY;
typedef double f64 ANY;
typedef int8_t i8 ANY;
typedef int16_t i16 ANY;
typedef int32_t i32 ANY;
typedef int64_t i64 ANY;
typedef uint8_t u8 ANY;
typedef uint16_t u16 ANY;
typedef uint32_t u32 ANY;
typedef uint64_t u64 ANY;

typedef uint32_t words __attribute__((vector_size(64)));
typedef uint64_t pairs __attribute__((vector_size(64)));

static uint32_t keys[BLOCK / 4] __attribute__((aligned(64)));

static uint64_t mix64(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

__attribute__((constructor)) static void fill_keys(void) {
    uint64_t state = KEY_SEED;
    for (size_t i = 0; i < BLOCK / 4; i++) keys[i] = (uint32_t)mix64(state += GOLDEN);
}

/* Of `size` bytes, BLOCK at most. The last stripe is padded with zeros; stripes after it are not there. */
static uint64_t hash_block(const unsigned char *bytes, size_t size, uint64_t index) {
    pairs products = {0}, sums = {0};
    size_t at = 0;
    uint64_t hash = 0;
    for (; at + STRIPE <= size; at += STRIPE) {
        words w, k;
        memcpy(&w, bytes + at, STRIPE);
        memcpy(&k, (const unsigned char *)keys + at, STRIPE);
        pairs x = (pairs)(w + k);
        products += (x & 0xFFFFFFFFull) * (x >> 32);
        sums += x;
    }
    if (at < size) {
        words w = {0}, k;
        memcpy(&w, bytes + at, size - at);
        memcpy(&k, (const unsigned char *)keys + at, STRIPE);
        pairs x = (pairs)(w + k);
        products += (x & 0xFFFFFFFFull) * (x >> 32);
        sums += x;
    }
    for (size_t lane = 0; lane < STRIPE / 8; lane++)
        hash += mix64(products[lane] + mix64(sums[lane] + (index + lane) * GOLDEN));
    return hash;
}

static float from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float from_bf16(uint16_t bits) { return from_bits((uint32_t)bits << 16); }

/* No step meets a float32 subnormal, which a training that flushes subnormals would read as zero. */
static float from_f16(uint16_t bits) {
    uint32_t shifted = (uint32_t)(bits & 0x7FFF) << 13;
    uint32_t normal = shifted + (112u << 23);
    uint32_t special = shifted | 0x7F800000u;
    float subnormal = from_bits(shifted + (113u << 23)) - 0x1p-14f;
    float value = shifted >= (31u << 23) ? from_bits(special) : from_bits(normal);
    value = shifted < (1u << 23) ? subnormal : value;
    return bits & 0x8000 ? -value : value;
}

#define AS_IS(x) (x)

/* Adds `count` elements to `s`; false, with `s` as it was, if the sum of squares is not finite. T: type in
 * memory, V: type compared, A: type summed in (exact for the integers that fit), LOAD: from T to V. */
#define DEFINE_SUM(NAME, T, V, A, LOAD)                                                                    \
    static int NAME(const unsigned char *bytes, size_t count, struct stats *s) {                           \
        const T *x = (const T *)bytes;                                                                     \
        A sum[LANES] = {0}, squares[LANES] = {0};                                                          \
        V low[LANES], high[LANES];                                                                         \
        size_t i = 0;                                                                                      \
        for (size_t l = 0; l < LANES; l++) low[l] = high[l] = LOAD(x[0]);                                  \
        for (; i + LANES <= count; i += LANES)                                                             \
            for (size_t l = 0; l < LANES; l++) {                                                           \
                V v = LOAD(x[i + l]);                                                                      \
                A a = (A)v;                                                                                \
                sum[l] += a;                                                                               \
                squares[l] += a * a;                                                                       \
                low[l] = v < low[l] ? v : low[l];                                                          \
                high[l] = v > high[l] ? v : high[l];                                                       \
            }                                                                                              \
        for (size_t l = 0; i + l < count; l++) {                                                           \
            V v = LOAD(x[i + l]);                                                                          \
            A a = (A)v;                                                                                    \
            sum[l] += a;                                                                                   \
            squares[l] += a * a;                                                                           \
            low[l] = v < low[l] ? v : low[l];                                                              \
            high[l] = v > high[l] ? v : high[l];                                                           \
        }                                                                                                  \
        for (size_t half = LANES / 2; half > 0; half /= 2)                                                 \
            for (size_t l = 0; l < half; l++) {                                                            \
                sum[l] += sum[l + half];                                                                   \
                squares[l] += squares[l + half];                                                           \
                low[l] = low[l + half] < low[l] ? low[l + half] : low[l];                                  \
                high[l] = high[l + half] > high[l] ? high[l + half] : high[l];                             \
            }                                                                                              \
        if (!((double)squares[0] < INFINITY)) return 0;                                                    \
        s->finite += count;                                                                                \
        s->sum += (double)sum[0];                                                                          \
        s->squares += (double)squares[0];                                                                  \
        s->minimum = (double)low[0] < s->minimum ? (double)low[0] : s->minimum;                            \
        s->maximum = (double)high[0] > s->maximum ? (double)high[0] : s->maximum;                          \
        return 1;                                                                                          \
    }

/* The same one element at a time, for the rare block that holds NaN, infinity or squares that overflow. */
#define DEFINE_SIFT(NAME, T, LOAD)                                                                         \
    static void NAME(const unsigned char *bytes, size_t count, struct stats *s) {                          \
        const T *x = (const T *)bytes;                                                                     \
        for (size_t i = 0; i < count; i++) {                                                               \
            double v = (double)LOAD(x[i]);                                                                 \
            s->nan += isnan(v) != 0;                                                                       \
            s->inf += isinf(v) != 0;                                                                       \
            if (!isfinite(v)) continue;                                                                    \
            s->finite++;                                                                                   \
            s->sum += v;                                                                                   \
            s->squares += v * v;                                                                           \
            s->minimum = v < s->minimum ? v : s->minimum;                                                  \
            s->maximum = v > s->maximum ? v : s->maximum;                                                  \
        }                                                                                                  \
    }

DEFINE_SUM(sum_f32, f32, float, double, AS_IS)
DEFINE_SUM(sum_f64, f64, double, double, AS_IS)
DEFINE_SUM(sum_f16, u16, float, double, from_f16)
DEFINE_SUM(sum_bf16, u16, float, double, from_bf16)
DEFINE_SUM(sum_i8, i8, int8_t, int32_t, AS_IS)
DEFINE_SUM(sum_u8, u8, uint8_t, int32_t, AS_IS)
DEFINE_SUM(sum_i16, i16, int16_t, int64_t, AS_IS)
DEFINE_SUM(sum_u16, u16, uint16_t, int64_t, AS_IS)
DEFINE_SUM(sum_i32, i32, int32_t, double, AS_IS)
DEFINE_SUM(sum_u32, u32, uint32_t, double, AS_IS)
DEFINE_SUM(sum_i64, i64, int64_t, double, AS_IS)
DEFINE_SUM(sum_u64, u64, uint64_t, double, AS_IS)
DEFINE_SIFT(sift_f32, f32, AS_IS)
DEFINE_SIFT(sift_f64, f64, AS_IS)
DEFINE_SIFT(sift_f16, u16, from_f16)
DEFINE_SIFT(sift_bf16, u16, from_bf16)

struct kind {
    size_t size;
    int (*sum)(const unsigned char *, size_t, struct stats *);
    void (*sift)(const unsigned char *, size_t, struct stats *);
};

/* The low byte of an item's code counts into this table; the rest is the bytes of one element. */
static const struct kind kinds[] = {
    {1, NULL, NULL},         {4, sum_f32, sift_f32},   {8, sum_f64, sift_f64}, {2, sum_f16, sift_f16},
    {2, sum_bf16, sift_bf16}, {1, sum_i8, NULL},       {1, sum_u8, NULL},      {2, sum_i16, NULL},
    {2, sum_u16, NULL},      {4, sum_i32, NULL},       {4, sum_u32, NULL},     {8, sum_i64, NULL},
    {8, sum_u64, NULL},
};

static void digest_one(const struct item *item, struct record *out) {
    const struct kind *kind = &kinds[item->code & 0xFF];
    const unsigned char *bytes = item->data;
    size_t count = item->numel * (item->code >> 8);
    struct stats s = {0, 0, 0, INFINITY, -INFINITY, 0.0, 0.0};
    uint64_t hash = 0;
    for (size_t at = 0; at < count; at += BLOCK) {
        size_t size = count - at < BLOCK ? count - at : BLOCK;
        hash += hash_block(bytes + at, size, at / (BLOCK / 8));
        if (kind->sum && !kind->sum(bytes + at, size / kind->size, &s))
            kind->sift(bytes + at, size / kind->size, &s);
    }
    hash = mix64(hash + count * LENGTH_FACTOR);
    out->hash = hash ? hash : 1;
    out->numel = item->numel;
    out->nan = s.nan;
    out->inf = s.inf;
    out->minimum = s.finite ? s.minimum : NAN;
    out->maximum = s.finite ? s.maximum : NAN;
    out->mean = s.finite ? s.sum / (double)s.finite : NAN;
    out->l2 = kind->sum ? sqrt(s.squares) : NAN;
}

void numdrift_digest(const struct item *items, size_t count, struct record *out) {
    for (size_t i = 0; i < count; i++) digest_one(&items[i], &out[i]);
}
