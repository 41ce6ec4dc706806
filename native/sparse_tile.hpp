// CSR queries against the same panels: only the stored features of a query are visited.
//
// Work per row and panel: two loads and two multiply-adds for every stored feature. A panel stays in the first-level
// cache while all rows of the tile pass over it.
#pragma once

#include "dense_tile.hpp"

namespace svelto::SVELTO_NAMESPACE {
namespace {

// Pair sums of one CSR row with one block. Two chains, because one would wait for the latency of the multiply-add.
template <class T, class Op>
[[gnu::always_inline]] inline void stored_sums(const T* block, const std::int32_t* offset, const T* value, int n,
                                               Vec<T> (&sum)[kBlockVectors]) {
    constexpr int W = kLanes<T>;
    Vec<T> even[kBlockVectors] = {};
    Vec<T> odd[kBlockVectors] = {};
    int i = 0;
    for (; i + 2 <= n; i += 2) {
        const T* s0 = block + offset[i];
        const T* s1 = block + offset[i + 1];
        const Vec<T> x0 = broadcast(value[i]);
        const Vec<T> x1 = broadcast(value[i + 1]);
#pragma GCC unroll 4
        for (int v = 0; v < kBlockVectors; ++v) {
            even[v] = Op::add_stored(even[v], x0, load(s0 + v * W));
            odd[v] = Op::add_stored(odd[v], x1, load(s1 + v * W));
        }
    }
    if (i < n) {
#pragma GCC unroll 4
        for (int v = 0; v < kBlockVectors; ++v)
            even[v] = Op::add_stored(even[v], broadcast(value[i]), load(block + offset[i] + v * W));
    }
#pragma GCC unroll 4
    for (int v = 0; v < kBlockVectors; ++v) sum[v] = even[v] + odd[v];
}

template <class T, class Op>
void sparse_rows(const Panels<T>& sv, const SparseRows<T>& rows, T* scratch, double* parts) {
    constexpr int W = kLanes<T>;
    constexpr int kValueStride = kChunkPanels * kPanelWidth<T>;
    const std::ptrdiff_t part_stride = static_cast<std::ptrdiff_t>(sv.n_groups) * sv.n_cols;
    const bool weighted = sv.weights != nullptr && sv.n_cols == 1;
    for (int g = 0; g < sv.n_groups; ++g) {
        for (int panel = sv.group_start[g]; panel < sv.group_start[g + 1]; panel += kChunkPanels) {
            const int end = panel + kChunkPanels < sv.group_start[g + 1] ? panel + kChunkPanels : sv.group_start[g + 1];
            const std::ptrdiff_t position = static_cast<std::ptrdiff_t>(panel) * kPanelWidth<T>;
            for (int row = 0; row < rows.n_rows; row += kSparseTileRows) {
                const int n = rows.n_rows - row < kSparseTileRows ? rows.n_rows - row : kSparseTileRows;
                Vec<T> total[kSparseTileRows] = {};
                double* to = parts + row * part_stride + g * sv.n_cols;
                for (int block = panel * kBlocksPerPanel<T>; block < end * kBlocksPerPanel<T>; ++block) {
                    const T* address = block_address(sv, block);
                    const std::ptrdiff_t lane = static_cast<std::ptrdiff_t>(block) * kBlockLanes<T>;
                    for (int r = 0; r < n; ++r) {
                        const std::int64_t start = rows.start[row + r];
                        const int stored = static_cast<int>(rows.start[row + r + 1] - start);
                        Vec<T> sum[kBlockVectors];
                        stored_sums<T, Op>(address, rows.offset + start, rows.value + start, stored, sum);
#pragma GCC unroll 4
                        for (int v = 0; v < kBlockVectors; ++v) {
                            const std::ptrdiff_t at = lane + v * W;
                            const Vec<T> value =
                                Op::stored_value(sum[v], load(sv.sparse_const + at), rows.row_const[row + r], sv);
                            if (weighted)
                                total[r] = value * load(sv.weights + at) + total[r];
                            else
                                store(scratch + r * kValueStride + (at - position), value);
                        }
                    }
                }
                if (weighted) {
                    for (int r = 0; r < n; ++r) to[r * part_stride] += lane_sum<T>(total[r]);
                } else if (sv.weights == nullptr) {
                    for (int r = 0; r < n; ++r)
                        for (int c = 0; c < kValueStride && position + c < sv.n_cols; ++c)
                            to[r * part_stride + position + c] = static_cast<double>(scratch[r * kValueStride + c]);
                } else {
                    add_weighted<T, kTileRows<T>>(scratch, kValueStride, n, sv.weights + position * sv.padded_cols,
                                                  (end - panel) * kPanelWidth<T>, sv,
                                                  scratch + kSparseTileRows * kValueStride, to, part_stride);
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
                const Vec<T> value = Op::value(load(products + at), load(sv.sparse_const + at), row_const, sv);
                if (sv.n_cols == 1)
                    total = value * load(sv.weights + at) + total;
                else
                    store(scratch + (at - first), value);
            }
            double* to = parts + g * sv.n_cols;
            if (sv.n_cols == 1)
                *to += lane_sum<T>(total);
            else
                add_weighted<T, 1>(scratch, 0, 1, sv.weights + first * sv.padded_cols, static_cast<int>(last - first), sv,
                                   scratch + kSparseTileRows * kChunkPanels * kPanelWidth<T>, to, 0);
        }
    }
}

}  // namespace
}  // namespace svelto::SVELTO_NAMESPACE
