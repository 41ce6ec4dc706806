// Vectors of one instruction level, on GCC/Clang vector extensions.
//
// Included by the hot files only. Each of them is compiled once per level with SVELTO_LEVEL set, and everything here
// has internal linkage: code built for AVX-512 must never be merged by the linker with code for the baseline.
#pragma once

#include <cstddef>
#include <cstdint>

#if SVELTO_LEVEL > 0 || defined(__SSE2__)
#include <immintrin.h>
#else
#include <cmath>
#endif

#if SVELTO_LEVEL == 2
#define SVELTO_NAMESPACE avx512
#elif SVELTO_LEVEL == 1
#define SVELTO_NAMESPACE avx2
#else
#define SVELTO_NAMESPACE baseline
#endif

namespace svelto::SVELTO_NAMESPACE {
namespace {

constexpr int kVectorBytes = SVELTO_LEVEL == 2 ? 64 : SVELTO_LEVEL == 1 ? 32 : 16;

typedef float VecF __attribute__((vector_size(kVectorBytes), may_alias));
typedef double VecD __attribute__((vector_size(kVectorBytes), may_alias));
typedef std::int32_t VecI __attribute__((vector_size(kVectorBytes), may_alias));
typedef std::int64_t VecL __attribute__((vector_size(kVectorBytes), may_alias));
typedef std::uint32_t VecU __attribute__((vector_size(kVectorBytes), may_alias));
typedef std::uint64_t VecUL __attribute__((vector_size(kVectorBytes), may_alias));

template <class T>
struct VecOf;
template <>
struct VecOf<float> {
    using Type = VecF;
    using Int = VecI;
};
template <>
struct VecOf<double> {
    using Type = VecD;
    using Int = VecL;
};
template <>
struct VecOf<std::int32_t> {
    using Type = VecI;
    using Int = VecI;
};
template <class T>
using Vec = typename VecOf<T>::Type;
template <class T>
constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));

template <class T>
[[gnu::always_inline]] inline Vec<T> load(const T* p) {
    return *reinterpret_cast<const Vec<T>*>(p);  // packed arrays are 64-byte aligned
}
template <class T>
[[gnu::always_inline]] inline void store(T* p, Vec<T> v) {
    *reinterpret_cast<Vec<T>*>(p) = v;
}
// From anywhere.
[[gnu::always_inline]] inline VecF load_any(const float* from) {
    VecF x;
    __builtin_memcpy(&x, from, sizeof x);
    return x;
}

// n floats, fewer than a vector has, and zeros behind them.
[[gnu::always_inline]] inline VecF load_few(const float* from, int n) {
#if SVELTO_LEVEL == 2
    return reinterpret_cast<VecF>(_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1u), from));
#elif SVELTO_LEVEL == 1
    static constexpr std::int32_t kMask[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
    __m256i mask;
    __builtin_memcpy(&mask, kMask + 8 - n, sizeof mask);
    return reinterpret_cast<VecF>(_mm256_maskload_ps(from, mask));
#else
    VecF values = {};
    for (int i = 0; i < kLanes<float>; ++i)
        if (i < n) values[i] = from[i];
    return values;
#endif
}

// n floats, and zeros behind them where a vector has more.
[[gnu::always_inline]] inline VecF load_first(const float* from, int n) {
    return n < kLanes<float> ? load_few(from, n) : load_any(from);
}

// from[at], lane by lane.
[[gnu::always_inline]] inline VecF gather(const float* from, VecI at) {
#if SVELTO_LEVEL == 2
    return reinterpret_cast<VecF>(
        _mm512_mask_i32gather_ps(_mm512_setzero_ps(), 0xffff, reinterpret_cast<__m512i>(at), from, sizeof(float)));
#else
    VecF values;
    for (int i = 0; i < kLanes<float>; ++i) values[i] = from[at[i]];
    return values;
#endif
}

