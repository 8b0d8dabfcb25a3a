/* The hash and the statistics of a whole block of floats in one loop, with AVX-512 or AVX2. */
#include <float.h>
#include "lane_hash.h"
#include "plain_sums.h"

#if defined(__AVX512F__) || (defined(__AVX2__) && defined(__FMA__) && defined(__F16C__))
#define FUSED(name) name

#ifdef __AVX512F__
typedef __m512 floats; typedef __m512d doubles; typedef __m256 half;
#define WIDE(name) _mm512_##name
#define REDUCE(name) _mm512_reduce_##name
#define LOAD_HALF(p) _mm256_loadu_ps((const float *)(p))
#define LOAD_F16(p) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(p)))
#define LOWER(v) _mm512_castps512_ps256(v)
#define UPPER(v) _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v), 1))
#else
typedef __m256 floats; typedef __m256d doubles; typedef __m128 half;
#define WIDE(name) _mm256_##name
#define REDUCE(name) reduce_##name
#define LOAD_HALF(p) _mm_loadu_ps((const float *)(p))
#define LOAD_F16(p) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p)))
#define LOWER(v) _mm256_castps256_ps128(v)
#define UPPER(v) _mm256_extractf128_ps(v, 1)

static inline double reduce_add_pd(__m256d v) {
    __m128d two = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

#define DEFINE_REDUCE(NAME)                                                                                \
    static inline float reduce_##NAME##_ps(__m256 v) {                                                     \
        __m128 four = _mm_##NAME##_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));             \
        __m128 two = _mm_##NAME##_ps(four, _mm_movehl_ps(four, four));                                     \
        return _mm_cvtss_f32(_mm_##NAME##_ss(two, _mm_movehdup_ps(two)));                                  \
    }

DEFINE_REDUCE(min)
DEFINE_REDUCE(max)
#endif

struct column { struct lane_sums hash; doubles squares[2]; }; /* of the same vector of each stripe */
struct totals { doubles sum; floats low, high; };

/* `first` and `second` are the halves of `v`. */
static inline void add_lanes(struct column *c, struct totals *t, floats v, half first, half second) {
    doubles a = WIDE(cvtps_pd)(first), b = WIDE(cvtps_pd)(second);
    t->low = WIDE(min_ps)(t->low, v);
    t->high = WIDE(max_ps)(t->high, v);
    t->sum = WIDE(add_pd)(t->sum, WIDE(add_pd)(a, b));
    c->squares[0] = WIDE(fmadd_pd)(a, a, c->squares[0]);
    c->squares[1] = WIDE(fmadd_pd)(b, b, c->squares[1]);
}

static inline void add_f32(struct column *c, struct totals *t, const unsigned char *p) {
    add_lanes(c, t, WIDE(loadu_ps)((const float *)p), LOAD_HALF(p), LOAD_HALF(p + VECTOR / 2));
}

/* A pair of bfloat16 is a 32-bit word; the bits of a float32 are those of a bfloat16 and 16 zeros. */
static inline void add_bf16(struct column *c, struct totals *t, const unsigned char *p) {
    words w;
    memcpy(&w, p, VECTOR);
    floats first = (floats)(w << 16), second = (floats)(w & 0xFFFF0000u);
    add_lanes(c, t, first, LOWER(first), UPPER(first));
    add_lanes(c, t, second, LOWER(second), UPPER(second));
}

static inline void add_f16(struct column *c, struct totals *t, const unsigned char *p) {
    floats first = LOAD_F16(p), second = LOAD_F16(p + VECTOR / 2);
    add_lanes(c, t, first, LOWER(first), UPPER(first));
    add_lanes(c, t, second, LOWER(second), UPPER(second));
}

/* Add `count` elements to `s`. Return false, with `s` unchanged, where DEFINE_SUM would return false. */
static inline int merge_totals(const struct totals *t, doubles half_squares, size_t count, struct stats *s) {
    double squares = REDUCE(add_pd)(half_squares), sum = REDUCE(add_pd)(t->sum);
    if (exponent_and_fraction(squares) >= NON_FINITE) return 0;
    merge(s, count, sum, squares, (double)REDUCE(min_ps)(t->low), (double)REDUCE(max_ps)(t->high));
    return 1;
}

/* Return the hash of a whole BLOCK. `summed` is false where DEFINE_SUM would return false. gcc keeps the sums of the loop
 * in registers if each is a variable of its own, not an element of an array. */
#define DEFINE_FUSED(NAME, ADD, COUNT)                                                                     \
    static uint64_t NAME(const unsigned char *bytes, uint64_t index, struct stats *s, int *summed) {       \
        struct totals t = {{0}, WIDE(set1_ps)(FLT_MAX), WIDE(set1_ps)(-FLT_MAX)};                          \
        struct column left = {{{0}, {0}}, {{0}, {0}}}, right = left;                                       \
        for (size_t at = 0; at < BLOCK; at += STRIPE) {                                                    \
            __builtin_prefetch(bytes + at + AHEAD);                                                        \
            hash_vector(&left.hash, bytes + at, at);                                                       \
            ADD(&left, &t, bytes + at);                                                                    \
            if (VECTORS == 1) continue;                                                                    \
            hash_vector(&right.hash, bytes + at + VECTOR, at + VECTOR);                                    \
            ADD(&right, &t, bytes + at + VECTOR);                                                          \
        }                                                                                                  \
        doubles a = left.squares[0] + left.squares[1], b = right.squares[0] + right.squares[1];            \
        *summed = merge_totals(&t, a + b, COUNT, s);                                                       \
        return finish_block((struct lane_sums[]){left.hash, right.hash}, index);                           \
    }

DEFINE_FUSED(fused_f32, add_f32, BLOCK / 4)
DEFINE_FUSED(fused_bf16, add_bf16, BLOCK / 2)
DEFINE_FUSED(fused_f16, add_f16, BLOCK / 2)
#else
#define FUSED(name) NULL
#endif
