/* Digests of many tensors in one call. digest.py defines them; digest_record.py defines the layout of the records.
 *
 * Memory is read once: a block of 4 KiB is loaded into the L1 cache, hashed there, and then summed there. With
 * AVX-512, float32, bfloat16 and float16 are hashed and summed in one loop. Words are little endian.
 *
 * digest.py compiles this with -ffinite-math-only and -fassociative-math, without which gcc does not vectorise
 * sums and minima. NaN and infinity are therefore recognised only by their bits, never by comparison: a block
 * whose sum of squares has the exponent of a non-finite number is read again.
 */
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif
#include "strided.h"

#define STRIPE 64 /* bytes: 8 lanes of two 32-bit words */
#define BLOCK 4096 /* bytes that are in the L1 cache together */
#define AHEAD 4096 /* bytes: the CPU's own prefetcher stops at the end of each page */
#define GOLDEN 0x9E3779B97F4A7C15ull
#define KEY_SEED 0x6E756D6472696674ull /* "numdrift" */
#define LENGTH_FACTOR 0xD6E8FEB86659FD93ull

/* geometry: see strided.h; NULL for a contiguous tensor. */
struct item { const void *data; uint64_t numel; uint64_t code; const int64_t *geometry; };
struct record { uint64_t hash, numel, nan, inf; double minimum, maximum, mean, l2; };
struct stats { uint64_t nan, inf, finite; double minimum, maximum, sum, squares; };

/* A tensor's memory may have any alignment and type. */
#define ANY __attribute__((aligned(1), may_alias))
typedef float f32 ANY; typedef double f64 ANY;
typedef int8_t i8 ANY; typedef uint8_t u8 ANY;
typedef int16_t i16 ANY; typedef uint16_t u16 ANY;
typedef int32_t i32 ANY; typedef uint32_t u32 ANY;
typedef int64_t i64 ANY; typedef uint64_t u64 ANY;

/* MULTIPLY: the low times the high half of each 64-bit lane, in one instruction that gcc 12 does not generate. */
#ifdef __AVX512F__
#define VECTOR 64
#define MULTIPLY(x) (pairs) _mm512_mul_epu32((__m512i)(x), (__m512i)((x) >> 32))
#elif defined(__AVX2__)
#define VECTOR 32
#define MULTIPLY(x) (pairs) _mm256_mul_epu32((__m256i)(x), (__m256i)((x) >> 32))
#else
#define VECTOR 16
#define MULTIPLY(x) (((x) & 0xFFFFFFFFull) * ((x) >> 32))
#endif
typedef uint32_t words __attribute__((vector_size(VECTOR)));
typedef uint64_t pairs __attribute__((vector_size(VECTOR)));
struct lane_sums { pairs products[STRIPE / VECTOR], sums[STRIPE / VECTOR]; };

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

/* Hash a stripe. `at` is its offset in its block. */
static inline void hash_stripe(struct lane_sums *h, const unsigned char *stripe, size_t at) {
    for (size_t i = 0; i < STRIPE / VECTOR; i++) {
        words w, k;
        memcpy(&w, stripe + i * VECTOR, VECTOR);
        memcpy(&k, (const unsigned char *)keys + at + i * VECTOR, VECTOR);
        pairs x = (pairs)(w + k);
        h->products[i] += MULTIPLY(x);
        h->sums[i] += x;
    }
}

static uint64_t finish_block(const struct lane_sums *h, uint64_t index) {
    uint64_t products[STRIPE / 8], sums[STRIPE / 8], hash = 0;
    memcpy(products, h->products, STRIPE);
    memcpy(sums, h->sums, STRIPE);
    for (size_t lane = 0; lane < STRIPE / 8; lane++)
        hash += mix64(products[lane] + mix64(sums[lane] + (index + lane) * GOLDEN));
    return hash;
}

