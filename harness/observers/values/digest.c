/* Digests of many tensors in one call. digest.py defines them; digest_record.py defines the layout of the records.
 *
 * Memory is read once: a block of 4 KiB is loaded into the L1 cache, hashed there, and then summed there. With
 * AVX-512 or AVX2, float32, bfloat16 and float16 are hashed and summed in one loop. Words are little endian.
 */
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "fused_sums.h"
#include "lane_hash.h"
#include "plain_sums.h"
#include "strided.h"

#define LENGTH_FACTOR 0xD6E8FEB86659FD93ull
#define PART ((size_t)256 * 1024) /* bytes, whole blocks; the sums of parts are added in the order of the parts */
#define LEAST_PARTS 4             /* of a tensor that several threads share: to wake them takes some 10 us */

/* GOMP_parallel of GNU's OpenMP: execute a function with an argument in a number of threads, and wait for all. */
typedef void (*parallel_function)(void (*)(void *), void *, unsigned, unsigned);

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

struct part { struct stats stats; uint64_t hash; };

/* Return the sums over the bytes `from` to `to`, which are those of `bytes` or are gathered. */
static struct part digest_part(const struct kind *kind, const unsigned char *bytes, size_t from, size_t to,
                               struct gathering *g) {
    struct part part = {{0, 0, 0, DBL_MAX, -DBL_MAX, 0.0, 0.0}, 0};
    unsigned char gathered[BLOCK] __attribute__((aligned(64)));
    for (size_t at = from; at < to; at += BLOCK) {
        size_t size = to - at < BLOCK ? to - at : BLOCK;
        if (g) gather(g, gathered, (int64_t)(size / g->size));
        part.hash += add_block(kind, g ? gathered : bytes + at, size, at / (BLOCK / 8), &part.stats);
    }
    return part;
}

/* The parts of one contiguous tensor. Each thread takes the next one until none is left. */
struct work { const struct kind *kind; const unsigned char *bytes; size_t size, count, next; struct part *parts; };

static void take_parts(void *argument) {
    struct work *work = argument;
    for (size_t i; (i = __atomic_fetch_add(&work->next, 1, __ATOMIC_RELAXED)) < work->count;) {
        size_t from = i * PART, to = work->size - from < PART ? work->size : from + PART;
        work->parts[i] = digest_part(work->kind, work->bytes, from, to, NULL);
    }
}

static void add_part(struct part *total, const struct part *part) {
    const struct stats *s = &part->stats;
    total->hash += part->hash;
    total->stats.nan += s->nan;
    total->stats.inf += s->inf;
    merge(&total->stats, s->finite, s->sum, s->squares, s->minimum, s->maximum);
}

static void digest_one(const struct item *item, struct record *out, parallel_function parallel, unsigned threads) {
    const struct kind *kind = &kinds[item->code & 0xFF];
    size_t size = item->numel * (item->code >> 8);
    struct part total = {{0, 0, 0, DBL_MAX, -DBL_MAX, 0.0, 0.0}, 0};
    struct work work = {kind, item->data, size, (size + PART - 1) / PART, 0, NULL};
    struct gathering g;
    if (item->geometry && size) begin_gathering(&g, item->data, item->geometry, item->code >> 8);
    if (parallel && !item->geometry && work.count >= LEAST_PARTS) work.parts = malloc(work.count * sizeof *work.parts);
    if (work.parts) parallel(take_parts, &work, threads, 0);
    for (size_t i = 0; i < work.count; i++) {
        size_t from = i * PART, to = size - from < PART ? size : from + PART;
        struct part part = work.parts ? work.parts[i] : digest_part(kind, item->data, from, to, item->geometry ? &g : NULL);
        add_part(&total, &part);
    }
    free(work.parts);
    const struct stats *s = &total.stats;
    uint64_t hash = mix64(total.hash + size * LENGTH_FACTOR);
    *out = (struct record){
        hash ? hash : 1, item->numel, s->nan, s->inf, or_nan(s->finite, s->minimum), or_nan(s->finite, s->maximum),
        or_nan(s->finite, s->sum / (double)(s->finite + !s->finite)), or_nan(kind->sum != NULL, sqrt(s->squares))};
}

void numdrift_digest(const struct item *items, size_t count, struct record *out) {
    for (size_t i = 0; i < count; i++) digest_one(&items[i], &out[i], NULL, 1);
}

/* The same with the help of other threads. The records do not depend on their number. */
void numdrift_digest_in_parallel(const struct item *items, size_t count, struct record *out, parallel_function parallel,
                                 unsigned threads) {
    for (size_t i = 0; i < count; i++) digest_one(&items[i], &out[i], parallel, threads);
}
