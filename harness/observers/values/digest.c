/* Digests of many tensors in one call. digest.py defines them; digest_record.py defines the layout of the records.
 *
 * Memory is read once: a block of 4 KiB is loaded into the L1 cache, hashed there, and then summed there. With
 * AVX-512 or AVX2, float32, bfloat16 and float16 are hashed and summed in one loop. Words are little endian.
 */
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "fused_sums.h"
#include "lane_hash.h"
#include "plain_sums.h"
#include "strided.h"

#define LENGTH_FACTOR 0xD6E8FEB86659FD93ull

/* geometry: see strided.h; NULL for a contiguous tensor. */
struct item { const void *data; uint64_t numel; uint64_t code; const int64_t *geometry; };
struct record { uint64_t hash, numel, nan, inf; double minimum, maximum, mean, l2; };

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