/* Return the hash of `size` bytes, BLOCK at most. `index` counts lanes from the start of the tensor. The last
 * stripe is padded with zeros; stripes after it contribute nothing. */
static uint64_t hash_block(const unsigned char *bytes, size_t size, uint64_t index) {
    struct lane_sums h = {{{0}}, {{0}}};
    unsigned char padded[STRIPE] = {0};
    size_t at = 0;
    for (; at + STRIPE <= size; at += STRIPE) {
        __builtin_prefetch(bytes + at + AHEAD);
        hash_stripe(&h, bytes + at, at);
    }
    memcpy(padded, bytes + at, size - at);
    if (at < size) hash_stripe(&h, padded, at);
    return finish_block(&h, index);
}

static float from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float from_bf16(uint16_t bits) { return from_bits((uint32_t)bits << 16); }

/* No step computes a float32 subnormal, which a training that flushes subnormals would read as zero. */
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

/* The volatile copy prevents the compiler, which assumes finite numbers, from deciding the comparison itself. */
static uint64_t exponent_and_fraction(double value) {
    volatile double copy = value;
    uint64_t bits;
    memcpy(&bits, &(double){copy}, sizeof bits);
    return bits << 1;
}

#define NON_FINITE (0x7FFull << 53)

static void merge(struct stats *s, uint64_t count, double sum, double squares, double low, double high) {
    s->finite += count;
    s->sum += sum;
    s->squares += squares;
    s->minimum = low < s->minimum ? low : s->minimum;
    s->maximum = high > s->maximum ? high : s->maximum;
}

/* Add `count` elements to `s`. Return false, with `s` unchanged, if the sum of squares is not finite. T: type in
 * memory, V: type of comparisons, A: type of sums (exact for the narrow integers), LOAD: conversion of T to V. */
#define DEFINE_SUM(NAME, T, V, A, LOAD)                                                                    \
    static int NAME(const unsigned char *bytes, size_t count, struct stats *s) {                           \
        const T *x = (const T *)bytes;                                                                     \
        A sum = 0, squares = 0;                                                                            \
        V low = LOAD(x[0]), high = low;                                                                    \
        for (size_t i = 0; i < count; i++) {                                                               \
            V v = LOAD(x[i]);                                                                              \
            sum += (A)v;                                                                                   \
            squares += (A)v * (A)v;                                                                        \
            low = v < low ? v : low;                                                                       \
            high = v > high ? v : high;                                                                    \
        }                                                                                                  \
        if (exponent_and_fraction((double)squares) >= NON_FINITE) return 0;                                \
        merge(s, count, (double)sum, (double)squares, (double)low, (double)high);                          \
        return 1;                                                                                          \
    }

/* The same for a block with NaN or infinity, which a mask of scores has many of. Their elements are recognised by their
 * bits, those without the sign, and count as zeros. EXPONENT: the bits of infinity, FROM_BITS: conversion of T to float. */
#define DEFINE_SIFT(NAME, T, EXPONENT, FROM_BITS)                                                          \
    static void NAME(const unsigned char *bytes, size_t count, struct stats *s) {                          \
        const T *x = (const T *)bytes;                                                                     \
        double sum = 0, squares = 0;                                                                       \
        float low = FLT_MAX, high = -FLT_MAX;                                                              \
        uint32_t nan = 0, inf = 0;                                                                         \
        for (size_t i = 0; i < count; i++) {                                                               \
            uint32_t word = x[i], size = word & (EXPONENT | (EXPONENT - 1));                               \
            int finite = size < EXPONENT;                                                                  \
            float v = FROM_BITS(finite ? word : 0);                                                        \
            float least = finite ? v : FLT_MAX, most = finite ? v : -FLT_MAX;                              \
            nan += size > EXPONENT;                                                                        \
            inf += size == EXPONENT;                                                                       \
            sum += (double)v;                                                                              \
            squares += (double)v * (double)v;                                                              \
            low = least < low ? least : low;                                                               \
            high = most > high ? most : high;                                                              \
        }                                                                                                  \
        s->nan += nan;                                                                                     \
        s->inf += inf;                                                                                     \
        if (nan + inf < count) merge(s, count - nan - inf, sum, squares, low, high);                       \
    }

