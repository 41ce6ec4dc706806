// CSR queries against the same panels: only the stored features of a query are visited.
//
// Work per row and block of vectors: a load and a multiply-add a vector for every stored feature. The blocks at hand
// stay in the first-level cache while all rows of the run pass over them.
#pragma once

#include "dense_tile.hpp"

namespace svelto::SVELTO_NAMESPACE {
namespace {

// Pair sums of one CSR row with B blocks side by side: each loaded feature serves all of them.
template <class T, class Op, int B>
[[gnu::always_inline]] inline void stored_sums(const T* const (&block)[B], const std::int32_t* offset, const T* value,
                                               int n, Vec<T> (&sum)[B * kBlockVectors]) {
    constexpr int W = kLanes<T>;
#pragma GCC unroll 8
    for (int v = 0; v < B * kBlockVectors; ++v) sum[v] = Vec<T>{};
    for (int first = 0; first < n; first += kFeatureBlock) {
        const int last = first + kFeatureBlock < n ? first + kFeatureBlock : n;
        Vec<T> part[B * kBlockVectors] = {};
        for (int i = first; i < last; ++i) {
            const Vec<T> x = broadcast(value[i]);
#pragma GCC unroll 8
            for (int v = 0; v < B * kBlockVectors; ++v)
                part[v] =
                    Op::add_stored(part[v], x, load(block[v / kBlockVectors] + offset[i] + (v % kBlockVectors) * W));
        }
        if (n <= kFeatureBlock) {
#pragma GCC unroll 8
            for (int v = 0; v < B * kBlockVectors; ++v) sum[v] = part[v];
            return;
        }
#pragma GCC unroll 8
        for (int v = 0; v < B * kBlockVectors; ++v) sum[v] = sum[v] + part[v];
    }
}

// Rows [row, row + n) against B blocks: adds weight * value to total[r], or stores the values.
template <class T, class Op, int B, bool kStoreValues>
[[gnu::always_inline]] inline void stored_blocks(const Panels<T>& sv, const SparseRows<T>& rows, int row, int n,
                                                 int block, Vec<T>* total, T* values, int value_stride) {
    constexpr int W = kLanes<T>;
    const T* address[B];
    for (int b = 0; b < B; ++b) address[b] = block_address(sv, block + b);
    const std::ptrdiff_t lane = static_cast<std::ptrdiff_t>(block) * kBlockLanes<T>;
    for (int r = 0; r < n; ++r) {
        const std::int64_t start = rows.start[row + r];
        const int stored = static_cast<int>(rows.start[row + r + 1] - start);
        Vec<T> sum[B * kBlockVectors];
        stored_sums<T, Op, B>(address, rows.offset + start, rows.value + start, stored, sum);
#pragma GCC unroll 8
        for (int v = 0; v < B * kBlockVectors; ++v) {
            const std::ptrdiff_t at = lane + v * W;
            const Vec<T> value = Op::stored_value(sum[v], load(sv.sparse_const + at), rows.row_const[row + r], sv);
            if constexpr (kStoreValues)
                store(values + r * value_stride + v * W, value);
            else
                total[r] = fmadd(value, load(sv.weights + at), total[r]);
        }
    }
}

// Blocks [first, last) two at a time, the odd one alone; the same operations for a row either way.
template <class T, class Op, bool kStoreValues>
[[gnu::always_inline]] inline void stored_range(const Panels<T>& sv, const SparseRows<T>& rows, int row, int n,
                                                int first, int last, Vec<T>* total, T* values, int value_stride) {
    int block = first;
    for (; block + 2 <= last; block += 2)
        stored_blocks<T, Op, 2, kStoreValues>(sv, rows, row, n, block, total, values + (block - first) * kBlockLanes<T>,
                                              value_stride);
    if (block < last)
        stored_blocks<T, Op, 1, kStoreValues>(sv, rows, row, n, block, total, values + (block - first) * kBlockLanes<T>,
                                              value_stride);
}

template <class T, class Op>
void sparse_rows(const Panels<T>& sv, const SparseRows<T>& rows, T* scratch, double* parts) {
    constexpr int kValueStride = kChunkPanels * kPanelWidth<T>;
    const std::ptrdiff_t part_stride = static_cast<std::ptrdiff_t>(sv.n_groups) * sv.n_cols;
    const bool weighted = sv.weights != nullptr && sv.n_cols == 1;
    const int tile = weighted ? kSparseRunRows : kSparseTileRows;
    for (int g = 0; g < sv.n_groups; ++g) {
        for (int panel = sv.group_start[g]; panel < sv.group_start[g + 1]; panel += kChunkPanels) {
            const int end = panel + kChunkPanels < sv.group_start[g + 1] ? panel + kChunkPanels : sv.group_start[g + 1];
            const int first = panel * kBlocksPerPanel<T>;
            const int last = end * kBlocksPerPanel<T>;
            const std::ptrdiff_t position = static_cast<std::ptrdiff_t>(panel) * kPanelWidth<T>;
            for (int row = 0; row < rows.n_rows; row += tile) {
                const int n = rows.n_rows - row < tile ? rows.n_rows - row : tile;
                double* to = parts + row * part_stride + g * sv.n_cols;
                if (weighted) {
                    Vec<T> total[kSparseRunRows];
                    for (int r = 0; r < n; ++r) total[r] = Vec<T>{};
                    stored_range<T, Op, false>(sv, rows, row, n, first, last, total, scratch, 0);
                    for (int r = 0; r < n; ++r) to[r * part_stride] += lane_sum(total[r]);
                    continue;
                }
                stored_range<T, Op, true>(sv, rows, row, n, first, last, nullptr, scratch, kValueStride);
                if (sv.weights == nullptr) {
                    for (int r = 0; r < n; ++r)
                        for (int c = 0; c < kValueStride && position + c < sv.n_cols; ++c)
                            to[r * part_stride + position + c] = static_cast<double>(scratch[r * kValueStride + c]);
                } else {
                    add_weighted<T, kTileRows<T>>(sv, position, (end - panel) * kPanelWidth<T>, scratch, kValueStride,
                                                  n, scratch + kSparseTileRows * kValueStride, to, part_stride);
                }
            }
        }
    }
}

// Very sparse machines: the pair sums of one row with every vector are there already (see postings.cpp).
template <class T, class Op>
void finish_row(const Panels<T>& sv, const T* products, T row_const, T* scratch, double* parts) {
    constexpr int W = kLanes<T>;
    for (int g = 0; g < sv.n_groups; ++g) {
        for (int panel = sv.group_start[g]; panel < sv.group_start[g + 1]; panel += kChunkPanels) {
            const int end = panel + kChunkPanels < sv.group_start[g + 1] ? panel + kChunkPanels : sv.group_start[g + 1];
            const std::ptrdiff_t first = static_cast<std::ptrdiff_t>(panel) * kPanelWidth<T>;
            const std::ptrdiff_t last = static_cast<std::ptrdiff_t>(end) * kPanelWidth<T>;
            Vec<T> total{};
            for (std::ptrdiff_t at = first; at < last; at += W) {
                const Vec<T> value = Op::stored_value(load(products + at), load(sv.sparse_const + at), row_const, sv);
                if (sv.n_cols == 1)
                    total = fmadd(value, load(sv.weights + at), total);
                else
                    store(scratch + (at - first), value);
            }
            double* to = parts + g * sv.n_cols;
            if (sv.n_cols == 1)
                *to += lane_sum(total);
            else
                add_weighted<T, 1>(sv, first, static_cast<int>(last - first), scratch, 0, 1,
                                   scratch + kSparseTileRows * kChunkPanels * kPanelWidth<T>, to, 0);
        }
    }
}

}  // namespace
}  // namespace svelto::SVELTO_NAMESPACE