#if SVELTO_LEVEL == 2
// Sixteen rows of sixteen floats become columns. The zero-masked forms are the plain instructions, as for vmax.
[[gnu::always_inline]] inline void transpose(VecF (&row)[16]) {
    const auto as_floats = [](VecF v) { return reinterpret_cast<__m512>(v); };
    const auto as_doubles = [](VecF v) { return reinterpret_cast<__m512d>(v); };
    VecF pair[16], four[16], eight[16];
    for (int i = 0; i < 16; i += 2) {  // rows i, i + 1 of two columns
        pair[i] = reinterpret_cast<VecF>(_mm512_maskz_unpacklo_ps(0xffff, as_floats(row[i]), as_floats(row[i + 1])));
        pair[i + 1] =
            reinterpret_cast<VecF>(_mm512_maskz_unpackhi_ps(0xffff, as_floats(row[i]), as_floats(row[i + 1])));
    }
    for (int i = 0; i < 16; i += 4)  // rows i to i + 3 of one column, in each quarter another one
        for (int half = 0; half < 2; ++half) {
            const __m512d a = as_doubles(pair[i + half]), b = as_doubles(pair[i + 2 + half]);
            four[i + 2 * half] = reinterpret_cast<VecF>(_mm512_maskz_unpacklo_pd(0xff, a, b));
            four[i + 2 * half + 1] = reinterpret_cast<VecF>(_mm512_maskz_unpackhi_pd(0xff, a, b));
        }
    for (int i = 0; i < 16; i += 8)  // rows i to i + 7: columns c and c + 8, then c + 4 and c + 12
        for (int c = 0; c < 4; ++c) {
            const __m512 a = as_floats(four[i + c]), b = as_floats(four[i + 4 + c]);
            eight[i + c] = reinterpret_cast<VecF>(_mm512_maskz_shuffle_f32x4(0xffff, a, b, 0x88));
            eight[i + 4 + c] = reinterpret_cast<VecF>(_mm512_maskz_shuffle_f32x4(0xffff, a, b, 0xdd));
        }
    for (int c = 0; c < 8; ++c) {
        const __m512 a = as_floats(eight[c]), b = as_floats(eight[8 + c]);
        row[c] = reinterpret_cast<VecF>(_mm512_maskz_shuffle_f32x4(0xffff, a, b, 0x88));
        row[c + 8] = reinterpret_cast<VecF>(_mm512_maskz_shuffle_f32x4(0xffff, a, b, 0xdd));
    }
}
#endif

template <class T>
[[gnu::always_inline]] inline Vec<T> broadcast(T x) {
    return x - Vec<T>{};  // x - 0 is x even for -0.0, so no instruction is left; 0 + x is not
}

// a * b + c with one rounding where the level has the instruction, with two where it has not. Written out because the
// compiler's own contraction depends on the code around it, and a row's value must not.
[[gnu::always_inline]] inline VecF fmadd(VecF a, VecF b, VecF c) {
#if SVELTO_LEVEL == 2
    return reinterpret_cast<VecF>(
        _mm512_fmadd_ps(reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b), reinterpret_cast<__m512>(c)));
#elif SVELTO_LEVEL == 1
    return reinterpret_cast<VecF>(
        _mm256_fmadd_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b), reinterpret_cast<__m256>(c)));
#else
    return a * b + c;
#endif
}
[[gnu::always_inline]] inline VecD fmadd(VecD a, VecD b, VecD c) {
#if SVELTO_LEVEL == 2
    return reinterpret_cast<VecD>(
        _mm512_fmadd_pd(reinterpret_cast<__m512d>(a), reinterpret_cast<__m512d>(b), reinterpret_cast<__m512d>(c)));
#elif SVELTO_LEVEL == 1
    return reinterpret_cast<VecD>(
        _mm256_fmadd_pd(reinterpret_cast<__m256d>(a), reinterpret_cast<__m256d>(b), reinterpret_cast<__m256d>(c)));
#else
    return a * b + c;
#endif
}

// max(a, b); a NaN in either gives b, as x86 does. The zero-masked AVX-512 forms compile to the plain instructions; GCC
// 12 warns of an uninitialised variable inside its own header for the unmasked ones.
[[gnu::always_inline]] inline VecF vmax(VecF a, VecF b) {
#if SVELTO_LEVEL == 2
    return reinterpret_cast<VecF>(
        _mm512_maskz_max_ps(0xffff, reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b)));
