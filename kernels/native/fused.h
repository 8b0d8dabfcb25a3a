/* a * b + c with one rounding, to nearest even.
 *
 * Where the CPU has no such instruction, or with -DNUMDRIFT_EMULATE_FMA, the same bits by rounding to odd: an
 * intermediate result that is not exact gets an odd last bit, after which a second rounding, to at least two
 * bits less, can no longer go wrong. Source: S. Boldo, G. Melquiond, Emulation of FMA and correctly rounded
 * sums: proved algorithms using rounding to odd, IEEE Transactions on Computers 57(4), 2008.
 */
#ifndef NUMDRIFT_FUSED_H
#define NUMDRIFT_FUSED_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if !defined(NUMDRIFT_EMULATE_FMA) && (defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(__FP_FAST_FMAF))
#define NUMDRIFT_HARDWARE_FMA 1
static inline float fused_float32(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline double fused_float64(double a, double b, double c) { return __builtin_fma(a, b, c); }
#else
#define NUMDRIFT_HARDWARE_FMA 0

/* The product of two floats is exact in double (48 of 53 bits). The sum is rounded to odd with the help of its
 * error (D. Knuth's TwoSum); 53 bits are enough above the 24 of a float, subnormal ones included. */
static inline float fused_float32(float a, float b, float c) {
    double product = (double)a * (double)b, addend = c, sum = product + addend;
    double part = sum - product;
    double error = (product - (sum - part)) + (addend - part);
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    if (isfinite(sum) && error != 0.0 && !(bits & 1)) bits += (error > 0.0) == (sum > 0.0) ? 1 : -1;
    memcpy(&sum, &bits, sizeof sum);
    return (float)sum;
}

typedef unsigned __int128 fused_wide;

/* value = mantissa * 2**exponent with 53 bits in the mantissa; value is finite and not zero. */
static inline uint64_t fused_parts(double value, int *exponent) {
    double fraction = frexp(fabs(value), exponent);
    *exponent -= 53;
    return (uint64_t)ldexp(fraction, 53);
}

/* x / 2**places, rounded to odd. */
static inline fused_wide fused_shift(fused_wide x, int places) {
    if (places <= 0) return x;
    if (places > 127) return x != 0;
    return (x >> places) | ((x & (((fused_wide)1 << places) - 1)) != 0);
}

/* magnitude * 2**exponent as a double: rounded once, at the last place that a double of this size has. */
static inline double fused_round(fused_wide magnitude, int exponent) {
    int length = 0, last;
    for (fused_wide rest = magnitude; rest; rest >>= 1) length++;
    last = exponent + length - 53 > -1074 ? exponent + length - 53 : -1074;
    if (last <= exponent) return ldexp((double)(uint64_t)(magnitude << (exponent - last)), last);
    /* two bits below the last place: a half, and whether there is anything below that */
    magnitude = last - exponent == 1 ? magnitude << 1 : fused_shift(magnitude, last - exponent - 2);
    uint64_t whole = (uint64_t)(magnitude >> 2), rest = (uint64_t)(magnitude & 3);
    if (rest == 3 || (rest == 2 && (whole & 1))) whole++;
    return ldexp((double)whole, last);
}

/* Both the product (106 bits) and the addend (53 bits) are moved to the top of 126 bits, so that only the smaller
 * one ever loses bits, and only where the sum keeps more than two bits below its last place. */
static inline double fused_float64(double a, double b, double c) {
    if (!isfinite(a) || !isfinite(b)) return a * b + c;
    if (!isfinite(c)) return c + c;
    if (a == 0.0 || b == 0.0) return a * b + c;
    int ea, eb, ec = 0;
    fused_wide product = (fused_wide)fused_parts(a, &ea) * fused_parts(b, &eb) << 20;
    fused_wide addend = c == 0.0 ? 0 : (fused_wide)fused_parts(c, &ec) << 72;
    int ep = ea + eb - 20, exponent;
    ec = c == 0.0 ? ep : ec - 72;
    exponent = ep > ec ? ep : ec;
    product = fused_shift(product, exponent - ep);
    addend = fused_shift(addend, exponent - ec);
    int below = (signbit(a) != 0) != (signbit(b) != 0), addend_below = signbit(c) != 0;
    if (below == addend_below) product += addend;
    else if (product >= addend) product -= addend;
    else product = addend - product, below = addend_below;
    if (!product) return 0.0;
    double result = fused_round(product, exponent);
    return below ? -result : result;
}
#endif
#endif