/* The same for float64, one element at a time: squares may overflow, too. */
static void sift_f64(const unsigned char *bytes, size_t count, struct stats *s) {
    const f64 *x = (const f64 *)bytes;
    for (size_t i = 0; i < count; i++) {
        uint64_t size = exponent_and_fraction(x[i]);
        s->nan += size > NON_FINITE;
        s->inf += size == NON_FINITE;
        if (size < NON_FINITE) merge(s, 1, x[i], x[i] * x[i], x[i], x[i]);
    }
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
DEFINE_SIFT(sift_f32, u32, 0x7F800000u, from_bits)
DEFINE_SIFT(sift_f16, u16, 0x7C00u, from_f16)
DEFINE_SIFT(sift_bf16, u16, 0x7F80u, from_bf16)

#ifdef __AVX512F__
struct lanes { __m512d sum[2], squares[2]; __m512 low, high; };

/* `first` and `second` are the halves of `v`. */
static inline void add_lanes(struct lanes *t, __m512 v, __m256 first, __m256 second) {
    __m512d a = _mm512_cvtps_pd(first), b = _mm512_cvtps_pd(second);
    t->low = _mm512_min_ps(t->low, v);
    t->high = _mm512_max_ps(t->high, v);
    t->sum[0] = _mm512_add_pd(t->sum[0], a);
    t->sum[1] = _mm512_add_pd(t->sum[1], b);
    t->squares[0] = _mm512_fmadd_pd(a, a, t->squares[0]);
    t->squares[1] = _mm512_fmadd_pd(b, b, t->squares[1]);
}

static inline void add_wide(struct lanes *t, __m512 v) {
    __m256d second = _mm512_extractf64x4_pd(_mm512_castps_pd(v), 1);
    add_lanes(t, v, _mm512_castps512_ps256(v), _mm256_castpd_ps(second));
}

static inline void add_f32(struct lanes *t, const unsigned char *p) {
    const float *x = (const float *)p;
    add_lanes(t, _mm512_loadu_ps(x), _mm256_loadu_ps(x), _mm256_loadu_ps(x + 8));
}

static inline __m512 load_bf16(const unsigned char *p) {
    __m256i half = _mm256_loadu_si256((const __m256i *)p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

#define LOAD_F16(p) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(p)))
#define ADD_BF16(t, p) (add_wide(t, load_bf16(p)), add_wide(t, load_bf16((p) + 32)))
#define ADD_F16(t, p) (add_wide(t, LOAD_F16(p)), add_wide(t, LOAD_F16((p) + 32)))

/* Hash and sum one whole BLOCK in one loop. `summed` is false where DEFINE_SUM would return false. */
#define DEFINE_FUSED(NAME, ADD, COUNT)                                                                     \
    static uint64_t NAME(const unsigned char *bytes, uint64_t index, struct stats *s, int *summed) {       \
        struct lanes t = {{{0}}, {{0}}, _mm512_set1_ps(FLT_MAX), _mm512_set1_ps(-FLT_MAX)};                \
        struct lane_sums h = {{{0}}, {{0}}};                                                               \
        for (size_t at = 0; at < BLOCK; at += STRIPE) {                                                    \
            __builtin_prefetch(bytes + at + AHEAD);                                                        \
            hash_stripe(&h, bytes + at, at);                                                               \
            ADD(&t, bytes + at);                                                                           \
        }                                                                                                  \
        double squares = _mm512_reduce_add_pd(_mm512_add_pd(t.squares[0], t.squares[1]));                  \
        double sum = _mm512_reduce_add_pd(_mm512_add_pd(t.sum[0], t.sum[1]));                              \
        *summed = exponent_and_fraction(squares) < NON_FINITE;                                             \
        if (*summed)                                                                                       \
            merge(s, COUNT, sum, squares, _mm512_reduce_min_ps(t.low), _mm512_reduce_max_ps(t.high));      \
        return finish_block(&h, index);                                                                    \
    }

DEFINE_FUSED(fused_f32, add_f32, BLOCK / 4)
DEFINE_FUSED(fused_bf16, ADD_BF16, BLOCK / 2)
DEFINE_FUSED(fused_f16, ADD_F16, BLOCK / 2)
#define FUSED(name) name
#else
#define FUSED(name) NULL
#endif

struct kind {
    size_t size;
    int (*sum)(const unsigned char *, size_t, struct stats *);
    void (*sift)(const unsigned char *, size_t, struct stats *);
    uint64_t (*fused)(const unsigned char *, uint64_t, struct stats *, int *);
};

/* The low byte of an item's code is an index of this table; the rest is the number of bytes of one element. */
static const struct kind kinds[] = {
    {1, NULL, NULL, NULL},
    {4, sum_f32, sift_f32, FUSED(fused_f32)}, {8, sum_f64, sift_f64, NULL},
    {2, sum_f16, sift_f16, FUSED(fused_f16)}, {2, sum_bf16, sift_bf16, FUSED(fused_bf16)},
    {1, sum_i8, NULL, NULL}, {1, sum_u8, NULL, NULL}, {2, sum_i16, NULL, NULL}, {2, sum_u16, NULL, NULL},
    {4, sum_i32, NULL, NULL}, {4, sum_u32, NULL, NULL}, {8, sum_i64, NULL, NULL}, {8, sum_u64, NULL, NULL},
};

static uint64_t add_block(const struct kind *kind, const unsigned char *bytes, size_t size, uint64_t index,
                          struct stats *s) {
    uint64_t hash;
    int summed = 1;
    if (size == BLOCK && kind->fused) {
        hash = kind->fused(bytes, index, s, &summed);
    } else {
        hash = hash_block(bytes, size, index);
        if (kind->sum) summed = kind->sum(bytes, size / kind->size, s);
    }
    if (!summed) kind->sift(bytes, size / kind->size, s);
    return hash;
}

static double or_nan(uint64_t present, double value) {
    if (!present) memcpy(&value, &(uint64_t){0x7FF8000000000000ull}, sizeof value);
    return value;
}

static void digest_one(const struct item *item, struct record *out) {
    const struct kind *kind = &kinds[item->code & 0xFF];
    const unsigned char *bytes = item->data;
    size_t count = item->numel * (item->code >> 8);
    struct stats s = {0, 0, 0, DBL_MAX, -DBL_MAX, 0.0, 0.0};
    uint64_t hash = 0;
    struct gathering g;
    unsigned char gathered[BLOCK] __attribute__((aligned(64)));
    if (item->geometry && count) begin_gathering(&g, bytes, item->geometry, item->code >> 8);
    for (size_t at = 0; at < count; at += BLOCK) {
        size_t size = count - at < BLOCK ? count - at : BLOCK;
        if (item->geometry) gather(&g, gathered, (int64_t)(size / (item->code >> 8)));
        hash += add_block(kind, item->geometry ? gathered : bytes + at, size, at / (BLOCK / 8), &s);
    }
    hash = mix64(hash + count * LENGTH_FACTOR);
    *out = (struct record){
        hash ? hash : 1, item->numel, s.nan, s.inf, or_nan(s.finite, s.minimum), or_nan(s.finite, s.maximum),
        or_nan(s.finite, s.sum / (double)(s.finite + !s.finite)), or_nan(kind->sum != NULL, sqrt(s.squares))};
}

void numdrift_digest(const struct item *items, size_t count, struct record *out) {
    for (size_t i = 0; i < count; i++) digest_one(&items[i], &out[i]);
}