#elif SVELTO_LEVEL == 1
    return reinterpret_cast<VecF>(_mm256_max_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b)));
#elif defined(__SSE2__)
    return reinterpret_cast<VecF>(_mm_max_ps(reinterpret_cast<__m128>(a), reinterpret_cast<__m128>(b)));
#else
    return a > b ? a : b;
#endif
}
[[gnu::always_inline]] inline VecD vmax(VecD a, VecD b) {
#if SVELTO_LEVEL == 2
    return reinterpret_cast<VecD>(
        _mm512_maskz_max_pd(0xff, reinterpret_cast<__m512d>(a), reinterpret_cast<__m512d>(b)));
#elif SVELTO_LEVEL == 1
    return reinterpret_cast<VecD>(_mm256_max_pd(reinterpret_cast<__m256d>(a), reinterpret_cast<__m256d>(b)));
#elif defined(__SSE2__)
    return reinterpret_cast<VecD>(_mm_max_pd(reinterpret_cast<__m128d>(a), reinterpret_cast<__m128d>(b)));
#else
    return a > b ? a : b;
#endif
}

[[gnu::always_inline]] inline VecF vsqrt(VecF a) {
#if SVELTO_LEVEL == 2
    return reinterpret_cast<VecF>(_mm512_maskz_sqrt_ps(0xffff, reinterpret_cast<__m512>(a)));
#elif SVELTO_LEVEL == 1
    return reinterpret_cast<VecF>(_mm256_sqrt_ps(reinterpret_cast<__m256>(a)));
#elif defined(__SSE2__)
    return reinterpret_cast<VecF>(_mm_sqrt_ps(reinterpret_cast<__m128>(a)));
#else
    for (int i = 0; i < kLanes<float>; ++i) a[i] = std::sqrt(a[i]);
    return a;
#endif
}
[[gnu::always_inline]] inline VecD vsqrt(VecD a) {
#if SVELTO_LEVEL == 2
    return reinterpret_cast<VecD>(_mm512_maskz_sqrt_pd(0xff, reinterpret_cast<__m512d>(a)));
#elif SVELTO_LEVEL == 1
    return reinterpret_cast<VecD>(_mm256_sqrt_pd(reinterpret_cast<__m256d>(a)));
#elif defined(__SSE2__)
    return reinterpret_cast<VecD>(_mm_sqrt_pd(reinterpret_cast<__m128d>(a)));
#else
    for (int i = 0; i < kLanes<double>; ++i) a[i] = std::sqrt(a[i]);
    return a;
#endif
}

[[gnu::always_inline]] inline VecF vabs(VecF a) {
    return reinterpret_cast<VecF>(reinterpret_cast<VecI>(a) & 0x7fffffff);
}
[[gnu::always_inline]] inline VecD vabs(VecD a) {
    return reinterpret_cast<VecD>(reinterpret_cast<VecL>(a) & 0x7fffffffffffffff);
}

// The nearest whole number, for |a| < 2^22 (float) or 2^51 (double): adding 1.5 * 2^(mantissa bits) leaves no digit for
// the rest. Larger numbers give some number.
[[gnu::always_inline]] inline VecF vround(VecF a) {
    return (a + 12582912.0f) - 12582912.0f;
}
[[gnu::always_inline]] inline VecD vround(VecD a) {
    return (a + 6755399441055744.0) - 6755399441055744.0;
}

// Whether a lane of a mask is set; masks are what comparisons give, all bits of a lane or none.
[[gnu::always_inline]] inline bool any_lane(VecI mask) {
#if SVELTO_LEVEL == 2
    return _mm512_movepi32_mask(reinterpret_cast<__m512i>(mask)) != 0;
#elif SVELTO_LEVEL == 1
    return _mm256_movemask_ps(reinterpret_cast<__m256>(mask)) != 0;
#elif defined(__SSE2__)
    return _mm_movemask_ps(reinterpret_cast<__m128>(mask)) != 0;
#else
    std::int32_t any = 0;
    for (int i = 0; i < kLanes<float>; ++i) any |= mask[i];
    return any != 0;
#endif
}

