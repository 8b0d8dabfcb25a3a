/* Statistics of the elements of a block, of each dtype.
 *
 * digest.py compiles this with -ffinite-math-only and -fassociative-math, without which gcc does not vectorise
 * sums and minima. NaN and infinity are therefore recognised only by their bits, never by comparison: a block
 * whose sum of squares has the exponent of a non-finite number is read again.
 */
#pragma once
#include <float.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct stats { uint64_t nan, inf, finite; double minimum, maximum, sum, squares; };

/* A tensor's memory may have any alignment and type. */
#define ANY __attribute__((aligned(1), may_alias))
typedef float f32 ANY; typedef double f64 ANY;
typedef int8_t i8 ANY; typedef uint8_t u8 ANY;
typedef int16_t i16 ANY; typedef uint16_t u16 ANY;
typedef int32_t i32 ANY; typedef uint32_t u32 ANY;
typedef int64_t i64 ANY; typedef uint64_t u64 ANY;

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
