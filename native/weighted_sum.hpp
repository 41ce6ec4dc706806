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
                for (int v = 0; v < V; ++v) acc[r][v] = fmadd(value, w[v], acc[r][v]);
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

// Few columns: parts[r][c] += sum_s values[r][s] weights[c][s] for R rows and C columns, the lanes running over s.
template <class T, int R, int C>
[[gnu::always_inline]] inline void multiply_columns(const T* values, int value_stride, const T* weights,
                                                    std::ptrdiff_t column_stride, int n_values, double* parts,
                                                    std::ptrdiff_t part_stride) {
    constexpr int W = kLanes<T>;
    Vec<T> acc[R][C] = {};
    for (int s = 0; s < n_values; s += W) {
        Vec<T> w[C];
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) w[c] = load(weights + c * column_stride + s);
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
            const Vec<T> value = load(values + r * value_stride + s);
#pragma GCC unroll 4
            for (int c = 0; c < C; ++c) acc[r][c] = fmadd(value, w[c], acc[r][c]);
        }
    }
    for (int r = 0; r < R; ++r)
        for (int c = 0; c < C; ++c) parts[r * part_stride + c] += lane_sum(acc[r][c]);
}

template <class T, int R>
void multiply_few(const Panels<T>& sv, const T* values, int value_stride, const T* weights, int n_values, double* parts,
                  std::ptrdiff_t part_stride) {
    const std::ptrdiff_t stride = static_cast<std::ptrdiff_t>(sv.n_panels) * kPanelWidth<T>;
    int c = 0;
    while (c < sv.n_cols) {
        const int left = sv.n_cols - c;
        const T* from = weights + c * stride;
        double* to = parts + c;
        // 5 columns as 3 + 2 rather than 4 + 1: a lone column waits for loads.
        if (left == 4 || left > 6) {
            multiply_columns<T, R, 4>(values, value_stride, from, stride, n_values, to, part_stride);
            c += 4;
        } else if (left == 3 || left > 4) {
            multiply_columns<T, R, 3>(values, value_stride, from, stride, n_values, to, part_stride);
            c += 3;
        } else if (left == 2) {
            multiply_columns<T, R, 2>(values, value_stride, from, stride, n_values, to, part_stride);
            c += 2;
        } else {
            multiply_columns<T, R, 1>(values, value_stride, from, stride, n_values, to, part_stride);
            c += 1;
        }
    }
}

// parts[r][col] += the weighted sums of a tile's kernel values ([n_rows][value_stride], vectors from `position` on).
template <class T, int kRows>
void add_weighted(const Panels<T>& sv, std::ptrdiff_t position, int n_values, const T* values, int value_stride,
                  int n_rows, T* sums, double* parts, std::ptrdiff_t part_stride) {
    int r = 0;
    if (sv.by_column) {
        const T* weights = sv.weights + position;
        for (; r + 4 <= n_rows; r += 4)
            multiply_few<T, 4>(sv, values + r * value_stride, value_stride, weights, n_values, parts + r * part_stride,
                               part_stride);
        for (; r < n_rows; ++r)
            multiply_few<T, 1>(sv, values + r * value_stride, value_stride, weights, n_values, parts + r * part_stride,
                               part_stride);
        return;
    }
    const int padded = sv.padded_cols;
    const T* weights = sv.weights + position * padded;
    for (int i = 0; i < n_rows * padded; ++i) sums[i] = T{0};
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
