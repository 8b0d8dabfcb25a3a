/* The hash of a block, which digest.py defines. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif

#define STRIPE 64 /* bytes: 8 lanes of two 32-bit words */
#define BLOCK 4096 /* bytes that are in the L1 cache together */
#define AHEAD 4096 /* bytes: the CPU's own prefetcher stops at the end of each page */
#define LANES (STRIPE / 8)
#define GOLDEN 0x9E3779B97F4A7C15ull
#define KEY_SEED 0x6E756D6472696674ull /* "numdrift" */

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
#define VECTORS (STRIPE / VECTOR)
typedef uint32_t words __attribute__((vector_size(VECTOR)));
typedef uint64_t pairs __attribute__((vector_size(VECTOR)));
struct lane_sums { pairs products, sums; }; /* of the lanes of one vector of each stripe */

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

/* Hash a vector. `at` is its offset in its block. */
static inline void hash_vector(struct lane_sums *h, const unsigned char *bytes, size_t at) {
    words w, k;
    memcpy(&w, bytes, VECTOR);
    memcpy(&k, (const unsigned char *)keys + at, VECTOR);
    pairs x = (pairs)(w + k);
    h->products += MULTIPLY(x);
    h->sums += x;
}

/* Return what VECTORS sums add to the hash. `index` is the number of the block's first lane. */
static uint64_t finish_block(const struct lane_sums *h, uint64_t index) {
    uint64_t hash = 0;
    for (size_t lane = 0; lane < LANES; lane++) {
        const struct lane_sums *own = &h[lane / (VECTOR / 8)];
        hash += mix64(own->products[lane % (VECTOR / 8)] + mix64(own->sums[lane % (VECTOR / 8)] + (index + lane) * GOLDEN));
    }
    return hash;
}

/* Return the hash of `size` bytes, BLOCK at most. `index` counts lanes from the start of the tensor. The last
 * stripe is padded with zeros; stripes after it contribute nothing. */
static uint64_t hash_block(const unsigned char *bytes, size_t size, uint64_t index) {
    struct lane_sums h[VECTORS] = {{{0}, {0}}};
    unsigned char padded[STRIPE] = {0};
    size_t at = 0;
    for (; at + STRIPE <= size; at += STRIPE) {
        __builtin_prefetch(bytes + at + AHEAD);
        for (size_t i = 0; i < VECTORS; i++) hash_vector(&h[i], bytes + at + i * VECTOR, at + i * VECTOR);
    }
    memcpy(padded, bytes + at, size - at);
    for (size_t i = 0; at < size && i < VECTORS; i++) hash_vector(&h[i], padded + i * VECTOR, at + i * VECTOR);
    return finish_block(h, index);
}