// Sum of the lanes in double, always in the same order, so the value does not depend on who asks.
[[gnu::always_inline]] inline double lane_sum(VecD v) {
    double lane[kLanes<double>];
    __builtin_memcpy(lane, &v, sizeof v);
    for (int width = kLanes<double> / 2; width > 0; width /= 2)
        for (int i = 0; i < width; ++i) lane[i] += lane[i + width];
    return lane[0];
}
[[gnu::always_inline]] inline double lane_sum(VecF v) {
    typedef float HalfF __attribute__((vector_size(kVectorBytes / 2)));
    HalfF half[2];
    __builtin_memcpy(half, &v, sizeof v);
    return lane_sum(__builtin_convertvector(half[0], VecD) + __builtin_convertvector(half[1], VecD));
}

// fmadd, or two roundings at every level where the answer must not depend on it.
template <bool kFused, class V>
[[gnu::always_inline]] inline V multiply_add(V a, V b, V c) {
    if constexpr (kFused)
        return fmadd(a, b, c);
    else
        return a * b + c;
}

// 2^t for t <= 1; below the smallest normal number the result is that number, not zero: the caller's bound has room
// for it. n = round(t) comes from adding 1.5 * 2^(mantissa bits): the sum's low bits are n, ready to be shifted into
// the exponent. Minimax polynomials of 2^f on [-1/2, 1/2]: relative error 7.5e-8 (degree 5) and 3.5e-17 (degree 11)
// before rounding; tests check the whole function over its range. A file that somebody made to do harm may ask for
// larger t: whole numbers without sign wrap then, and the result is some number.
template <bool kFused = true>
[[gnu::always_inline]] inline VecF exp2_clamped(VecF t) {
    constexpr float kMagic = 12582912.0f;
    t = vmax(t, broadcast(-126.0f));
    const VecF shifted = t + kMagic;
    const VecF f = t - (shifted - kMagic);
    VecF p = broadcast(0x1.5c08e6p-10f);
    p = multiply_add<kFused>(p, f, broadcast(0x1.3d0c52p-7f));
    p = multiply_add<kFused>(p, f, broadcast(0x1.c6b6e4p-5f));
    p = multiply_add<kFused>(p, f, broadcast(0x1.ebf918p-3f));
    p = multiply_add<kFused>(p, f, broadcast(0x1.62e428p-1f));
    p = multiply_add<kFused>(p, f, broadcast(0x1.000002p+0f));
    return reinterpret_cast<VecF>(reinterpret_cast<VecU>(p) + (reinterpret_cast<VecU>(shifted) << 23));
}
template <bool kFused = true>
[[gnu::always_inline]] inline VecD exp2_clamped(VecD t) {
    constexpr double kMagic = 6755399441055744.0;
    t = vmax(t, broadcast(-1022.0));
    const VecD shifted = t + kMagic;
    const VecD f = t - (shifted - kMagic);
    VecD p = broadcast(0x1.c08f918323219p-32);
    p = multiply_add<kFused>(p, f, broadcast(0x1.e5fc666450e4dp-28));
    p = multiply_add<kFused>(p, f, broadcast(0x1.b5406b96fdf5cp-24));
    p = multiply_add<kFused>(p, f, broadcast(0x1.62bfd99f06163p-20));
    p = multiply_add<kFused>(p, f, broadcast(0x1.ffcbef3124659p-17));
    p = multiply_add<kFused>(p, f, broadcast(0x1.43091307a8d4ap-13));
    p = multiply_add<kFused>(p, f, broadcast(0x1.5d87fe7b6970dp-10));
    p = multiply_add<kFused>(p, f, broadcast(0x1.3b2ab6fba2500p-7));
    p = multiply_add<kFused>(p, f, broadcast(0x1.c6b08d70491bbp-5));
    p = multiply_add<kFused>(p, f, broadcast(0x1.ebfbdff82c596p-3));
    p = multiply_add<kFused>(p, f, broadcast(0x1.62e42fefa39f2p-1));
    p = multiply_add<kFused>(p, f, broadcast(1.0));
    return reinterpret_cast<VecD>(reinterpret_cast<VecUL>(p) + (reinterpret_cast<VecUL>(shifted) << 52));
}

}  // namespace
}  // namespace svelto::SVELTO_NAMESPACE
