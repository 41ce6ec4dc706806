// Dense queries against chosen panels instead of all of them, and the nearest of a set of centres.
#pragma once

#include "dense_tile.hpp"

namespace svelto::SVELTO_NAMESPACE {
namespace {

// parts[row][group][col] += the panels of the list, which ascends. Sums are made over at most kChunkPanels panels of
// one group, so they are no deeper than those of the whole sum and its rounding bound holds.
template <class T, class Op>
void chosen_panels(const Panels<T>& sv, const DenseRows<T>& rows, const std::int32_t* list, int n_list, T* scratch,
                   double* parts) {
    constexpr int kRows = kTileRows<T>;
    constexpr int kValueStride = kChunkPanels * kPanelWidth<T>;
    const std::ptrdiff_t part_stride = static_cast<std::ptrdiff_t>(sv.n_groups) * sv.n_cols;
    int g = 0;
    for (int at = 0; at < n_list;) {
        while (list[at] >= sv.group_start[g + 1]) ++g;
        int end = at + 1;
        while (end < n_list && end - at < kChunkPanels && list[end] < sv.group_start[g + 1]) ++end;
        for (int row = 0; row < rows.n_rows; row += kRows) {
            const int n = rows.n_rows - row < kRows ? rows.n_rows - row : kRows;
            const T* tile = rows.tiles + static_cast<std::ptrdiff_t>(row) * sv.d;
            double* to = parts + row * part_stride + g * sv.n_cols;
            Vec<T> total[kRows] = {};
            for (int run = at; run < end;) {
                int stop = run + 1;
                while (stop < end && list[stop] == list[stop - 1] + 1) ++stop;
                const int first = list[run] * kBlocksPerPanel<T>;
                const int last = (list[stop - 1] + 1) * kBlocksPerPanel<T>;
                if (sv.n_cols == 1) {
                    run_tile<T, Op, false>(sv, tile, rows.row_const + row, n, first, last, total, scratch, 0);
                } else {
                    run_tile<T, Op, true>(sv, tile, rows.row_const + row, n, first, last, nullptr, scratch,
                                          kValueStride);
                    add_weighted<T, kRows>(sv, static_cast<std::ptrdiff_t>(list[run]) * kPanelWidth<T>,
                                           (stop - run) * kPanelWidth<T>, scratch, kValueStride, n,
                                           scratch + kSparseTileRows * kValueStride, to, part_stride);
                }
                run = stop;
            }
            if (sv.n_cols == 1)
                for (int r = 0; r < n; ++r) to[r * part_stride] += lane_sum(total[r]);
        }
        at = end;
    }
}

// nearest[row]: the centre with the largest x.c - |c|^2 / 2. R rows at once.
template <int R>
void nearest_of(const Panels<float>& centres, const float* x, int x_stride, std::int32_t* nearest) {
    constexpr int W = kLanes<float>;
    using Op = KernelOp<float, KernelKind::linear, PairKind::dot>;
    const int n_blocks = centres.n_panels * kBlocksPerPanel<float>;
    VecF best[R];
    VecI index[R] = {};
    for (int r = 0; r < R; ++r) best[r] = broadcast(-__builtin_inff());
    VecI number;
    for (int lane = 0; lane < W; ++lane) number[lane] = lane;
    for (int block = 0; block < n_blocks; ++block) {
        const float* address[1] = {block_address(centres, block)};
        VecF sum[R][kBlockVectors];
        pair_sums<float, Op, R, 1>(x, x_stride, address, centres.d, sum);
#pragma GCC unroll 2
        for (int v = 0; v < kBlockVectors; ++v) {
            const VecF constant = load(centres.vector_const + block * kBlockLanes<float> + v * W);
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) {
                const VecF value = sum[r][v] - constant;
                const VecI better = value > best[r];
                best[r] = better ? value : best[r];
                index[r] = better ? number : index[r];
            }
            number = number + W;
        }
    }
    for (int r = 0; r < R; ++r) {
        int at = 0;
        for (int lane = 1; lane < W; ++lane)
            if (best[r][lane] > best[r][at] || (best[r][lane] == best[r][at] && index[r][lane] < index[r][at]))
                at = lane;
        nearest[r] = index[r][at];
    }
}

void nearest_centres(const Panels<float>& centres, const DenseRows<float>& rows, std::int32_t* nearest) noexcept {
    constexpr int kRows = kTileRows<float>;
    for (int row = 0; row < rows.n_rows; row += kRows) {
        const int n = rows.n_rows - row < kRows ? rows.n_rows - row : kRows;
        const float* tile = rows.tiles + static_cast<std::ptrdiff_t>(row) * centres.d;
        if (n == kRows)
            nearest_of<kRows>(centres, tile, kRows, nearest + row);
        else
            for (int r = 0; r < n; ++r) nearest_of<1>(centres, tile + r, kRows, nearest + row + r);
    }
}

}  // namespace
}  // namespace svelto::SVELTO_NAMESPACE
