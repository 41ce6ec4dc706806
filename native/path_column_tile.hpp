// Adding rows of a matrix to sums of its columns. Lanes are columns and nothing is fused, so a column's sum is the same
// at every instruction level and wherever its block begins.
#pragma once

#include "simd.hpp"

namespace svelto::SVELTO_NAMESPACE {
namespace {

// Rows that join a sum at a time: the sums are loaded and stored once for all of them.
constexpr int kColumnRows = 4;

template <class V>
[[gnu::always_inline]] inline V load_columns(const float* p) {
    V v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

// Columns [c, c + lanes of V) of kRows rows.
template <class V, int kRows>
[[gnu::always_inline]] inline void add_rows(const float* const* rows, const float* factor, int n_products, int c,
                                            float* sums, std::ptrdiff_t width) {
    const std::ptrdiff_t step = n_products + 1;
    V v[kRows], term[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) v[r] = load_columns<V>(rows[r] + c);
    const auto add = [&](float* to) __attribute__((always_inline)) {
        V sum = load_columns<V>(to);
        if constexpr (kRows == kColumnRows)
            sum = sum + ((term[0] + term[1]) + (term[2] + term[3]));
        else
            sum = sum + term[0];
        __builtin_memcpy(to, &sum, sizeof sum);
    };
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) term[r] = (v[r] * v[r]) * factor[r * step];
    add(sums + c);
    for (int p = 1; p <= n_products; ++p) {
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) term[r] = v[r] * factor[r * step + p];
        add(sums + p * width + c);
    }
}

// sums[0][c] += factor[i][0] rows[i][c]^2 and sums[p][c] += factor[i][p] rows[i][c], c < n_columns; sums: [..][width].
inline void add_to_columns(const float* const* rows, const float* factor, int n_rows, int n_products, int n_columns,
                           float* sums, int width) noexcept {
    const auto pass = [&]<int kRows>(int i) __attribute__((always_inline)) {
        const float* own = factor + static_cast<std::ptrdiff_t>(i) * (n_products + 1);
        int c = 0;
        for (; c + kLanes<float> <= n_columns; c += kLanes<float>)
            add_rows<VecF, kRows>(rows + i, own, n_products, c, sums, width);
        for (; c < n_columns; ++c) add_rows<float, kRows>(rows + i, own, n_products, c, sums, width);
    };
    int i = 0;
    for (; i + kColumnRows <= n_rows; i += kColumnRows) pass.template operator()<kColumnRows>(i);
    for (; i < n_rows; ++i) pass.template operator()<1>(i);
}

}  // namespace
}  // namespace svelto::SVELTO_NAMESPACE
