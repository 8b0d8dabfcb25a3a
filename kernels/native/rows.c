/* Sums of the rows of a contiguous [rows, columns] matrix: numdrift_<name>_<dtype>(rows, columns, matrix, result).
 *
 * Every addition rounds to the dtype, in exactly this order; an empty row has the sum 0.
 *   sequential  s = 0; s = s + x[i] for i = 0, 1, ...
 *   pairwise    S(x, n) = S(x[:m], m) + S(x[m:], n - m) with m = n / 2 rounded down; S of one element is it
 *   kahan       s = c = 0; y = x[i] - c; t = s + y; c = (t - s) - y; s = t  (W. Kahan, CACM 8(1), 1965); an
 *               infinity makes it NaN
 */
#include <stdint.h>

#define ROWS(NAME, T, DTYPE)                                                                          \
    void numdrift_##NAME##_##DTYPE(int64_t rows, int64_t columns, const T *matrix, T *result) {       \
        for (int64_t row = 0; row < rows; row++)                                                      \
            result[row] = NAME##_##DTYPE(matrix + row * columns, columns);                            \
    }

#define SUMS(T, DTYPE)                                                                                \
    static T sum_sequential_##DTYPE(const T *x, int64_t n) {                                          \
        T sum = 0;                                                                                    \
        for (int64_t i = 0; i < n; i++) sum = sum + x[i];                                             \
        return sum;                                                                                   \
    }                                                                                                 \
    static T sum_pairwise_##DTYPE(const T *x, int64_t n) {                                            \
        if (n < 2) return n ? x[0] : 0;                                                               \
        return sum_pairwise_##DTYPE(x, n / 2) + sum_pairwise_##DTYPE(x + n / 2, n - n / 2);           \
    }                                                                                                 \
    static T sum_kahan_##DTYPE(const T *x, int64_t n) {                                               \
        T sum = 0, lost = 0;                                                                          \
        for (int64_t i = 0; i < n; i++) {                                                             \
            T addend = x[i] - lost, next = sum + addend;                                              \
            lost = (next - sum) - addend;                                                             \
            sum = next;                                                                               \
        }                                                                                             \
        return sum;                                                                                   \
    }                                                                                                 \
    ROWS(sum_sequential, T, DTYPE)                                                                    \
    ROWS(sum_pairwise, T, DTYPE)                                                                      \
    ROWS(sum_kahan, T, DTYPE)

SUMS(float, float32)
SUMS(double, float64)
