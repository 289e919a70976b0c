/* The fused pass in C: every statistic of a pair of contiguous arrays in one walk through memory.
 *
 * It knows nothing of Python: it is compiled to a plain shared library and called through ctypes, which lets go of
 * the interpreter lock meanwhile. It adds to a State, so that an array may also come in pieces. What the fields mean
 * and how they become statistics is written in totals.py; blocked.py does the same with numpy, and tests hold the
 * two against each other: counts, extremes, positions and octaves are equal, sums agree to 1e-12.
 *
 * An array is taken in blocks that stay in the first-level cache. The loops over a block are plain C with few sums
 * each, so that a compiler turns them into vector instructions and keeps the sums in registers; "omp simd" allows it
 * to add in several lanes. Values up to 24 bits go through float, others through double; sums are always double.
 * The busiest loop is there a second time, written for AVX2, where it is a third faster.
 */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A program may have told the thread to flush subnormal numbers to zero; here they count. */
#if defined(__SSE2__)
#include <immintrin.h>
typedef unsigned Environment;
#define ENTER(saved) (saved = _mm_getcsr(), _mm_setcsr(0x1f80))
#define LEAVE(saved) _mm_setcsr(saved)
#else
#include <fenv.h>
typedef fenv_t Environment;
#define ENTER(saved) (fegetenv(&saved), fesetenv(FE_DFL_ENV))
#define LEAVE(saved) fesetenv(&saved)
#endif

#if defined(REPROD_CLONES) /* one copy per instruction set, the best one is picked when the library is loaded */
#define STAGE static __attribute__((target_clones("avx2", "default")))
#else
#define STAGE static
#endif
#define EXPORT __attribute__((visibility("default")))

#define BLOCK 1024
#define OCTAVES 2100 /* bin e + 1074 counts the differences in [2^e, 2^(e+1)) */
#define LISTED 64    /* octaves of an ordinary pair */
#define LARGEST 1.7976931348623157e308
#define FINITE(x) (fabs(x) <= LARGEST)

/* Raw elements may stand at any address: files do not align their tensors. */
#define RAW __attribute__((aligned(1), may_alias))
typedef float f32 RAW;
typedef double f64 RAW;
typedef int8_t i8 RAW;
typedef uint8_t u8 RAW;
typedef int16_t i16 RAW;
typedef uint16_t u16 RAW;
typedef int32_t i32 RAW;
typedef uint32_t u32 RAW;
typedef int64_t i64 RAW;
typedef uint64_t u64 RAW;

/* ---------------------------------------------------------------- what is handed back */

typedef struct {
    int64_t finite, nan, inf;
    double min, max, sum, squares, deviations;
} Side;

typedef struct {
    int64_t started, pairs, equal_infinities, nan_both, mismatched, differing, beyond, worst_at;
    int64_t lowest, highest; /* used bins of octaves; lowest > highest: none */
    double max_abs, min_abs, sum_abs, squares, max_rel, sum_rel, reference_squares, candidate_squares;
    double ulp_max, ulp_sum;
    Side side[2];
    /* The statistics, if this is an ordinary pair; totals.py says what they are and takes care of the others. */
    int64_t ordinary, listed;
    double mean_abs, rmse, mean_rel, rel_l2, cosine_distance, mean_ulp;
    double mean[2], std[2], rms[2], abs_max[2];
    int64_t list[LISTED][2]; /* octave and how many */
    int64_t octaves[OCTAVES];
} State;

/* ---------------------------------------------------------------- sums that outlive a block */

/* A running sum that keeps what rounding cuts off (Neumaier). */
typedef struct {
    double sum, rest;
} Sum;

static void add(Sum *s, double x)
{
    double t = s->sum + x;
    /* An infinite total has no rest; inf - inf would turn it into NaN. */
    if (FINITE(t))
        s->rest += fabs(s->sum) >= fabs(x) ? (s->sum - t) + x : (x - t) + s->sum;
    s->sum = t;
}

/* Everything that one call adds up, kept apart from the State until its end. */
typedef struct {
    State *state;
    double limit;
    int nonfinite_before;
    Sum side_sum[2], side_squares[2], pair_squares[2], sum_abs, squares, sum_rel, ulp_sum;
} Walk;

static void start(Walk *w, State *s, double limit)
{
    memset(w, 0, sizeof *w);
    w->state = s;
    w->limit = limit;
    if (s->started)
        return;
    s->started = 1;
    s->worst_at = -1;
    s->lowest = OCTAVES;
    s->highest = -1;
    s->max_abs = s->side[0].max = s->side[1].max = -INFINITY;
    s->min_abs = s->side[0].min = s->side[1].min = INFINITY;
}

static void finish(Walk *w)
{
    State *s = w->state;
#define FOLD(field, total) s->field += (total).sum + (total).rest
    FOLD(sum_abs, w->sum_abs);
    FOLD(squares, w->squares);
    FOLD(sum_rel, w->sum_rel);
    FOLD(ulp_sum, w->ulp_sum);
    FOLD(reference_squares, w->pair_squares[0]);
    FOLD(candidate_squares, w->pair_squares[1]);
    for (int k = 0; k < 2; k++) {
        FOLD(side[k].sum, w->side_sum[k]);
        FOLD(side[k].squares, w->side_squares[k]);
    }
#undef FOLD
}

/* ---------------------------------------------------------------- loops over one block */

typedef struct {
    double min[2], max[2], sum[2], squares[2];
} SidesOfBlock;

typedef struct {
    double max, min, sum, squares, max_rel, sum_rel;
} PairsOfBlock;

