/* Errors of one run of consecutive inputs in ULP, reduced to one bin. `sweep_bins.reduce_run` does the same with
   numpy, to the last bit: compile with -ffp-contract=off and without any flag that reorders sums. */

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { LANES = 16, TILE = 512, WORST = 10 };

typedef struct {
    int64_t precision; /* significant bits */
    int64_t least;     /* exponent of the smallest normal number */
    double largest;    /* largest finite number */
    double overflow;   /* smallest magnitude that rounds to infinity */
} format;

typedef struct {
    int64_t count, measured, not_correct, above_half, above_one, above_two, disagree;
    int64_t max_at, disagree_at; /* bit patterns, -1 for none */
    double max_ulp;
    double ulp[LANES], bias[LANES]; /* an input is added to the lane of its last four bits */
} bin;

typedef struct {
    double ulp[WORST]; /* descending */
    int64_t at[WORST];
} worst;

static inline int agree(double got, double want, const format *f)
{
    return ((got != got) & (want != want)) | ((got > f->largest) & (want >= f->overflow)) |
           ((got < -f->largest) & (want <= -f->overflow));
}

static inline int both_finite(double got, double want, const format *f)
{
    return (fabs(got) <= f->largest) & (fabs(want) < f->overflow);
}

/* Enter an input if it belongs to the worst: larger errors first, of equal ones the smaller pattern. */
static inline void keep(worst *kept, double ulp, int64_t at)
{
    int place = WORST - 1;
    if (ulp < kept->ulp[place] || (ulp == kept->ulp[place] && at >= kept->at[place]))
        return;
    for (; place > 0; place--) {
        if (kept->ulp[place - 1] > ulp || (kept->ulp[place - 1] == ulp && kept->at[place - 1] < at))
            break;
        kept->ulp[place] = kept->ulp[place - 1];
        kept->at[place] = kept->at[place - 1];
    }
    kept->ulp[place] = ulp;
    kept->at[place] = at;
}

/* Enter a tile. Where errors rise, every input would be the worst so far: then the last ones come first. */
static void keep_worst(worst *kept, const double *error, int size, int64_t first)
{
    if (fabs(error[0]) < fabs(error[size - 1]))
        for (int i = size - 1; i >= 0; i--)
            keep(kept, fabs(error[i]), first + i);
    else
        for (int i = 0; i < size; i++)
            keep(kept, fabs(error[i]), first + i);
}

/* Signed errors of n <= TILE inputs, and what can be counted of them. */
static double measure(const float *got, const double *want, int n, const format *f, bin *b, double *error)
{
    const uint64_t least = (uint64_t)(1023 + f->least), shift = (uint64_t)(2045 + f->precision);
    int64_t measured = 0, not_correct = 0, half = 0, one = 0, two = 0, disagree = 0;
    int64_t largest = 0; /* as bits: for numbers that are not negative these compare alike, and they vectorize */
    for (int i = 0; i < n; i++) {
        double w = want[i], g = got[i], scale;
        uint64_t bits;
        memcpy(&bits, &w, 8);
        bits = (bits >> 52) & 0x7ff;
        bits = (shift - (bits < least ? least : bits)) << 52;
        memcpy(&scale, &bits, 8);
        int finite = both_finite(g, w, f);
        double signed_error = finite ? g * scale - w * scale : 0.0;
        double ulp = fabs(signed_error);
        error[i] = signed_error;
        measured += finite;
        not_correct += finite & (g * scale != rint(w * scale));
        half += ulp > 0.5;
        one += ulp > 1.0;
        two += ulp > 2.0;
        disagree += !(finite | agree(g, w, f));
        int64_t magnitude;
        memcpy(&magnitude, &ulp, 8);
        largest = magnitude > largest ? magnitude : largest;
    }
    b->count += n;
    b->measured += measured;
    b->not_correct += not_correct;
    b->above_half += half;
    b->above_one += one;
    b->above_two += two;
    b->disagree += disagree;
    double found;
    memcpy(&found, &largest, 8);
    return found;
}

static void sum(const double *error, int n, int64_t first, bin *b)
{
    int i = 0;
    for (; i < n && (first + i) % LANES; i++) {
        b->ulp[(first + i) % LANES] += fabs(error[i]);
        b->bias[(first + i) % LANES] += error[i];
    }
    for (; i + LANES <= n; i += LANES)
        for (int lane = 0; lane < LANES; lane++) {
            b->ulp[lane] += fabs(error[i + lane]);
            b->bias[lane] += error[i + lane];
        }
    for (; i < n; i++) {
        b->ulp[(first + i) % LANES] += fabs(error[i]);
        b->bias[(first + i) % LANES] += error[i];
    }
}

/* got, want: n results of the kernel and of the reference for the bit patterns from `first` on, all of one bin. */
void numdrift_sweep_run(const float *got, const double *want, int64_t n, int64_t first, const format *f, bin *b,
                        worst *kept)
{
    double error[TILE];
    for (int64_t start = 0; start < n; start += TILE) {
        int size = (int)(n - start < TILE ? n - start : TILE);
        int64_t disagreed = b->disagree;
        double largest = measure(got + start, want + start, size, f, b, error);
        sum(error, size, first + start, b);
        if (largest > b->max_ulp) {
            int i = 0;
            while (fabs(error[i]) != largest)
                i++;
            b->max_ulp = largest;
            b->max_at = first + start + i;
        }
        if (largest > kept->ulp[WORST - 1])
            keep_worst(kept, error, size, first + start);
        if (b->disagree > disagreed && b->disagree_at < 0)
            for (int i = 0; i < size && b->disagree_at < 0; i++)
                if (!both_finite(got[start + i], want[start + i], f) && !agree(got[start + i], want[start + i], f))
                    b->disagree_at = first + start + i;
    }
}
