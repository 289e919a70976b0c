/* The linear sketch of an array and its plain statistics, in one walk through memory.
 *
 * sketch.py says what the sketch is and does the same with numpy; the additions into every bucket are made in the
 * same order here, so the two give the same bits. Called through ctypes, which lets go of the interpreter lock.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <immintrin.h>
typedef unsigned Environment;
/* A program may have told the thread to flush subnormal numbers to zero; here they count. */
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
#define RAW __attribute__((aligned(1), may_alias))
typedef float f32 RAW;
typedef double f64 RAW;

typedef struct {
    double min, max, mean, std, rms, abs_max;
    double sum, squares;
} Statistics;

/* splitmix64: what is random about a row depends on the seed and its number only. */
static uint64_t mixed(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static void include(Statistics *s, double min, double max, double sum, double squares)
{
    s->min = min < s->min ? min : s->min;
    s->max = max > s->max ? max : s->max;
    s->sum += sum;
    s->squares += squares;
}

/* A row goes into the buckets from `into` on, each value with a sign from the table and all with the row's own. */
#define ROW(NAME, TYPE, NARROW)                                                                                      \
    STAGE void NAME(const TYPE *x, int64_t n, double sign, const double *restrict signs, double *restrict into,      \
                    Statistics *s)                                                                                   \
    {                                                                                                                \
        double sum = 0, squares = 0;                                                                                 \
        NARROW low = x[0], high = x[0];                                                                              \
        _Pragma("omp simd reduction(+ : sum, squares) reduction(min : low) reduction(max : high)")                   \
        for (int64_t i = 0; i < n; i++) {                                                                            \
            NARROW given = x[i];                                                                                     \
            double value = given;                                                                                    \
            low = given < low ? given : low;                                                                         \
            high = given > high ? given : high;                                                                      \
            sum += value;                                                                                            \
            squares += value * value;                                                                                \
            into[i] += value * (sign * signs[i]);                                                                    \
        }                                                                                                            \
        include(s, low, high, sum, squares);                                                                         \
    }

ROW(row_f32, f32, float)
ROW(row_f64, f64, double)

/* The statistics alone, of the values less `around` (the extremes of the values themselves). */
#define BLOCK 4096
#define PLAIN(NAME, TYPE, NARROW)                                                                                    \
    STAGE void NAME(const TYPE *x, int64_t n, double around, Statistics *s)                                          \
    {                                                                                                                \
        double sum = 0, squares = 0;                                                                                 \
        NARROW low = x[0], high = x[0];                                                                              \
        _Pragma("omp simd reduction(+ : sum, squares) reduction(min : low) reduction(max : high)")                   \
        for (int64_t i = 0; i < n; i++) {                                                                            \
            NARROW given = x[i];                                                                                     \
            double value = given - around;                                                                           \
            low = given < low ? given : low;                                                                         \
            high = given > high ? given : high;                                                                      \
            sum += value;                                                                                            \
            squares += value * value;                                                                                \
        }                                                                                                            \
        include(s, low, high, sum, squares);                                                                         \
    }

PLAIN(plain_f32, f32, float)
PLAIN(plain_f64, f64, double)

static void add_plain(int32_t wide, const void *values, int64_t n, double around, Statistics *s)
{
    for (int64_t start = 0; start < n; start += BLOCK) {
        int64_t count = n - start < BLOCK ? n - start : BLOCK;
        if (wide)
            plain_f64((const f64 *)values + start, count, around, s);
        else
            plain_f32((const f32 *)values + start, count, around, s);
    }
}

static const Statistics NOTHING = {.min = INFINITY, .max = -INFINITY};
/* Below this share of the mean square, a variance has lost too many digits to be told from it by subtraction. */
#define CANCELLED 1e-4

/* What the sums of the n values amount to. False: a value is not finite, or a square overflowed. A NaN may slip past
 * minimum and maximum, but not past the squares. */
static int32_t conclude(int32_t wide, const void *values, int64_t n, Statistics *s)
{
    if (!(isfinite(s->squares) && isfinite(s->min) && isfinite(s->max)))
        return 0;
    double mean = s->sum / (double)n, squares = s->squares / (double)n, variance = squares - mean * mean;
    if (!(variance > CANCELLED * squares)) {
        /* A large offset has eaten the digits of the variance: once more, around the mean. */
        Statistics again = NOTHING;
        add_plain(wide, values, n, mean, &again);
        double shift = again.sum / (double)n;
        mean += shift;
        variance = again.squares / (double)n - shift * shift;
    }
    s->mean = mean;
    s->std = sqrt(variance > 0 ? variance : 0);
    s->rms = hypot(s->std, mean);
    s->abs_max = -s->min > s->max ? -s->min : s->max;
    return 1;
}

#define BLOCK_ROWS 64

/* Adds `n` values to twice `size` buckets, a block of rows at a time; `block` is room for as many numbers. */
static void add_rows(int32_t wide, const void *values, int64_t n, int64_t size, uint64_t seed, const double *table,
                     int64_t period, double *block, double *buckets, Statistics *statistics)
{
    int64_t row = 0, start = 0;
    while (start < n) {
        memset(block, 0, 2 * (size_t)size * sizeof *block);
        for (int64_t end = row + BLOCK_ROWS; row < end && start < n; row++, start += size) {
            uint64_t h = mixed(seed + (uint64_t)row);
            double sign = h >> 63 ? -1.0 : 1.0;
            uint64_t turn = ((h & 0xffffffffu) * (uint64_t)size) >> 32;
            uint64_t offset = (((h >> 32) & 0x7fffffffu) * (uint64_t)period) >> 31;
            int64_t count = n - start < size ? n - start : size;
            if (wide)
                row_f64((const f64 *)values + start, count, sign, table + offset, block + turn, statistics);
            else
                row_f32((const f32 *)values + start, count, sign, table + offset, block + turn, statistics);
        }
        for (int64_t i = 0; i < 2 * size; i++)
            buckets[i] += block[i];
    }
}

/* The sketches of `parts` arrays of `n` values that stand one after the other, `size` numbers each, and the statistics
 * of all. `wide` is 1 for double and 0 for float. The table holds `period` + `size` signs; `room` is for 4 * `size`
 * numbers. A row that starts late runs on beyond the last bucket, and is folded back at the end. */
EXPORT int32_t reprod_sketch(int32_t wide, const void *values, int64_t parts, int64_t n, int64_t size, uint64_t seed,
                             const double *table, int64_t period, double *room, double *sketches,
                             Statistics *statistics)
{
    Environment saved;
    ENTER(saved);
    *statistics = NOTHING;
    double *buckets = room + 2 * size;
    for (int64_t part = 0; part < parts; part++) {
        const char *first = (const char *)values + part * n * (wide ? 8 : 4);
        memset(buckets, 0, 2 * (size_t)size * sizeof *buckets);
        add_rows(wide, first, n, size, seed, table, period, room, buckets, statistics);
        for (int64_t i = 0; i < size; i++)
            sketches[part * size + i] = buckets[i] + buckets[size + i];
    }
    int32_t sound = conclude(wide, values, parts * n, statistics);
    LEAVE(saved);
    return sound;
}

/* The statistics alone. */
EXPORT int32_t reprod_summary(int32_t wide, const void *values, int64_t n, Statistics *statistics)
{
    Environment saved;
    ENTER(saved);
    *statistics = NOTHING;
    add_plain(wide, values, n, 0, statistics);
    int32_t sound = conclude(wide, values, n, statistics);
    LEAVE(saved);
    return sound;
}

EXPORT const char *reprod_sketch_source(void)
{
    return REPROD_SOURCE;
}
