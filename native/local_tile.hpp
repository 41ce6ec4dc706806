// Rows of a small kernel matrix, and the two passes over all variables that a step of its solver takes.
//
// Products are summed feature by feature in float64 and multiplication and addition round apart; extremes have one
// first place. So the answer is the same at every instruction level.
#pragma once

#include <limits>
#include <type_traits>

#include "kernel_ops.hpp"
#include "local_rows.hpp"
#include "simd.hpp"

namespace svelto::SVELTO_NAMESPACE {
namespace {

typedef float HalfF __attribute__((vector_size(kVectorBytes / 2), may_alias));

[[gnu::always_inline]] inline VecD widen(const float* p) {
#if SVELTO_LEVEL == 2
    // One instruction; GCC 12 would convert the halves apart. Zero-masked as in simd.hpp.
    return reinterpret_cast<VecD>(_mm512_maskz_cvtps_pd(0xff, _mm256_load_ps(p)));
#else
    return __builtin_convertvector(*reinterpret_cast<const HalfF*>(p), VecD);
#endif
}
[[gnu::always_inline]] inline void store_narrow(float* p, VecD v) {
    *reinterpret_cast<HalfF*>(p) = __builtin_convertvector(v, HalfF);
}

// out[j] = scaled product of the row with row j, or their scaled squared distance.
template <bool kSquared>
[[gnu::always_inline]] inline void pair_values(const PackedRows& rows, int row, float* out) {
    constexpr int W = kLanes<double>, V = kLocalBlock / W;
    const std::ptrdiff_t block_size = static_cast<std::ptrdiff_t>(rows.n_features) * kLocalBlock;
    const double* x = rows.blocks + row / kLocalBlock * block_size + row % kLocalBlock;
    for (int block = 0; block < rows.n_blocks; ++block, out += kLocalBlock) {
        const double* other = rows.blocks + block * block_size;
        // Registers of the narrow levels hold only a part of a block.
        constexpr int kAtOnce = V < 8 ? V : 8;
        for (int first = 0; first < V; first += kAtOnce) {
            VecD sum[kAtOnce] = {};
            for (int k = 0; k < rows.n_features; ++k) {
                const VecD value = broadcast(x[k * kLocalBlock]);
#pragma GCC unroll 8
                for (int v = 0; v < kAtOnce; ++v)
                    sum[v] = sum[v] + value * load(other + k * kLocalBlock + (first + v) * W);
            }
#pragma GCC unroll 8
            for (int v = 0; v < kAtOnce; ++v) {
                if constexpr (kSquared) {
                    const VecD norms = rows.sq_norms[row] + load(rows.sq_norms + block * kLocalBlock + (first + v) * W);
                    sum[v] = vmax(norms - 2.0 * sum[v], VecD{});
                }
                store_narrow(out + (first + v) * W, sum[v] * rows.scale);
            }
        }
    }
}

void pair_row(const PackedRows& rows, int row, bool squared, float* out) noexcept {
    if (squared)
        pair_values<true>(rows, row, out);
    else
        pair_values<false>(rows, row, out);
}

// out may be the same array.
void kernel_row(const PairKernel& kernel, const float* pairs, int n_padded, float* out) noexcept {
    constexpr int W = kLanes<float>;
    if (kernel.kind == KernelKind::rbf)
        for (int k = 0; k < n_padded; k += W) store(out + k, exp2_clamped<false>(load(pairs + k) * kernel.factor));
    else if (kernel.kind == KernelKind::poly)
        for (int k = 0; k < n_padded; k += W)
            store(out + k, power<float>(load(pairs + k) * kernel.factor + kernel.shift, kernel.degree));
    else if (out != pairs)
        for (int k = 0; k < n_padded; k += W) store(out + k, load(pairs + k));
}

// The largest lane. Halves are compared until few are left, in registers and without a branch: which is larger cannot
// be predicted.
template <class T, int N>
struct LaneVector {
    typedef T Type __attribute__((vector_size(N * sizeof(T))));
};
template <class T, int N = kLanes<T>>
[[gnu::always_inline]] inline T largest_lane(typename LaneVector<T, N>::Type v) {
    if constexpr (N * sizeof(T) > 16) {
        typename LaneVector<T, N / 2>::Type half[2];
        __builtin_memcpy(half, &v, sizeof v);
        return largest_lane<T, N / 2>(half[0] > half[1] ? half[0] : half[1]);
    } else if constexpr (N == 4) {
        const T a = v[0] > v[2] ? v[0] : v[2], b = v[1] > v[3] ? v[1] : v[3];
        return a > b ? a : b;
    } else {
        return v[0] > v[1] ? v[0] : v[1];
    }
}

// The first place of the largest value; `places` holds the first place of each lane's.
template <class T, class P>
[[gnu::always_inline]] inline int first_place(Vec<T> values, P places, T largest) {
    using Place = std::conditional_t<sizeof(T) == 8, std::int64_t, std::int32_t>;
    constexpr Place kNone = std::numeric_limits<std::int32_t>::min();
    return static_cast<int>(-largest_lane<Place, kLanes<T>>(values == largest ? -places : P{} + kNone));
}

// Moves `amount` from j to i, given their rows of the kernel matrix, and finds the extremes of the new slopes.
Extremes move_pair(const SolverState& state, const float* row_i, const float* row_j, double amount) noexcept {
    constexpr int W = kLanes<double>;
    constexpr double kNone = -std::numeric_limits<double>::infinity();
    const SolverState s = state;  // the compiler need not expect that a store changes it
    VecD rising = broadcast(kNone), falling = broadcast(kNone);
    VecL place{}, now;
    for (int l = 0; l < W; ++l) now[l] = l;
    for (int k = 0; k < s.n_padded; k += W) {
        const VecD slope = load(s.slope + k) - amount * (widen(row_i + k) - widen(row_j + k));
        store(s.slope + k, slope);
        const VecD fall = load(s.fall + k) - slope;
        store_narrow(s.falling + k, fall);
        falling = vmax(falling, fall);
        const VecD rise = load(s.rise + k) + slope;
        const VecL better = rise > rising;
        rising = better ? rise : rising;
        place = better ? now : place;
        now = now + W;
    }
    const double largest = largest_lane<double>(rising);
    return {largest, largest_lane<double>(falling), first_place<double>(rising, place, largest)};
}

// The j whose move to i gains most by the curvature of the pair (LIBSVM's second-order choice); -1: none can fall.
int best_partner(const SolverState& state, const float* row_i, const float* diagonal, int i, double slope_i) noexcept {
    constexpr int W = kLanes<float>;
    const SolverState s = state;
    const float slope = static_cast<float>(slope_i), own = diagonal[i];
    VecF best{};
    VecI place{}, now;
    for (int l = 0; l < W; ++l) now[l] = l;
    for (int k = 0; k < s.n_padded; k += W) {
        const VecF violation = vmax(slope + load(s.falling + k), VecF{});
        const VecF curvature =
            vmax((own + load(diagonal + k)) - 2.0f * load(row_i + k), broadcast(static_cast<float>(kLeastCurvature)));
        const VecF gain = violation * violation / curvature;
        const VecI better = gain > best;
        best = better ? gain : best;
        place = better ? now : place;
        now = now + W;
    }
    const float largest = largest_lane<float>(best);
    return largest > 0.0f ? first_place<float>(best, place, largest) : -1;
}

// slope -= amount * row
void subtract_row(double* slope, const float* row, double amount, int n_padded) noexcept {
    for (int k = 0; k < n_padded; k += kLanes<double>) store(slope + k, load(slope + k) - amount * widen(row + k));
}

}  // namespace
}  // namespace svelto::SVELTO_NAMESPACE
