/* Kernels that work element by element: numdrift_<name>_<dtype>(n, operands..., [scalar,] result).
 *
 * Operands and result are contiguous arrays of n elements. Each operator rounds once, to the dtype; FMA(a, b, c)
 * is a * b + c with one rounding. library.py lists the names. Compiled with -ffp-contract=off.
 */
#include <stdint.h>

#include "fused.h"

#define EACH(NAME, T, DTYPE, SCALARS, OPERANDS, FORMULA)                                              \
    void numdrift_##NAME##_##DTYPE(int64_t n, OPERANDS(T) SCALARS T *restrict result) {               \
        for (int64_t i = 0; i < n; i++) result[i] = FORMULA;                                          \
    }

#define TWO(T) const T *restrict first, const T *restrict second,
#define THREE(T) TWO(T) const T *restrict third,
#define NO_SCALAR
#define ONE_SCALAR double scalar,

#define A first[i]
#define B second[i]
#define C third[i]

#define KERNELS(T, DTYPE, FMA)                                                                        \
    /* A is grad_output, B is output */                                                               \
    EACH(tanh_backward_fma, T, DTYPE, NO_SCALAR, TWO, A * FMA(-B, B, (T)1))                           \
    EACH(tanh_backward_mac, T, DTYPE, NO_SCALAR, TWO, FMA(-A, B * B, A))                              \
    EACH(tanh_backward_mac_unfused, T, DTYPE, NO_SCALAR, TWO, A - (A * (B * B)))                      \
    EACH(tanh_backward_decomposed, T, DTYPE, NO_SCALAR, TWO, A * ((T)1 - B * B))                      \
    EACH(tanh_backward_factored, T, DTYPE, NO_SCALAR, TWO, A * (((T)1 - B) * ((T)1 + B)))             \
    EACH(sigmoid_backward_fma, T, DTYPE, NO_SCALAR, TWO, A * FMA(-B, B, B))                           \
    /* A is self, B and C are tensor1 and tensor2 */                                                  \
    EACH(addcmul_fma, T, DTYPE, ONE_SCALAR, THREE, FMA((T)scalar * B, C, A))                          \
    /* A is start, B is end, C is weight */                                                           \
    EACH(lerp_fma, T, DTYPE, NO_SCALAR, THREE, FMA(C, B - A, A))                                      \
    EACH(fma, T, DTYPE, NO_SCALAR, THREE, FMA(A, B, C))

KERNELS(float, float32, fused_float32)
KERNELS(double, float64, fused_float64)

/* 1 where a * b + c is one instruction of the CPU, 0 where it is emulated. */
int numdrift_hardware_fma(void) { return NUMDRIFT_HARDWARE_FMA; }
