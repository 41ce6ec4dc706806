// Short rows in a chain of hyperplanes, feature by feature: a vector holds one feature of several rows.
//
// No sum runs across the lanes of a vector, and a vector of rows goes on until all of them are settled. Terms are added
// in the order of tree_tile.hpp, so that a row meets the same products here as there.
#pragma once

#include "chains.hpp"
#include "tree_tile.hpp"

namespace svelto::SVELTO_NAMESPACE {
namespace {

// Longer rows are faster one by one. Measured, packing included: with 16 features this takes 0.77 times as long with
// AVX-512, 0.9 with AVX2 and 1.13 with the baseline's four lanes; with 8 features 0.55, 0.68 and 0.8.
constexpr int kMostColumns = SVELTO_LEVEL > 0 ? 16 : 8;

// A number that a template can be chosen by.
template <int kNumber>
struct Number {
    static constexpr int value = kNumber;
};

// Sum of term(k), k < kTerms <= 16: halves are added until one is left, as in tree_sum.
template <int kTerms, int kHalf, class Term>
[[gnu::always_inline]] inline VecF halved_sum(int k, Term term) {
    if constexpr (kHalf == kTreeLanes) {
        return term(k);
    } else if constexpr (kHalf >= kTerms) {
        return halved_sum<kTerms, 2 * kHalf>(k, term);  // the other half is zero
    } else {
        return halved_sum<kTerms, 2 * kHalf>(k, term) + halved_sum<kTerms, 2 * kHalf>(k + kHalf, term);
    }
}

// columns[k][row], k < kTerms, from rows that are padded with zeros to kTreeLanes.
template <int kTerms>
inline void turn(const TreeRows& rows, float* columns) {
    for (int i = 0; i < rows.n; ++i)
#pragma GCC unroll 16
        for (int k = 0; k < kTerms; ++k) columns[k * kColumnRows + i] = rows.dense[i * kTreeLanes + k];
    // The rest of the last vector of rows, which nobody asks for.
    for (int i = rows.n; i % kLanes<float> != 0; ++i)
        for (int k = 0; k < kTerms; ++k) columns[k * kColumnRows + i] = 0.0f;
}

template <int kTerms, bool kTrace>
inline void peel_turned(const Chains& chains, int first, int last, const float* columns, int n,
                        const std::int32_t* asked, std::int32_t* side, const ChainAnswers& out) {
    for (int i = 0; i < n; i += kLanes<float>) {
        VecI open = *reinterpret_cast<const VecI*>(asked + i), sides = {}, node = {};
        VecF score = {};
        for (int h = first; h < last && any_lane(open); ++h) {
            const float* plane = chains.planes + static_cast<std::ptrdiff_t>(h) * kTreeLanes;
            const VecF product = halved_sum<kTerms, 1>(0, [&](int k) __attribute__((always_inline)) {
                return load(columns + k * kColumnRows + i) * broadcast(plane[k]);
            });
            if constexpr (kTrace) {
                node = open != 0 ? VecI{} + (h - first) : node;
                score = open != 0 ? product : score;
            }
            // A comparison that holds is -1.
            sides |= ((product < chains.nodes[h].low) - (product > chains.nodes[h].high)) & open;
            open &= sides == 0;
        }
        *reinterpret_cast<VecI*>(side + i) = sides;
        if constexpr (kTrace) {
            *reinterpret_cast<VecI*>(out.node + i) = node;
            store(out.score + i, score);
        }
    }
}

// Calls visit with the number of terms of a sum over d <= kMostColumns features.
template <class Visit>
[[gnu::always_inline]] inline void with_terms(int d, Visit visit) {
    if (d <= 2) return visit(Number<2>{});
    if (d <= 4) return visit(Number<4>{});
    if (d <= 8) return visit(Number<8>{});
    if constexpr (kMostColumns > 8) visit(Number<16>{});
}

// The block feature by feature, or false where rows of this kind are faster one by one.
inline bool turn_rows(const Chains& chains, const TreeRows& rows, float* columns) noexcept {
    if (rows.stored != nullptr || chains.d > kMostColumns) return false;
    with_terms(chains.d, [&](auto terms) { turn<decltype(terms)::value>(rows, columns); });
    return true;
}

// As peel_chain, for rows that are turned.
inline int peel_columns(const Chains& chains, int first, int last, const TreeRows& rows, const float* columns,
                        std::int32_t* list, int n, const ChainAnswers& out) {
    alignas(64) std::int32_t asked[kColumnRows], side[kColumnRows];
    // Mostly it is all of them, and vectors that are written as such can be read again at once.
    for (int i = 0; i < kColumnRows; ++i) asked[i] = n == rows.n && i < n ? -1 : 0;
    for (int i = 0; i < n && n < rows.n; ++i) asked[list[i]] = -1;
    with_terms(chains.d, [&](auto terms) {
        constexpr int kTerms = decltype(terms)::value;
        out.node != nullptr ? peel_turned<kTerms, true>(chains, first, last, columns, rows.n, asked, side, out)
                            : peel_turned<kTerms, false>(chains, first, last, columns, rows.n, asked, side, out);
    });
    int kept = 0;
    for (int i = 0; i < n; ++i) {
        const std::int32_t row = list[i];
        out.outcome[row] = static_cast<std::int8_t>(side[row]);
        list[kept] = row;
        kept += side[row] == 0;
    }
    return kept;
}

}  // namespace
}  // namespace svelto::SVELTO_NAMESPACE