#define STAGES(T)                                                                                                      \
    STAGE void extremes_##T(const T *a, const T *b, int n, SidesOfBlock *out)                                          \
    {                                                                                                                  \
        T lo_a = INFINITY, hi_a = -INFINITY, lo_b = INFINITY, hi_b = -INFINITY;                                        \
        _Pragma("omp simd reduction(min : lo_a, lo_b) reduction(max : hi_a, hi_b)") for (int i = 0; i < n; i++)        \
        {                                                                                                              \
            T x = a[i], y = b[i];                                                                                      \
            lo_a = x < lo_a ? x : lo_a;                                                                                \
            hi_a = x > hi_a ? x : hi_a;                                                                                \
            lo_b = y < lo_b ? y : lo_b;                                                                                \
            hi_b = y > hi_b ? y : hi_b;                                                                                \
        }                                                                                                              \
        out->min[0] = lo_a;                                                                                            \
        out->max[0] = hi_a;                                                                                            \
        out->min[1] = lo_b;                                                                                            \
        out->max[1] = hi_b;                                                                                            \
    }                                                                                                                  \
                                                                                                                       \
    STAGE void sums_##T(const T *a, const T *b, int n, SidesOfBlock *out)                                              \
    {                                                                                                                  \
        double sum_a = 0, sum_b = 0, squares_a = 0, squares_b = 0;                                                     \
        _Pragma("omp simd reduction(+ : sum_a, sum_b, squares_a, squares_b)") for (int i = 0; i < n; i++)              \
        {                                                                                                              \
            double x = a[i], y = b[i];                                                                                 \
            sum_a += x;                                                                                                \
            sum_b += y;                                                                                                \
            squares_a += x * x;                                                                                        \
            squares_b += y * y;                                                                                        \
        }                                                                                                              \
        out->sum[0] = sum_a;                                                                                           \
        out->sum[1] = sum_b;                                                                                           \
        out->squares[0] = squares_a;                                                                                   \
        out->squares[1] = squares_b;                                                                                   \
    }                                                                                                                  \
                                                                                                                       \
    STAGE void one_side_##T(const T *x, int n, SidesOfBlock *out)                                                      \
    {                                                                                                                  \
        T lo = INFINITY, hi = -INFINITY;                                                                               \
        double sum = 0, squares = 0;                                                                                   \
        _Pragma("omp simd reduction(min : lo) reduction(max : hi)") for (int i = 0; i < n; i++)                        \
        {                                                                                                              \
            lo = x[i] < lo ? x[i] : lo;                                                                                \
            hi = x[i] > hi ? x[i] : hi;                                                                                \
        }                                                                                                              \
        _Pragma("omp simd reduction(+ : sum, squares)") for (int i = 0; i < n; i++)                                    \
        {                                                                                                              \
            double v = x[i];                                                                                           \
            sum += v;                                                                                                  \
            squares += v * v;                                                                                          \
        }                                                                                                              \
        *out = (SidesOfBlock){{lo, lo}, {hi, hi}, {sum, sum}, {squares, squares}};                                     \
    }                                                                                                                  \
                                                                                                                       \
    STAGE double deviations_##T(const T *x, int n, double mean)                                                        \
    {                                                                                                                  \
        double sum = 0;                                                                                                \
        _Pragma("omp simd reduction(+ : sum)") for (int i = 0; i < n; i++)                                             \
        {                                                                                                              \
            double v = x[i] - mean;                                                                                    \
            sum += v * v;                                                                                              \
        }                                                                                                              \
        return sum;                                                                                                    \
    }                                                                                                                  \
                                                                                                                       \
    STAGE int nonfinite_##T(const T *x, int n)                                                                         \
    {                                                                                                                  \
        T sum = 0; /* x - x is 0, and NaN if x is not finite */                                                        \
        _Pragma("omp simd reduction(+ : sum)") for (int i = 0; i < n; i++) sum += x[i] - x[i];                         \
        return sum != 0;                                                                                               \
    }                                                                                                                  \
                                                                                                                       \
    STAGE void distances_##T(const T *a, const T *b, double *restrict d, int n)                                        \
    {                                                                                                                  \
        for (int i = 0; i < n; i++)                                                                                    \
            d[i] = fabs((double)a[i] - (double)b[i]);                                                                  \
    }                                                                                                                  \
                                                                                                                       \
    STAGE void pairs_##T(const T *a, const double *d, int n, PairsOfBlock *out)                                        \
    {                                                                                                                  \
        double hi = 0, lo = INFINITY, sum = 0, squares = 0, hi_rel = 0, sum_rel = 0;                                   \
        _Pragma("omp simd reduction(+ : sum, squares, sum_rel) reduction(min : lo) reduction(max : hi, hi_rel)")       \
        for (int i = 0; i < n; i++)                                                                                    \
        {                                                                                                              \
            double v = d[i], rel = v / fabs((double)a[i]);                                                             \
            hi = v > hi ? v : hi;                                                                                      \
            lo = v < lo ? v : lo;                                                                                      \
            sum += v;                                                                                                  \
            squares += v * v;                                                                                          \
            /* 0 / 0, both sides zero, counts as 0: NaN is no larger than anything, and is not added. */              \
            hi_rel = rel > hi_rel ? rel : hi_rel;                                                                      \
            sum_rel += v > 0 ? rel : 0.0;                                                                              \
        }                                                                                                              \
        *out = (PairsOfBlock){hi, lo, sum, squares, hi_rel, sum_rel};                                                  \
    }
STAGES(f32)
STAGES(f64)

/* ULP distances. Bits read as sign and magnitude are in the order of the values; of equal signs the plain difference
 * of the bits is right, and `signs` becomes negative where that does not hold. */
