// From the kernel values of a tile to weighted sums with several columns of weights.
#pragma once

#include "hot.hpp"
#include "simd.hpp"

namespace svelto::SVELTO_NAMESPACE {
namespace {

// Vectors of a block that a tile works on at once: two hide the latency of the multiply-add.
constexpr int kBlockVectors = 2;

// Kernel values added one after the other before the sum moves to the next level: keeps the rounding of the long sum
// at (64 + chunk / 64) units instead of thousands.
constexpr int kProductDepth = 64;

// sums[r][c] += sum_s values[r][s] weights[s][c] for R rows and V vectors of columns.
template <class T, int R, int V>
[[gnu::always_inline]] inline void multiply_weights(const T* values, int value_stride, const T* weights, int n_values,
                                                    int padded_cols, T* sums) {
    constexpr int W = kLanes<T>;
    for (int first = 0; first < n_values; first += kProductDepth) {
        const int last = first + kProductDepth < n_values ? first + kProductDepth : n_values;
        Vec<T> acc[R][V] = {};
        for (int s = first; s < last; ++s) {
            Vec<T> w[V];
#pragma GCC unroll 4
            for (int v = 0; v < V; ++v) w[v] = load(weights + static_cast<std::ptrdiff_t>(s) * padded_cols + v * W);
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) {
                const Vec<T> value = broadcast(values[r * value_stride + s]);
#pragma GCC unroll 4
                for (int v = 0; v < V; ++v) acc[r][v] = value * w[v] + acc[r][v];
            }
        }
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
            for (int v = 0; v < V; ++v) {
                T* to = sums + r * padded_cols + v * W;
                store(to, load(to) + acc[r][v]);
            }
        }
    }
}

template <class T, int R>
void multiply_rows(const T* values, int value_stride, const T* weights, int n_values, int padded_cols, T* sums) {
    constexpr int W = kLanes<T>;
    int c = 0;
    for (; c + 2 * W <= padded_cols; c += 2 * W)
        multiply_weights<T, R, 2>(values, value_stride, weights + c, n_values, padded_cols, sums + c);
    for (; c < padded_cols; c += W)
        multiply_weights<T, R, 1>(values, value_stride, weights + c, n_values, padded_cols, sums + c);
}

// parts[r][col] += the tile's weighted sums; `values` is [n_rows][value_stride], `parts` has row stride part_stride.
template <class T, int kRows>
void add_weighted(const T* values, int value_stride, int n_rows, const T* weights, int n_values, const Panels<T>& sv,
                  T* sums, double* parts, std::ptrdiff_t part_stride) {
    const int padded = sv.padded_cols;
    for (int i = 0; i < n_rows * padded; ++i) sums[i] = T{0};
    int r = 0;
    for (; r + kRows <= n_rows; r += kRows)
        multiply_rows<T, kRows>(values + r * value_stride, value_stride, weights, n_values, padded, sums + r * padded);
    for (; r + 4 <= n_rows; r += 4)
        multiply_rows<T, 4>(values + r * value_stride, value_stride, weights, n_values, padded, sums + r * padded);
    for (; r < n_rows; ++r)
        multiply_rows<T, 1>(values + r * value_stride, value_stride, weights, n_values, padded, sums + r * padded);
    for (r = 0; r < n_rows; ++r)
        for (int c = 0; c < sv.n_cols; ++c) parts[r * part_stride + c] += static_cast<double>(sums[r * padded + c]);
}

}  // namespace
}  // namespace svelto::SVELTO_NAMESPACE
