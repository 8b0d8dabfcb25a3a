/* The distance between two float32 arrays in one pass; distance.py states what each number means.
 *
 * Sums are kept in LANES independent double-precision sums, whatever the width of the CPU's vectors, and without fused
 * multiply-adds: the same values give the same result on every machine. The square of a float32 neither overflows nor
 * vanishes in double precision. The inner loop over the lanes has no branch, so that the compiler vectorises it.
 */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LANES 32
#define INFINITE 0x7f800000u

struct distance {
    double difference_squares; /* of finite differences */
    double reference_squares;  /* of finite elements of a */
    double largest_difference; /* infinity if an element is non-finite on one side only, or differently on both */
    double largest_reference;  /* of the finite magnitudes of a */
    uint64_t differing;
    uint64_t ulp;              /* the largest distance of two elements of which none is NaN */
    uint64_t lone_nan;         /* 1 if an element is NaN on one side only */
};

struct lanes {
    double difference_squares[LANES], reference_squares[LANES], difference[LANES];
    uint32_t reference[LANES], differing[LANES], ulp[LANES], lone_nan[LANES];
};

static inline uint32_t choose(uint32_t mask, uint32_t then, uint32_t otherwise) {
    return (then & mask) | (otherwise & ~mask);
}

static void add_row(struct lanes *restrict sums, const char *restrict bytes_a, const char *restrict bytes_b) {
    uint32_t a[LANES], b[LANES];
    double x[LANES], difference[LANES];
    /* The elements may begin at any byte of a file. */
    memcpy(a, bytes_a, sizeof a);
    memcpy(b, bytes_b, sizeof b);
    for (int i = 0; i < LANES; i++) {
        uint32_t left = a[i] & 0x7fffffffu, right = b[i] & 0x7fffffffu;
        uint32_t nan_left = -(uint32_t)(left > INFINITE), nan_right = -(uint32_t)(right > INFINITE);
        uint32_t opposite = -((a[i] ^ b[i]) >> 31), both_nan = nan_left & nan_right;
        uint32_t apart = left > right ? left - right : right - left;
        /* The sum of two magnitudes is at most 2 * INFINITE, which fits into 32 bits. */
        uint32_t steps = choose(opposite, left + right, apart) & ~(nan_left | nan_right);
        sums->ulp[i] = steps > sums->ulp[i] ? steps : sums->ulp[i];
        sums->lone_nan[i] |= nan_left ^ nan_right;
        sums->differing[i] -= -(uint32_t)(a[i] != b[i]) & ~both_nan;
        uint32_t finite = left & -(uint32_t)(left < INFINITE);
        sums->reference[i] = finite > sums->reference[i] ? finite : sums->reference[i];
        /* Where nothing differs, both become 0, and the difference of two equal infinities is 0, not NaN. */
        uint32_t same = both_nan | -(uint32_t)(a[i] == b[i]);
        uint32_t bits_a = a[i] & ~same, bits_b = b[i] & ~same;
        float value_a, value_b, value_reference;
        memcpy(&value_a, &bits_a, 4);
        memcpy(&value_b, &bits_b, 4);
        memcpy(&value_reference, &finite, 4);
        x[i] = value_reference;
        difference[i] = fabs((double)value_a - (double)value_b);
    }
    for (int i = 0; i < LANES; i++) {
        sums->reference_squares[i] += x[i] * x[i];
        /* A NaN, such as inf - NaN, compares false and leaves the largest difference; `lone_nan` tells of it. */
        sums->difference[i] = difference[i] > sums->difference[i] ? difference[i] : sums->difference[i];
        sums->difference_squares[i] += difference[i] * difference[i];
    }
}

static void add_lanes(struct distance *result, struct lanes *sums) {
    for (int i = 0; i < LANES; i++) {
        float reference;
        memcpy(&reference, &sums->reference[i], 4);
        result->difference_squares += sums->difference_squares[i];
        result->reference_squares += sums->reference_squares[i];
        result->largest_difference = fmax(result->largest_difference, sums->difference[i]);
        result->largest_reference = fmax(result->largest_reference, reference);
        result->differing += sums->differing[i];
        result->ulp = sums->ulp[i] > result->ulp ? sums->ulp[i] : result->ulp;
        result->lone_nan |= sums->lone_nan[i] & 1;
    }
}

void numdrift_distance(const char *a, const char *b, size_t count, struct distance *result) {
    memset(result, 0, sizeof *result);
    struct lanes sums;
    size_t at = 0;
    while (at < count) {
        memset(&sums, 0, sizeof sums);
        /* Rounding errors of a sum grow with its length, and a lane counts in 32 bits: sums are taken in pieces. */
        size_t end = count - at > LANES * 4096 ? at + LANES * 4096 : count;
        for (; at + LANES <= end; at += LANES)
            add_row(&sums, a + 4 * at, b + 4 * at);
        if (end == count && at < count) {
            uint32_t last_a[LANES] = {0}, last_b[LANES] = {0};
            memcpy(last_a, a + 4 * at, (count - at) * 4);
            memcpy(last_b, b + 4 * at, (count - at) * 4);
            add_row(&sums, (const char *)last_a, (const char *)last_b);
            at = count;
        }
        add_lanes(result, &sums);
    }
}
