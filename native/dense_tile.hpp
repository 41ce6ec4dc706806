// Dense queries: tiles of rows against panels of support vectors, kernel values made and used in registers.
//
// Work per row and support vector: d multiply-adds, about a dozen operations for the kernel value, one multiply-add for
// the weight; each loaded panel row serves all rows of the tile. Every (row, vector) pair sees the same operations in
// the same order whatever the tile shape, so a row's value does not depend on the rows beside it.
#pragma once

#include "hot.hpp"
#include "kernel_ops.hpp"
#include "simd.hpp"
#include "weighted_sum.hpp"

namespace svelto::SVELTO_NAMESPACE {
namespace {

template <class T>
constexpr int kTileRows = SVELTO_LEVEL == 2   ? 8
                          : SVELTO_LEVEL == 1 ? 6
                                              : 4;  // measured: 8 beats 14, which spills
template <class T>
constexpr int kBlockLanes = kBlockVectors * kLanes<T>;
template <class T>
constexpr int kBlocksPerPanel = kPanelWidth<T> / kBlockLanes<T>;

template <class T>
[[gnu::always_inline]] inline const T* block_address(const Panels<T>& sv, int block) {
    const std::ptrdiff_t panel = block / kBlocksPerPanel<T>;
    return sv.vectors + panel * sv.d * kPanelWidth<T> + (block % kBlocksPerPanel<T>)*kBlockLanes<T>;
}

// Pair sums of R rows (x[k * x_stride + r]) with B blocks of vectors.
template <class T, class Op, int R, int B>
[[gnu::always_inline]] inline void pair_sums(const T* x, int x_stride, const T* const (&block)[B], int d,
                                             Vec<T> (&sum)[R][B * kBlockVectors]) {
    constexpr int W = kLanes<T>;
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
        for (int v = 0; v < B * kBlockVectors; ++v) sum[r][v] = Vec<T>{};
    const auto add = [&](int first, int last, Vec<T>(&to)[R][B* kBlockVectors]) __attribute__((always_inline)) {
        for (int k = first; k < last; ++k) {
            Vec<T> s[B * kBlockVectors];
#pragma GCC unroll 8
            for (int v = 0; v < B * kBlockVectors; ++v)
                s[v] = load(block[v / kBlockVectors] + k * kPanelWidth<T> + (v % kBlockVectors) * W);
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) {
                const Vec<T> value = broadcast(x[k * x_stride + r]);
#pragma GCC unroll 8
                for (int v = 0; v < B * kBlockVectors; ++v) to[r][v] = Op::add_feature(to[r][v], value, s[v]);
            }
        }
    };
    if (d <= kFeatureBlock) {
        add(0, d, sum);
        return;
    }
    for (int k = 0; k < d; k += kFeatureBlock) {
        Vec<T> part[R][B * kBlockVectors] = {};
        add(k, k + kFeatureBlock < d ? k + kFeatureBlock : d, part);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
            for (int v = 0; v < B * kBlockVectors; ++v) sum[r][v] = sum[r][v] + part[r][v];
    }
}

// R rows, blocks [first, last): either total[r] += weight * value, or the values are stored in
// values[r * value_stride + lane position from block `first`].
template <class T, class Op, int R, int B, bool kStoreValues>
void run_blocks(const Panels<T>& sv, const T* x, int x_stride, const T* row_const, int first, int last, Vec<T>* total,
                T* values, int value_stride) {
    constexpr int W = kLanes<T>;
    for (int block = first; block < last; block += B) {
        const T* address[B];
        for (int b = 0; b < B; ++b) address[b] = block_address(sv, block + b);
        Vec<T> sum[R][B * kBlockVectors];
        pair_sums<T, Op, R, B>(x, x_stride, address, sv.d, sum);
        const std::ptrdiff_t lane = static_cast<std::ptrdiff_t>(block) * kBlockLanes<T>;
#pragma GCC unroll 8
        for (int v = 0; v < B * kBlockVectors; ++v) {
            const Vec<T> vector_const = load(sv.vector_const + lane + v * W);
            if constexpr (kStoreValues) {
                const std::ptrdiff_t to = lane - static_cast<std::ptrdiff_t>(first) * kBlockLanes<T> + v * W;
#pragma GCC unroll 8
                for (int r = 0; r < R; ++r)
                    store(values + r * value_stride + to, Op::value(sum[r][v], vector_const, row_const[r], sv));
            } else {
                const Vec<T> weight = load(sv.weights + lane + v * W);
#pragma GCC unroll 8
                for (int r = 0; r < R; ++r)
                    total[r] = fmadd(Op::value(sum[r][v], vector_const, row_const[r], sv), weight, total[r]);
            }
        }
    }
}

// Rows of one tile, at most kTileRows, in the largest pieces that fit; small pieces take several blocks at once, so
// that enough independent sums are under way.
template <class T, class Op, bool kStoreValues>
void run_tile(const Panels<T>& sv, const T* tile, const T* row_const, int n_rows, int first, int last, Vec<T>* total,
              T* values, int value_stride) {
    constexpr int kRows = kTileRows<T>;
    constexpr int kWide = SVELTO_LEVEL == 2 ? 4 : 2;
    int r = 0;
    if (n_rows == kRows) {
        run_blocks<T, Op, kRows, 1, kStoreValues>(sv, tile, kRows, row_const, first, last, total, values, value_stride);
        return;
    }
    if constexpr (kRows > 4) {
        for (; r + 4 <= n_rows; r += 4)
            run_blocks<T, Op, 4, 1, kStoreValues>(sv, tile + r, kRows, row_const + r, first, last, total + r,
                                                  values + r * value_stride, value_stride);
    }
    for (; r < n_rows; ++r) {
        const int wide_last = first + (last - first) / kWide * kWide;
        run_blocks<T, Op, 1, kWide, kStoreValues>(sv, tile + r, kRows, row_const + r, first, wide_last, total + r,
                                                  values + r * value_stride, value_stride);
        run_blocks<T, Op, 1, 1, kStoreValues>(sv, tile + r, kRows, row_const + r, wide_last, last, total + r,
                                              values + r * value_stride + (wide_last - first) * kBlockLanes<T>,
                                              value_stride);
    }
}

template <class T, class Op>
void dense_rows(const Panels<T>& sv, const DenseRows<T>& rows, T* scratch, double* parts) {
    constexpr int kRows = kTileRows<T>;
    constexpr int kValueStride = kChunkPanels * kPanelWidth<T>;
    const std::ptrdiff_t part_stride = static_cast<std::ptrdiff_t>(sv.n_groups) * sv.n_cols;
    for (int g = 0; g < sv.n_groups; ++g) {
        for (int panel = sv.group_start[g]; panel < sv.group_start[g + 1]; panel += kChunkPanels) {
            const int end = panel + kChunkPanels < sv.group_start[g + 1] ? panel + kChunkPanels : sv.group_start[g + 1];
            const int first = panel * kBlocksPerPanel<T>;
            const int last = end * kBlocksPerPanel<T>;
            const std::ptrdiff_t position = static_cast<std::ptrdiff_t>(panel) * kPanelWidth<T>;
            for (int row = 0; row < rows.n_rows; row += kRows) {
                const int n = rows.n_rows - row < kRows ? rows.n_rows - row : kRows;
                const T* tile = rows.tiles + static_cast<std::ptrdiff_t>(row) * sv.d;
                double* to = parts + row * part_stride + g * sv.n_cols;
                if (sv.weights == nullptr) {  // linear: the pair sums are the scores
                    run_tile<T, Op, true>(sv, tile, rows.row_const + row, n, first, last, nullptr, scratch,
                                          kValueStride);
                    for (int r = 0; r < n; ++r)
                        for (int c = 0; c < kValueStride && position + c < sv.n_cols; ++c)
                            to[r * part_stride + position + c] = static_cast<double>(scratch[r * kValueStride + c]);
                } else if (sv.n_cols == 1) {
                    Vec<T> total[kRows] = {};
                    run_tile<T, Op, false>(sv, tile, rows.row_const + row, n, first, last, total, scratch, 0);
                    for (int r = 0; r < n; ++r) to[r * part_stride] += lane_sum(total[r]);
                } else {
                    run_tile<T, Op, true>(sv, tile, rows.row_const + row, n, first, last, nullptr, scratch,
                                          kValueStride);
                    add_weighted<T, kRows>(sv, position, (end - panel) * kPanelWidth<T>, scratch, kValueStride, n,
                                           scratch + kSparseTileRows * kValueStride, to, part_stride);
                }
            }
        }
    }
}

}  // namespace
}  // namespace svelto::SVELTO_NAMESPACE