#define QUICK_ULP_STAGE(BITS)                                                                                          \
    STAGE int quick_ulp_##BITS(const i##BITS *a, const i##BITS *b, int n, double *most, double *sum)                   \
    {                                                                                                                  \
        uint##BITS##_t hi = 0;                                                                                         \
        uint##BITS##_t all = 0;                                                                                        \
        int##BITS##_t signs = 0;                                                                                       \
        _Pragma("omp simd reduction(max : hi) reduction(+ : all) reduction(| : signs)") for (int i = 0; i < n; i++)    \
        {                                                                                                              \
            int##BITS##_t x = a[i], y = b[i];                                                                          \
            uint##BITS##_t up = (uint##BITS##_t)((uint##BITS##_t)x - (uint##BITS##_t)y);                               \
            uint##BITS##_t down = (uint##BITS##_t)((uint##BITS##_t)y - (uint##BITS##_t)x);                             \
            uint##BITS##_t apart = up < down ? up : down;                                                              \
            hi = apart > hi ? apart : hi;                                                                              \
            all = (uint##BITS##_t)(all + apart);                                                                       \
            signs |= x ^ y;                                                                                            \
        }                                                                                                              \
        *most = (double)hi;                                                                                            \
        *sum = (double)all;                                                                                            \
        return signs >= 0 && hi < ((uint##BITS##_t)-1) / BLOCK; /* the sum has not overflowed */                       \
    }
QUICK_ULP_STAGE(32)
QUICK_ULP_STAGE(64)

#define ULP_STAGE(BITS, MAGNITUDE)                                                                                     \
    STAGE void ulp_##BITS(const i##BITS *a, const i##BITS *b, int n, double *most, double *sum)                        \
    {                                                                                                                  \
        uint##BITS##_t hi = 0;                                                                                         \
        uint64_t low_half = 0, high_half = 0;                                                                          \
        _Pragma("omp simd reduction(max : hi) reduction(+ : low_half, high_half)") for (int i = 0; i < n; i++)         \
        {                                                                                                              \
            int##BITS##_t x = a[i], y = b[i];                                                                          \
            int##BITS##_t size_x = x & MAGNITUDE, size_y = y & MAGNITUDE;                                              \
            x = (int##BITS##_t)(x < 0 ? -size_x : size_x);                                                             \
            y = (int##BITS##_t)(y < 0 ? -size_y : size_y);                                                             \
            uint##BITS##_t apart = (uint##BITS##_t)(x > y ? (uint64_t)x - (uint64_t)y : (uint64_t)y - (uint64_t)x);    \
            hi = apart > hi ? apart : hi;                                                                              \
            low_half += (uint64_t)apart & 0xffffffffu;                                                                 \
            high_half += (uint64_t)apart >> 32;                                                                        \
        }                                                                                                              \
        *most = (double)hi;                                                                                            \
        *sum = (double)high_half * 4294967296.0 + (double)low_half;                                                    \
    }
ULP_STAGE(16, 0x7fff)
ULP_STAGE(32, 0x7fffffff)
ULP_STAGE(64, 0x7fffffffffffffff)

/* How many octaves below the largest difference each one lies; 255: that far below or farther, or zero. */
STAGE void depths(const double *d, int n, uint8_t *restrict depth, uint64_t top)
{
    for (int i = 0; i < n; i++) {
        uint64_t bits;
        memcpy(&bits, d + i, 8);
        uint16_t below = (uint16_t)(top - (bits >> 52));
        depth[i] = (uint8_t)(below < 255 ? below : 255);
    }
}

/* How often four depths occur. The rest of the last vector must not hold any of them. */
static void count_depths(const uint8_t *depth, int n, const uint8_t wanted[4], int counts[4])
{
    typedef uint8_t Bytes __attribute__((vector_size(16)));
    Bytes found[4] = {{0}}, want[4], none = {0};
    for (int k = 0; k < 4; k++)
        want[k] = none + wanted[k];
    for (int i = 0; i < n; i += 16) { /* at most 64 rounds, so no lane overflows */
        Bytes v;
        memcpy(&v, depth + i, 16);
        for (int k = 0; k < 4; k++)
            found[k] -= (Bytes)(v == want[k]);
    }
    for (int k = 0; k < 4; k++) {
        counts[k] = 0;
        for (int j = 0; j < 16; j++)
            counts[k] += found[k][j];
    }
}

STAGE int count_zeros(const double *d, int n)
{
    int64_t zeros = 0;
    for (int i = 0; i < n; i++)
        zeros += d[i] == 0;
    return (int)zeros;
}

/* The largest difference; infinite if there is one that is no number. */
STAGE double largest(const double *d, int n)
{
    double hi = 0;
    int64_t odd = 0;
#pragma omp simd reduction(max : hi) reduction(| : odd)
    for (int i = 0; i < n; i++) {
        hi = d[i] > hi ? d[i] : hi;
        odd |= d[i] != d[i];
    }
    return odd ? INFINITY : hi;
}

STAGE int count_beyond(const double *d, int n, double limit)
{
    int64_t beyond = 0;
    for (int i = 0; i < n; i++)
        beyond += d[i] > limit;
    return (int)beyond;
}

/* Blocks with NaN or infinities: what is not finite becomes 0, which adds nothing to any sum. */

typedef struct {
    double min, max;
    int finite, nan;
} MendedSide;

STAGE void mend_side(const f64 *x, double *restrict mended, int n, MendedSide *out)
{
    double lo = INFINITY, hi = -INFINITY;
    int64_t finite = 0, nan = 0;
#pragma omp simd reduction(min : lo) reduction(max : hi) reduction(+ : finite, nan)
    for (int i = 0; i < n; i++) {
        double v = x[i];
        int64_t kept = fabs(v) <= LARGEST;
        double low = kept ? v : INFINITY, high = kept ? v : -INFINITY;
        mended[i] = kept ? v : 0;
        lo = low < lo ? low : lo;
        hi = high > hi ? high : hi;
        finite += kept;
        nan += v != v;
    }
    *out = (MendedSide){lo, hi, (int)finite, (int)nan};
}

STAGE double mended_deviations(const f64 *x, int n, double mean)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < n; i++) {
        double v = x[i] - mean;
        sum += fabs(x[i]) <= LARGEST ? v * v : 0;
    }
    return sum;
}

typedef struct {
    int pairs, nan_both, equal_infinities;
} MendedPairs;

STAGE void mend_pairs(const f64 *x, const f64 *y, double *restrict a, double *restrict b, int64_t *restrict keep,
                      int n, MendedPairs *out)
{
    int64_t pairs = 0, nan_both = 0, equal = 0;
#pragma omp simd reduction(+ : pairs, nan_both, equal)
    for (int i = 0; i < n; i++) {
        int64_t kept = (fabs(x[i]) <= LARGEST) & (fabs(y[i]) <= LARGEST);
        a[i] = kept ? x[i] : 0;
        b[i] = kept ? y[i] : 0;
        keep[i] = -kept;
        pairs += kept;
        nan_both += (x[i] != x[i]) & (y[i] != y[i]);
        equal += (x[i] == y[i]) & (fabs(x[i]) > LARGEST);
    }
    *out = (MendedPairs){(int)pairs, (int)nan_both, (int)equal};
}

STAGE double smallest_kept(const double *d, const int64_t *keep, int n)
{
    double lo = INFINITY;
#pragma omp simd reduction(min : lo)
    for (int i = 0; i < n; i++) {
        /* What is not kept has the difference 0, and the bits of infinity turn it into that. */
        uint64_t bits;
        double v;
        memcpy(&bits, d + i, 8);
        bits |= ~(uint64_t)keep[i] & 0x7ff0000000000000u;
        memcpy(&v, &bits, 8);
        lo = v < lo ? v : lo;
    }
    return lo;
}

#define MEND_RAW(BITS)                                                                                                 \
    STAGE void mend_raw_##BITS(const i##BITS *raw, i##BITS *restrict mended, const int64_t *keep, int n)               \
    {                                                                                                                  \
        for (int i = 0; i < n; i++)                                                                                    \
            mended[i] = raw[i] & (int##BITS##_t)keep[i];                                                               \
    }
MEND_RAW(16)
MEND_RAW(32)
MEND_RAW(64)

/* ---------------------------------------------------------------- the same with AVX2 */

#if defined(REPROD_CLONES)
#define AVX2 static __attribute__((target("avx2,fma")))

AVX2 double lanes_sum(__m256d v) { return (v[0] + v[1]) + (v[2] + v[3]); }

AVX2 double lanes_max(__m256d v)
{
    double p = v[0] > v[1] ? v[0] : v[1], q = v[2] > v[3] ? v[2] : v[3];
    return p > q ? p : q;
}

AVX2 double lanes_min(__m256d v) { return -lanes_max(-v); }

#define LOAD_f32(p) _mm256_cvtps_pd(_mm_loadu_ps((const float *)(p)))
#define LOAD_f64(p) _mm256_loadu_pd((const double *)(p))

/* sums, distances and pairs in one loop over n, a multiple of 32. `exponents` gets the exponent bits of the
 * differences, in any order. Two vectors are joined before they are added, so that all sums stay in registers; a
 * product and its sum are one operation, of which a processor has more to spare than of additions. */
#define FUSED(T)                                                                                                       \
    AVX2 void fused_##T(const T *a, const T *b, int n, SidesOfBlock *sides, PairsOfBlock *pairs, uint32_t *exponents)  \
    {                                                                                                                  \
        const __m256d zero = _mm256_setzero_pd(), no_sign = _mm256_castsi256_pd(_mm256_set1_epi64x(INT64_MAX));        \
        __m256d hi = zero, lo = _mm256_set1_pd(INFINITY), sum = zero, squares = zero, hi_rel = zero, sum_rel = zero;   \
        __m256d sum_a = zero, sum_b = zero, squares_a = zero, squares_b = zero;                                        \
        for (int i = 0; i < n; i += 8) {                                                                               \
            /* The next block comes while this one is in work: a page may end here, where hardware stops. */          \
            __builtin_prefetch(a + i + BLOCK);                                                                         \
            __builtin_prefetch(b + i + BLOCK);                                                                         \
            __m256d x = LOAD_##T(a + i), y = LOAD_##T(b + i), u = LOAD_##T(a + i + 4), v = LOAD_##T(b + i + 4);        \
            sum_a += x + u;                                                                                            \
            sum_b += y + v;                                                                                            \
            squares_a = _mm256_fmadd_pd(x, x, _mm256_fmadd_pd(u, u, squares_a));                                       \
            squares_b = _mm256_fmadd_pd(y, y, _mm256_fmadd_pd(v, v, squares_b));                                       \
            y = _mm256_and_pd(x - y, no_sign);                                                                         \
            v = _mm256_and_pd(u - v, no_sign);                                                                         \
            hi = _mm256_max_pd(hi, _mm256_max_pd(y, v));                                                               \
            lo = _mm256_min_pd(lo, _mm256_min_pd(y, v));                                                               \
            sum += y + v;                                                                                              \
            squares = _mm256_fmadd_pd(y, y, _mm256_fmadd_pd(v, v, squares));                                           \
            /* 0 / 0, both sides zero, counts as 0. */                                                                 \
            x = _mm256_and_pd(y / _mm256_and_pd(x, no_sign), _mm256_cmp_pd(y, zero, _CMP_GT_OQ));                      \
            u = _mm256_and_pd(v / _mm256_and_pd(u, no_sign), _mm256_cmp_pd(v, zero, _CMP_GT_OQ));                      \
            hi_rel = _mm256_max_pd(hi_rel, _mm256_max_pd(x, u));                                                       \
            sum_rel += x + u;                                                                                          \
            __m256i upper = _mm256_srli_epi64(_mm256_castpd_si256(y), 32);                                             \
            upper = _mm256_blend_epi32(upper, _mm256_castpd_si256(v), 0xaa);                                           \
            _mm256_storeu_si256((__m256i *)(exponents + i), _mm256_srli_epi32(upper, 20));                             \
        }                                                                                                              \
        sides->sum[0] = lanes_sum(sum_a);                                                                              \
        sides->sum[1] = lanes_sum(sum_b);                                                                              \
        sides->squares[0] = lanes_sum(squares_a);                                                                      \
        sides->squares[1] = lanes_sum(squares_b);                                                                      \
        *pairs = (PairsOfBlock){lanes_max(hi),      lanes_min(lo),     lanes_sum(sum),                                 \
                                lanes_sum(squares), lanes_max(hi_rel), lanes_sum(sum_rel)};                            \
    }
FUSED(f32)
FUSED(f64)

/* As `depths`, from the exponents alone. */
AVX2 void depths_avx2(const uint32_t *exponents, int n, uint8_t *depth, uint64_t top)
{
    __m256i tops = _mm256_set1_epi32((int)top);
    for (int i = 0; i < n; i += 32) {
        __m256i below[4];
        for (int k = 0; k < 4; k++)
            below[k] = _mm256_sub_epi32(tops, _mm256_loadu_si256((const __m256i *)(exponents + i + 8 * k)));
        /* Packing saturates, and shuffles, which a histogram does not mind. */
        below[0] = _mm256_packus_epi32(below[0], below[1]);
        below[2] = _mm256_packus_epi32(below[2], below[3]);
        _mm256_storeu_si256((__m256i *)(depth + i), _mm256_packus_epi16(below[0], below[2]));
    }
}

AVX2 int bytes_sum(__m256i v)
{
    __m256i sums = _mm256_sad_epu8(v, _mm256_setzero_si256());
    return (int)(sums[0] + sums[1] + sums[2] + sums[3]);
}

/* As `count_depths`; four names instead of an array, which would be put into memory. */
AVX2 void count_depths_avx2(const uint8_t *depth, int n, const uint8_t wanted[4], int counts[4])
{
    const __m256i k0 = _mm256_set1_epi8((char)wanted[0]), k1 = _mm256_set1_epi8((char)wanted[1]);
    const __m256i k2 = _mm256_set1_epi8((char)wanted[2]), k3 = _mm256_set1_epi8((char)wanted[3]);
    __m256i n0 = _mm256_setzero_si256(), n1 = n0, n2 = n0, n3 = n0;
    for (int i = 0; i < n; i += 32) {
        __m256i v = _mm256_loadu_si256((const __m256i *)(depth + i));
        n0 = _mm256_sub_epi8(n0, _mm256_cmpeq_epi8(v, k0));
        n1 = _mm256_sub_epi8(n1, _mm256_cmpeq_epi8(v, k1));
        n2 = _mm256_sub_epi8(n2, _mm256_cmpeq_epi8(v, k2));
        n3 = _mm256_sub_epi8(n3, _mm256_cmpeq_epi8(v, k3));
    }
    counts[0] = bytes_sum(n0);
    counts[1] = bytes_sum(n1);
    counts[2] = bytes_sum(n2);
    counts[3] = bytes_sum(n3);
}

static int has_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
#define COUNT(depth, n, wanted, counts)                                                                                \
    (has_avx2() ? count_depths_avx2(depth, n, wanted, counts) : count_depths(depth, n, wanted, counts))
#else
#define COUNT count_depths
#endif

/* ---------------------------------------------------------------- raw elements to float or double */

STAGE void widen_float16(const u16 *raw, f32 *out, int n)
{
    /* Never through a subnormal float32: those are slow. */
    for (int i = 0; i < n; i++) {
        uint32_t size = raw[i] & 0x7fffu, sign = (uint32_t)(raw[i] & 0x8000u) << 16;
        uint32_t bits = (size << 13) + (112u << 23) + (size >= 0x7c00u ? 112u << 23 : 0);
        float small = (float)(int32_t)size * 0x1p-24f;
        uint32_t small_bits;
        memcpy(&small_bits, &small, 4);
        bits = (size < 0x400u ? small_bits : bits) | sign;
        memcpy(out + i, &bits, 4);
    }
}

STAGE void widen_bfloat16(const u16 *raw, f32 *out, int n)
{
    for (int i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)raw[i] << 16;
        memcpy(out + i, &bits, 4);
    }
}

#define WIDEN(NAME, FROM, TO)                                                                                          \
    STAGE void widen_##NAME(const FROM *raw, TO *out, int n)                                                           \
    {                                                                                                                  \
        for (int i = 0; i < n; i++)                                                                                    \
            out[i] = (TO)raw[i];                                                                                       \
    }
WIDEN(int8, i8, f32)
WIDEN(uint8, u8, f32)
WIDEN(int16, i16, f32)
WIDEN(uint16, u16, f32)
WIDEN(int32, i32, f64)
WIDEN(uint32, u32, f64)
WIDEN(int64, i64, f64)
WIDEN(uint64, u64, f64)
WIDEN(double, f32, f64)

/* int64 of at most 51 bits: the bits of 1.5 * 2^52 + x, minus 1.5 * 2^52. False if there are larger ones. */
STAGE int widen_small_int64(const i64 *raw, f64 *out, int n)
{
    uint64_t wide = 0;
    for (int i = 0; i < n; i++) {
        uint64_t x = (uint64_t)raw[i], bits = x + 0x4338000000000000u;
        wide |= (x + ((uint64_t)1 << 51)) >> 52;
        double shifted;
        memcpy(&shifted, &bits, 8);
        out[i] = shifted - 6755399441055744.0;
    }
    return wide == 0;
}

/* 64-bit integers are subtracted as integers and rounded once. */
#define EXACT(NAME, T)                                                                                                 \
    static void distances_##NAME(const T *a, const T *b, double *d, int n)                                             \
    {                                                                                                                  \
        for (int i = 0; i < n; i++)                                                                                    \
            d[i] = (double)(a[i] > b[i] ? (uint64_t)a[i] - (uint64_t)b[i] : (uint64_t)b[i] - (uint64_t)a[i]);          \
    }
EXACT(int64, i64)
EXACT(uint64, u64)

/* ---------------------------------------------------------------- taking in one block */

enum { FLOAT32, FLOAT64, FLOAT16, BFLOAT16, INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64, DTYPES };
static const int item_size[DTYPES] = {4, 8, 2, 2, 1, 1, 2, 2, 4, 4, 8, 8};

typedef struct {
    const void *raw[2];  /* as they came */
    const void *wide[2]; /* as float or double */
    int is_float, dtype, n;
    int pairs;         /* elements that count: all, or those that are finite on both sides */
    int64_t offset;    /* of the first element in the whole array */
    double *distances; /* room for the differences */
    int has_distances;
} Block;

static const double *distances_of(Block *b)
{
    if (!b->has_distances) {
        if (b->is_float)
            distances_f32(b->wide[0], b->wide[1], b->distances, b->n);
        else
            distances_f64(b->wide[0], b->wide[1], b->distances, b->n);
        b->has_distances = 1;
    }
    return b->distances;
}

/* Whether a sum of squared deviations has lost its digits in the difference it was taken as. */
static int cancelled(double deviations, double squares) { return !(deviations >= 0.05 * squares); }

static void add_values(Walk *w, int k, const SidesOfBlock *x, int n, double deviations)
{
    Side *side = &w->state->side[k];
    double mean = x->sum[k] / n;
    if (side->finite) { /* joined as Chan and others (1979) do */
        double gap = mean - (side->sum + w->side_sum[k].sum) / (double)side->finite;
        deviations += gap * gap * ((double)side->finite * n / ((double)side->finite + n));
    }
    side->deviations += deviations;
    side->finite += n;
    add(&w->side_sum[k], x->sum[k]);
    add(&w->side_squares[k], x->squares[k]);
    side->min = x->min[k] < side->min ? x->min[k] : side->min;
    side->max = x->max[k] > side->max ? x->max[k] : side->max;
}

static void add_side(Walk *w, int k, const Block *b, const SidesOfBlock *x)
{
    int n = b->n;
    double mean = x->sum[k] / n, deviations = x->squares[k] - x->sum[k] * mean;
    if (cancelled(deviations, x->squares[k]))
        deviations = b->is_float ? deviations_f32(b->wide[k], n, mean) : deviations_f64(b->wide[k], n, mean);
    add_values(w, k, x, n, deviations);
}

static void offer_worst(State *s, double difference, int64_t at)
{
    if (difference > s->max_abs) {
        s->max_abs = difference;
        s->worst_at = at;
    }
}

static void count_octave(State *s, int64_t bin, int64_t n)
{
    s->octaves[bin] += n;
    s->lowest = bin < s->lowest ? bin : s->lowest;
    s->highest = bin > s->highest ? bin : s->highest;
}

static uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, 8);
    return bits;
}

static void count_octave_of(State *s, double x)
{
    uint64_t bits = bits_of(x), biased = bits >> 52;
    /* The octave of a subnormal number is that of its highest bit. */
    count_octave(s, biased ? (int64_t)biased + 51 : 63 - __builtin_clzll(bits), 1);
}

/* Histogram of the octaves, and the count of differing elements. Most differences lie within a few octaves of the
 * largest one, so these are counted by comparing bytes, and the rest one by one. */
static void add_octaves(State *s, Block *b, uint8_t depth[BLOCK + 32], uint64_t top)
{
    int n = b->n, counts[4], first = 1, next = 3;
    uint8_t wanted[4] = {255, 0, 1, 2};
    memset(depth + n, 254, 32);
    COUNT(depth, n, wanted, counts);
    /* Zeros have depth 255 if the largest is not tiny itself. Nothing else has it if there is none at all, or if the
     * largest difference of floats is below 2^105: 255 octaves below that, no two floats are that close. */
    int certain = top >= 255 && (counts[0] == 0 || (b->is_float && top < 1023 + 105));
    int zeros = certain ? counts[0] : count_zeros(distances_of(b), n), left = n - zeros;
    s->differing += left;
    for (;;) {
        for (int k = first; k < 4; k++)
            /* The exponent bits 0 belong to all subnormal numbers. */
            if (counts[k] && top > wanted[k]) {
                count_octave(s, (int64_t)(top - wanted[k]) + 51, counts[k]);
                left -= counts[k];
            }
        if (left == 0)
            return;
        if (next >= 20)
            break;
        first = 0;
        for (int k = 0; k < 4; k++)
            wanted[k] = (uint8_t)next++;
        COUNT(depth, n, wanted, counts);
    }
    const double *d = distances_of(b);
    for (int i = 0; i < n; i++) {
        uint64_t exponent = bits_of(d[i]) >> 52;
        if (d[i] != 0 && (exponent == 0 || exponent + (uint64_t)next <= top))
            count_octave_of(s, d[i]);
    }
}

static void add_ulp(Walk *w, const Block *b)
{
    double most = 0, sum = 0;
    const void *x = b->raw[0], *y = b->raw[1];
    switch (b->dtype) {
    case FLOAT32:
        if (!quick_ulp_32(x, y, b->n, &most, &sum))
            ulp_32(x, y, b->n, &most, &sum);
        break;
    case FLOAT64:
        if (!quick_ulp_64(x, y, b->n, &most, &sum))
            ulp_64(x, y, b->n, &most, &sum);
        break;
    case FLOAT16:
    case BFLOAT16:
        ulp_16(x, y, b->n, &most, &sum);
        break;
    default:
        return;
    }
    w->state->ulp_max = most > w->state->ulp_max ? most : w->state->ulp_max;
    add(&w->ulp_sum, sum);
}

/* The sums of a block, and the depths of its differences. */
typedef struct {
    SidesOfBlock sides;
    PairsOfBlock pairs;
    uint64_t top; /* exponent bits of the largest difference */
    uint8_t depth[BLOCK + 32];
} SumsOfBlock;

static void sides_of(const Block *b, SidesOfBlock *out)
{
    if (b->is_float) {
        extremes_f32(b->wide[0], b->wide[1], b->n, out);
        sums_f32(b->wide[0], b->wide[1], b->n, out);
    } else {
        extremes_f64(b->wide[0], b->wide[1], b->n, out);
        sums_f64(b->wide[0], b->wide[1], b->n, out);
    }
}

static void sides_of_equal(const Block *b, SidesOfBlock *out)
{
    if (b->is_float)
        one_side_f32(b->wide[0], b->n, out);
    else
        one_side_f64(b->wide[0], b->n, out);
}

/* Ask for a quarter of the next block: a page may end with this one, and there hardware stops looking ahead. */
static void prefetch_next(const Block *b, int quarter)
{
    int bytes = item_size[b->dtype] * BLOCK;
    for (int k = 0; k < 2; k++)
        for (int i = bytes / 4 * quarter; i < bytes / 4 * (quarter + 1); i += 64)
            __builtin_prefetch((const char *)b->raw[k] + bytes + i);
}

static void sums_of(Block *b, SumsOfBlock *out)
{
#if defined(REPROD_CLONES)
    if (b->n % 32 == 0 && !b->has_distances && has_avx2()) {
        uint32_t exponents[BLOCK];
        if (b->is_float) {
            fused_f32(b->wide[0], b->wide[1], b->n, &out->sides, &out->pairs, exponents);
            extremes_f32(b->wide[0], b->wide[1], b->n, &out->sides);
        } else {
            fused_f64(b->wide[0], b->wide[1], b->n, &out->sides, &out->pairs, exponents);
            extremes_f64(b->wide[0], b->wide[1], b->n, &out->sides);
        }
        out->top = bits_of(out->pairs.max) >> 52;
        depths_avx2(exponents, b->n, out->depth, out->top);
        return;
    }
#endif
    sides_of(b, &out->sides);
    prefetch_next(b, 0);
    const double *d = distances_of(b);
    prefetch_next(b, 1);
    if (b->is_float)
        pairs_f32(b->wide[0], d, b->n, &out->pairs);
    else
        pairs_f64(b->wide[0], d, b->n, &out->pairs);
    prefetch_next(b, 2);
    out->top = bits_of(out->pairs.max) >> 52;
    depths(d, b->n, out->depth, out->top);
    prefetch_next(b, 3);
}

static void add_pairs(Walk *w, Block *b, SumsOfBlock *sums)
{
    State *s = w->state;
    const PairsOfBlock *x = &sums->pairs;
    s->pairs += b->pairs;
    add(&w->sum_abs, x->sum);
    add(&w->squares, x->squares);
    add(&w->sum_rel, x->sum_rel);
    add(&w->pair_squares[0], sums->sides.squares[0]);
    add(&w->pair_squares[1], sums->sides.squares[1]);
    s->min_abs = x->min < s->min_abs ? x->min : s->min_abs;
    s->max_rel = x->max_rel > s->max_rel ? x->max_rel : s->max_rel;
    if (x->max > s->max_abs) {
        const double *d = distances_of(b);
        int at = 0;
        while (d[at] != x->max)
            at++;
        offer_worst(s, x->max, b->offset + at);
    }
    if (x->max > w->limit)
        s->beyond += count_beyond(distances_of(b), b->n, w->limit);
    if (x->max > 0) {
        add_octaves(s, b, sums->depth, sums->top);
        add_ulp(w, b);
    }
}

static void add_equal(Walk *w, const Block *b, const SidesOfBlock *sides)
{
    double mean = sides->sum[0] / b->n, deviations = sides->squares[0] - sides->sum[0] * mean;
    if (cancelled(deviations, sides->squares[0]))
        deviations = b->is_float ? deviations_f32(b->wide[0], b->n, mean) : deviations_f64(b->wide[0], b->n, mean);
    for (int k = 0; k < 2; k++) {
        add_values(w, k, sides, b->n, deviations);
        add(&w->pair_squares[k], sides->squares[k]);
    }
    w->state->pairs += b->n;
    w->state->min_abs = 0;
    offer_worst(w->state, 0, b->offset);
}

static void mend_raw(const Block *b, int k, void *mended, const int64_t *keep)
{
    switch (item_size[b->dtype]) {
    case 2:
        mend_raw_16(b->raw[k], mended, keep, b->n);
        break;
    case 4:
        mend_raw_32(b->raw[k], mended, keep, b->n);
        break;
    default:
        mend_raw_64(b->raw[k], mended, keep, b->n);
    }
}

/* NaN and infinities are counted; then they are taken for zeros, which do not show in any sum. */
static void add_nonfinite(Walk *w, const Block *b)
{
    State *s = w->state;
    double wide[2][BLOCK], mended[2][BLOCK], distances[BLOCK];
    int64_t keep[BLOCK];
    char raw[2][BLOCK * 8];
    int n = b->n;
    const f64 *x[2] = {b->wide[0], b->wide[1]};
    for (int k = 0; k < 2 && b->is_float; k++) {
        widen_double(b->wide[k], wide[k], n);
        x[k] = wide[k];
    }
    MendedSide side[2];
    SidesOfBlock sides;
    mend_side(x[0], mended[0], n, &side[0]);
    mend_side(x[1], mended[1], n, &side[1]);
    sums_f64(mended[0], mended[1], n, &sides);
    for (int k = 0; k < 2; k++) {
        int finite = side[k].finite;
        s->side[k].nan += side[k].nan;
        s->side[k].inf += n - finite - side[k].nan;
        if (finite == 0)
            continue;
        sides.min[k] = side[k].min;
        sides.max[k] = side[k].max;
        double mean = sides.sum[k] / finite, deviations = sides.squares[k] - sides.sum[k] * mean;
        if (cancelled(deviations, sides.squares[k]))
            deviations = mended_deviations(x[k], n, mean);
        add_values(w, k, &sides, finite, deviations);
    }
    MendedPairs found;
    mend_pairs(x[0], x[1], mended[0], mended[1], keep, n, &found);
    s->nan_both += found.nan_both;
    s->equal_infinities += found.equal_infinities;
    s->mismatched += n - found.nan_both - found.equal_infinities - found.pairs;
    if (found.equal_infinities)
        s->min_abs = 0;
    if (found.pairs + found.equal_infinities && s->max_abs < 0) {
        int first = 0;
        while (!keep[first] && x[0][first] != x[1][first])
            first++;
        offer_worst(s, 0, b->offset + first);
    }
    if (found.pairs == 0)
        return;
    mend_raw(b, 0, raw[0], keep);
    mend_raw(b, 1, raw[1], keep);
    Block rest = {.raw = {raw[0], raw[1]}, .wide = {mended[0], mended[1]}, .dtype = b->dtype, .n = n};
    rest.pairs = found.pairs;
    rest.offset = b->offset;
    rest.distances = distances;
    SumsOfBlock sums;
    sums_of(&rest, &sums);
    sums.pairs.min = smallest_kept(distances_of(&rest), keep, n);
    add_pairs(w, &rest, &sums);
}

static int any_nonfinite(const Block *b)
{
    if (b->is_float)
        return nonfinite_f32(b->wide[0], b->n) | nonfinite_f32(b->wide[1], b->n);
    return nonfinite_f64(b->wide[0], b->n) | nonfinite_f64(b->wide[1], b->n);
}

static void add_block(Walk *w, Block *b)
{
    SumsOfBlock sums;
    /* Where one block has NaN or infinities the next one often has, too; then the sums need not be tried first. */
    if (w->nonfinite_before && any_nonfinite(b)) {
        add_nonfinite(w, b);
        return;
    }
    w->nonfinite_before = 0;
    int equal = b->raw[0] == b->raw[1] || memcmp(b->raw[0], b->raw[1], (size_t)b->n * item_size[b->dtype]) == 0;
    if (equal)
        sides_of_equal(b, &sums.sides);
    else
        sums_of(b, &sums);
    if (!FINITE(sums.sides.squares[0] + sums.sides.squares[1])) {
        if (any_nonfinite(b)) {
            w->nonfinite_before = 1;
            add_nonfinite(w, b);
            return;
        }
        /* Only the squares overflowed; the caller notices by the size of the values. */
        if (equal)
            sums_of(b, &sums);
        equal = 0;
    }
    if (equal) {
        add_equal(w, b, &sums.sides);
        return;
    }
    add_side(w, 0, b, &sums.sides);
    add_side(w, 1, b, &sums.sides);
    add_pairs(w, b, &sums);
}

/* Make the wide values of a block; `room` is for those that are not wide already. */
static void widen(Block *b, char room[2][BLOCK * 8])
{
    int n = b->n;
    b->is_float = b->dtype != FLOAT64 && b->dtype < INT32;
    b->wide[0] = room[0];
    b->wide[1] = room[1];
#define CASE(DTYPE, NAME)                                                                                              \
    case DTYPE:                                                                                                        \
        widen_##NAME(b->raw[0], (void *)room[0], n);                                                                   \
        widen_##NAME(b->raw[1], (void *)room[1], n);                                                                   \
        break;
    switch (b->dtype) {
        CASE(FLOAT16, float16)
        CASE(BFLOAT16, bfloat16)
        CASE(INT8, int8)
        CASE(UINT8, uint8)
        CASE(INT16, int16)
        CASE(UINT16, uint16)
        CASE(INT32, int32)
        CASE(UINT32, uint32)
    case INT64:
        if (widen_small_int64(b->raw[0], (void *)room[0], n) & widen_small_int64(b->raw[1], (void *)room[1], n))
            break;
        widen_int64(b->raw[0], (void *)room[0], n);
        widen_int64(b->raw[1], (void *)room[1], n);
        distances_int64(b->raw[0], b->raw[1], b->distances, n);
        b->has_distances = 1;
        break;
    case UINT64:
        widen_uint64(b->raw[0], (void *)room[0], n);
        widen_uint64(b->raw[1], (void *)room[1], n);
        distances_uint64(b->raw[0], b->raw[1], b->distances, n);
        b->has_distances = 1;
        break;
    default: /* float32 and float64 are wide as they are */
        b->wide[0] = b->raw[0];
        b->wide[1] = b->raw[1];
    }
#undef CASE
}

/* ---------------------------------------------------------------- statistics of ordinary pairs */

static double at_most(double x, double y) { return x < y ? x : y; }
static double at_least(double x, double y) { return x > y ? x : y; }

static int in_range(double size) { return size == 0 || (size > 0x1p-440 && size < 0x1p480); }

static void conclude_side(State *s, int k)
{
    const Side *x = &s->side[k];
    double n = (double)x->finite;
    s->mean[k] = at_least(at_most(x->sum / n, x->max), x->min);
    s->std[k] = x->min < x->max ? sqrt(x->deviations / n) : 0;
    s->rms[k] = sqrt(x->squares / n);
    s->abs_max[k] = at_least(-x->min, x->max);
}

static void list_octaves(State *s)
{
    int64_t used = 0;
    for (int64_t bin = s->lowest; bin <= s->highest; bin++)
        if (s->octaves[bin]) {
            if (used < LISTED) {
                s->list[used][0] = bin - 1074;
                s->list[used][1] = s->octaves[bin];
            }
            used++;
        }
    s->listed = used;
}

/* Everything finite and neither huge nor tiny, not zero on one side only, no norm much smaller than the other one. Saves small tensors
 * the time that Python needs for the same few operations. */
static void conclude(State *s)
{
    s->ordinary = 0;
    if (s->pairs == 0 || s->equal_infinities)
        return;
    int zeros = s->reference_squares == 0 && s->candidate_squares == 0 && s->differing == 0;
    if (!zeros && (s->reference_squares == 0 || s->candidate_squares == 0))
        return;
    /* Where some values have no partner, the sizes of the sides say nothing about the pairs. */
    if (s->mismatched && at_most(s->reference_squares, s->candidate_squares) < 0x1p-880)
        return;
    conclude_side(s, 0);
    conclude_side(s, 1);
    list_octaves(s);
    if (!in_range(s->abs_max[0]) || !in_range(s->abs_max[1]) || !in_range(s->max_abs) || s->listed > LISTED)
        return;
    double n = (double)s->pairs, a = sqrt(s->reference_squares), b = sqrt(s->candidate_squares);
    if (at_most(a, b) < at_least(a, b) / 16)
        return;
    double least = s->differing ? 5e-324 : 0, d = sqrt(s->squares), gap = fabs(a - b);
    s->max_rel = at_least(s->max_rel, least);
    s->mean_abs = at_least(at_most(s->sum_abs / n, s->max_abs), least);
    s->rmse = at_least(at_most(sqrt(s->squares / n), s->max_abs), least);
    s->mean_rel = at_least(at_most(s->sum_rel / n, s->max_rel), least);
    s->rel_l2 = zeros ? 0 : at_least(d / a, least);
    s->cosine_distance = s->differing ? at_most(at_least((d - gap) * (d + gap) / (2 * a * b), 0), 2) : 0;
    s->mean_ulp = s->ulp_sum / n;
    s->ordinary = 1;
}

/* ---------------------------------------------------------------- what Python calls */

/* The block of `n` elements that starts at element `i` of both arrays. */
static Block block_at(int32_t dtype, const void *a, const void *b, int64_t n, int64_t i, double *distances)
{
    int64_t at = i * item_size[dtype];
    int size = n - i < BLOCK ? (int)(n - i) : BLOCK;
    return (Block){.raw = {(const char *)a + at, (const char *)b + at},
                   .dtype = dtype,
                   .n = size,
                   .pairs = size,
                   .offset = i,
                   .distances = distances};
}

/* Add n elements of both arrays, which start at `offset` of the whole, to a State that was all zero at first. */
EXPORT void reprod_measure(int32_t dtype, const void *a, const void *b, int64_t n, int64_t offset, double limit,
                           State *state)
{
    Environment environment;
    ENTER(environment);
    char room[2][BLOCK * 8] __attribute__((aligned(64)));
    double distances[BLOCK];
    Walk w;
    start(&w, state, limit);
    for (int64_t i = 0; i < n; i += BLOCK) {
        Block block = block_at(dtype, a, b, n, i, distances);
        block.offset += offset;
        widen(&block, room);
        add_block(&w, &block);
    }
    finish(&w);
    conclude(state);
    LEAVE(environment);
}

/* The same for many pairs at once, each of which gets the State up to its histogram: for small tensors a call of its own
 * costs more than they do. */
EXPORT void reprod_measure_many(int64_t pairs, const int32_t *dtype, const void *const *a, const void *const *b,
                                const int64_t *n, const double *limit, char *out)
{
    const size_t brief = offsetof(State, octaves);
    State state;
    memset(&state, 0, sizeof state);
    for (int64_t i = 0; i < pairs; i++) {
        reprod_measure(dtype[i], a[i], b[i], n[i], 0, limit[i], &state);
        memcpy(out + (size_t)i * brief, &state, brief);
        for (int64_t bin = state.lowest; bin <= state.highest; bin++)
            state.octaves[bin] = 0;
        memset(&state, 0, brief);
    }
}

/* Whether both wide values at a place are the same; NaN never is. */
static int same_at(const Block *b, int i)
{
    if (b->is_float)
        return ((const f32 *)b->wide[0])[i] == ((const f32 *)b->wide[1])[i];
    return ((const f64 *)b->wide[0])[i] == ((const f64 *)b->wide[1])[i];
}

/* Adds n elements to a list of at most `most` places where both arrays differ most, `kept` of which are there already:
 * the largest difference first, the earlier of two equal ones first, no zeros. What is not finite on one side differs
 * by infinity, and so does NaN from NaN. Gives how many are in the list now. */
EXPORT int32_t reprod_worst(int32_t dtype, const void *a, const void *b, int64_t n, int64_t offset, int32_t most,
                            int32_t kept, int64_t *places, double *sizes)
{
    Environment environment;
    ENTER(environment);
    char room[2][BLOCK * 8] __attribute__((aligned(64)));
    double distances[BLOCK];
    for (int64_t i = 0; i < n; i += BLOCK) {
        Block block = block_at(dtype, a, b, n, i, distances);
        widen(&block, room);
        const double *d = distances_of(&block);
        double least = kept == most ? sizes[most - 1] : 0;
        if (!(largest(d, block.n) > least))
            continue;
        for (int j = 0; j < block.n; j++) {
            double size = d[j] == d[j] ? d[j] : same_at(&block, j) ? 0 : INFINITY;
            if (!(size > least))
                continue;
            int at = kept < most ? kept++ : most - 1;
            for (; at > 0 && sizes[at - 1] < size; at--) {
                sizes[at] = sizes[at - 1];
                places[at] = places[at - 1];
            }
            sizes[at] = size;
            places[at] = offset + i + j;
            least = kept == most ? sizes[most - 1] : 0;
        }
    }
    LEAVE(environment);
    return kept;
}

/* Python uses a library only if it was built from the kernel.c that lies beside it. */
#if !defined(REPROD_SOURCE)
#define REPROD_SOURCE "unknown"
#endif
EXPORT const char *reprod_source(void) { return REPROD_SOURCE; }

EXPORT const char *reprod_instructions(void)
{
#if defined(REPROD_CLONES)
    if (has_avx2())
        return "AVX2";
#endif
    return "plain C";
}

/* For the test that Python's idea of the State is this one. */
EXPORT int64_t reprod_state_size(void) { return (int64_t)sizeof(State); }
