// Scores of hinging hyperplanes, for rows that are already packed as floats.
//
// Lanes are columns. A tile of rows goes over the inputs once, with some vectors of columns for every row in registers.
// A column adds one input after another to its bias, in the order of inputs, whatever the tile: a row's scores do not
// depend on the rows beside it. An input that is zero changes no sum, so that a row that brings its stored features
// only gets the scores of the same row with its zeros. Levels differ in rounding: those above the baseline multiply and
// add in one rounding; the last sum over hinges runs in as many partial sums as the level has lanes, or in two for a
// few scores with AVX-512.
#pragma once

#include "hinges.hpp"
#include "simd.hpp"

namespace svelto::SVELTO_NAMESPACE {
namespace {

// Vectors of columns that a tile holds, and rows, so that all sums stay in registers (32 of them with AVX-512, else 16)
// and there are enough of them that none waits for its last addition.
constexpr int kHingeVectors = 3;
template <int kVectors>
constexpr int kHingeRows = SVELTO_LEVEL == 2 || kVectors == 1 ? 8 : 4;
// The same for a row with stored features, which has no others beside it.
constexpr int kStoredVectors = 6;

// What becomes of the sum of a column.
enum class ColumnShape { hinge, bump, score };

// One layer over a block of rows: where its inputs are, and where its columns go.
struct HingePass {
    const HingeLayer& layer;
    int n_rows;
    int n_scores;
    const float* inputs;  // [n_rows][input_stride]; null: stored features
    std::ptrdiff_t input_stride;
    const TreeRows& rows;
    const float* before;  // the columns of the layer before, scores first; null: there is none
    std::ptrdiff_t before_stride;
    float* to;  // [n_rows][to_stride]; with mix one vector a row
    std::ptrdiff_t to_stride;
    const float* mix;  // null: columns are stored
    ColumnShape shape = ColumnShape::hinge;
    const float* row_const = nullptr;  // [n_rows], taken off the exponents of bumps
};

// What the columns of rows start from: the bias, and scores from what they were.
template <int kRows, int kVectors>
[[gnu::always_inline]] inline void start_sums(const HingePass& pass, int row, int column,
                                              VecF (&sum)[kRows][kVectors]) {
#pragma GCC unroll 6
    for (int v = 0; v < kVectors; ++v) {
        const VecF bias = load(pass.layer.bias + column + v * kLanes<float>);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) sum[r][v] = bias;
    }
    if (pass.before == nullptr || column >= pass.n_scores) return;
    const float* before = pass.before + row * pass.before_stride + column;
#pragma GCC unroll 6
    for (int v = 0; v < kVectors; ++v) {
        const int lane = v * kLanes<float>;
        if (column + lane >= pass.n_scores) return;
        const VecI is_score = load(pass.layer.floor + column + lane) < 0.0f;
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
            const VecF score = load(before + r * pass.before_stride + lane);
            sum[r][v] = sum[r][v] + reinterpret_cast<VecF>(reinterpret_cast<VecI>(score) & is_score);
        }
    }
}

// Columns from their sums: stored, or mixed into one vector of partial sums.
template <int kRows, int kVectors, class Shape>
[[gnu::always_inline]] inline void finish_shaped(const HingePass& pass, int row, int column,
                                                 const VecF (&sum)[kRows][kVectors], Shape shape) {
    const std::ptrdiff_t stride = pass.to_stride;
    float* to = pass.to + row * stride;
    VecF floor[kVectors], mix[kVectors];
#pragma GCC unroll 6
    for (int v = 0; v < kVectors; ++v) floor[v] = load(pass.layer.floor + column + v * kLanes<float>);
    if (pass.mix == nullptr) {
        to += column;
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 6
            for (int v = 0; v < kVectors; ++v)
                store(to + r * stride + v * kLanes<float>, shape(floor[v], sum[r][v], r));
        return;
    }
#pragma GCC unroll 6
    for (int v = 0; v < kVectors; ++v) mix[v] = load(pass.mix + column + v * kLanes<float>);
    const bool first = column == 0;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
        VecF mixed = first ? VecF{} : load(to + r * stride);
#pragma GCC unroll 6
        for (int v = 0; v < kVectors; ++v) mixed = fmadd(shape(floor[v], sum[r][v], r), mix[v], mixed);
        store(to + r * stride, mixed);
    }
}

template <int kRows, int kVectors>
[[gnu::always_inline]] inline void finish_sums(const HingePass& pass, int row, int column,
                                               const VecF (&sum)[kRows][kVectors]) {
    if (pass.shape == ColumnShape::hinge) {
        // In this order NaN stays NaN.
        finish_shaped(pass, row, column, sum, [](VecF floor, VecF value, int) { return vmax(floor, value); });
    } else if (pass.shape == ColumnShape::bump) {
        const float* row_const = pass.row_const + row;
        finish_shaped(pass, row, column, sum,
                      [=](VecF, VecF value, int r) { return exp2_clamped(value - broadcast(row_const[r])); });
    } else {
        // x - x is 0 for finite x and NaN otherwise: a score that is no finite number decides nothing.
        finish_shaped(pass, row, column, sum, [](VecF, VecF value, int) { return value + (value - value); });
    }
}

// The columns [column, column + vectors) of the rows [row, row + kRows).
template <int kRows, int kVectors>
inline void hinge_tile(const HingePass& pass, int row, int column) {
    VecF sum[kRows][kVectors];
    start_sums(pass, row, column, sum);
    const std::ptrdiff_t stride = pass.input_stride, width = pass.layer.width;
    const float* inputs = pass.inputs + row * stride;
    const float* weights = pass.layer.weights + column;
    for (int k = 0, n = pass.layer.n_inputs; k < n; ++k, weights += width) {
        VecF weight[kVectors];
#pragma GCC unroll 3
        for (int v = 0; v < kVectors; ++v) weight[v] = load(weights + v * kLanes<float>);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
            const VecF x = broadcast(inputs[r * stride + k]);
#pragma GCC unroll 3
            for (int v = 0; v < kVectors; ++v) sum[r][v] = fmadd(x, weight[v], sum[r][v]);
        }
    }
    finish_sums(pass, row, column, sum);
}

// Whole tiles from `row` on, then smaller ones.
template <int kRows, int kVectors>
inline void hinge_tiles(const HingePass& pass, int row, int column) {
    for (; row + kRows <= pass.n_rows; row += kRows) hinge_tile<kRows, kVectors>(pass, row, column);
    if constexpr (kRows > 1) {
        if (row < pass.n_rows) hinge_tiles<kRows / 2, kVectors>(pass, row, column);
    }
}

template <int kVectors>
inline void stored_hinges(const HingePass& pass, int column) {
    const float* weights = pass.layer.weights + column;
    const std::ptrdiff_t width = pass.layer.width;
    for (int row = 0; row < pass.n_rows; ++row) {
        VecF sum[1][kVectors];
        start_sums(pass, row, column, sum);
        const StoredFeature* const last = pass.rows.stored + pass.rows.start[row + 1];
        for (const StoredFeature* x = pass.rows.stored + pass.rows.start[row]; x < last; ++x) {
            const VecF value = broadcast(x->value);
            const float* weight = weights + x->feature * width;
#pragma GCC unroll 6
            for (int v = 0; v < kVectors; ++v) sum[0][v] = fmadd(value, load(weight + v * kLanes<float>), sum[0][v]);
        }
        finish_sums(pass, row, column, sum);
    }
}

// Some vectors of columns of all rows; n_vectors <= kVectors.
template <int kVectors>
inline void hinge_group(const HingePass& pass, int column, int n_vectors) {
    if constexpr (kVectors > 1) {
        if (n_vectors < kVectors) return hinge_group<kVectors - 1>(pass, column, n_vectors);
    }
    if (pass.inputs == nullptr) return stored_hinges<kVectors>(pass, column);
    if constexpr (kVectors <= kHingeVectors) hinge_tiles<kHingeRows<kVectors>, kVectors>(pass, 0, column);
}

// The weights of a group of columns stay in the fast cache while all rows of the block pass over them.
inline void hinge_pass(const HingePass& pass) {
    const int most = pass.inputs == nullptr ? kStoredVectors : kHingeVectors;
    int vectors = (pass.layer.n_columns + kLanes<float> - 1) / kLanes<float>, column = 0;
    while (vectors > 0) {
        const int groups = (vectors + most - 1) / most, size = (vectors + groups - 1) / groups;
        hinge_group<kStoredVectors>(pass, column, size);
        column += size * kLanes<float>;
        vectors -= size;
    }
}

#if SVELTO_LEVEL == 2
// A few scores from the columns of the last layer, two of which share a vector: lanes 2p and 2p + 1 are sums for score
// p.
template <int kRows>
inline void paired_tile(const HingePass& pass, const float* paired, int row) {
    const float* inputs = pass.inputs + row * pass.input_stride;
    VecF sum[kRows];
    for (int r = 0; r < kRows; ++r) {
        VecF begin = load(pass.layer.bias);
        if (pass.before != nullptr) begin += load_any(pass.before + (row + r) * pass.before_stride);
        const auto scores = static_cast<__mmask16>(0x5555u & ((1u << 2 * pass.n_scores) - 1u));
        sum[r] = reinterpret_cast<VecF>(_mm512_maskz_expand_ps(scores, reinterpret_cast<__m512>(begin)));
    }
    const int n = pass.layer.n_inputs;
    for (int k = 0; k + 1 < n; k += 2) {
        const VecF weight = load(paired + k / 2 * kTreeLanes);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
            double two;
            __builtin_memcpy(&two, inputs + r * pass.input_stride + k, sizeof two);
            sum[r] = fmadd(reinterpret_cast<VecF>(_mm512_set1_pd(two)), weight, sum[r]);
        }
    }
    if (n % 2 == 1) {  // the other weights are zeros
        const VecF weight = load(paired + n / 2 * kTreeLanes);
        for (int r = 0; r < kRows; ++r)
            sum[r] = fmadd(broadcast(inputs[r * pass.input_stride + n - 1]), weight, sum[r]);
    }
    for (int r = 0; r < kRows; ++r) {
        const auto sums = reinterpret_cast<__m512>(sum[r]);
        const VecF both = sum[r] + reinterpret_cast<VecF>(_mm512_maskz_permute_ps(0xffff, sums, 0xb1));
        const VecF score = reinterpret_cast<VecF>(_mm512_maskz_compress_ps(0x5555, reinterpret_cast<__m512>(both)));
        store(pass.to + (row + r) * pass.to_stride, score + (score - score));  // as ColumnShape::score
    }
}

template <int kRows>
inline void paired_tiles(const HingePass& pass, const float* paired, int row) {
    for (; row + kRows <= pass.n_rows; row += kRows) paired_tile<kRows>(pass, paired, row);
    if constexpr (kRows > 1) {
        if (row < pass.n_rows) paired_tiles<kRows / 2>(pass, paired, row);
    }
}
#endif

// The last pass of several scores.
inline void score_pass(const HingePass& pass, [[maybe_unused]] const float* paired) {
#if SVELTO_LEVEL == 2
    if (paired != nullptr) return paired_tiles<8>(pass, paired, 0);
#endif
    hinge_pass(pass);
}

// The sum of the lanes, halves added until one is left.
[[gnu::always_inline]] inline float mixed_sum(const float* mixed) {
    typedef float Quarter __attribute__((vector_size(16), may_alias));
    const Quarter* part = reinterpret_cast<const Quarter*>(mixed);
    Quarter four = part[0];
    if constexpr (kLanes<float> == 8) four = part[0] + part[1];
    if constexpr (kLanes<float> == 16) four = (part[0] + part[2]) + (part[1] + part[3]);
    return (four[0] + four[2]) + (four[1] + four[3]);
}

// factor |x|^2 of every row. A feature has its place among the partial sums, so that zeros may be left out.
inline void square_norms(const TreeRows& rows, int d, float factor, float* out) noexcept {
    constexpr int kParts = kTreeLanes / kLanes<float>;
    alignas(64) float part[kTreeLanes];
    for (int i = 0; i < rows.n; ++i) {
        if (rows.stored != nullptr) {
            for (float& sum : part) sum = 0.0f;
            for (int k = rows.start[i]; k < rows.start[i + 1]; ++k) {
                const StoredFeature x = rows.stored[k];
                part[x.feature % kTreeLanes] += x.value * x.value;
            }
        } else {
            const float* x = rows.dense + static_cast<std::ptrdiff_t>(i) * d;
            VecF sum[kParts] = {};
            for (int k = 0; k < d; k += kTreeLanes)
                for (int v = 0; v < kParts && k + v * kLanes<float> < d; ++v) {
                    const int at = k + v * kLanes<float>;
                    const VecF values = load_first(x + at, d - at);
                    sum[v] = sum[v] + values * values;
                }
            for (int v = 0; v < kParts; ++v) store(part + v * kLanes<float>, sum[v]);
        }
        for (int left = kParts / 2; left > 0; left /= 2)  // until they fill one vector
            for (int v = 0; v < left; ++v) {
                float* const to = part + v * kLanes<float>;
                store(to, load(to) + load(to + left * kLanes<float>));
            }
        out[i] = factor * mixed_sum(part);
    }
}

// The same for bumps. A row far from all of them has the scores of none, even where |x|^2 is too large for a float.
inline void evaluate_bumps(const Hinges& bumps, const TreeRows& rows, float* scratch, float* scores) noexcept {
    const HingeLayer& layer = bumps.layers[0];
    const bool single = bumps.n_scores == 1;
    const std::ptrdiff_t stride = single ? kLanes<float> : layer.width;
    float* const row_const = scratch + rows.n * stride;
    square_norms(rows, bumps.d, bumps.row_weight, row_const);
    hinge_pass({layer, rows.n, 0, rows.stored != nullptr ? nullptr : rows.dense, bumps.d, rows, nullptr, 0, scratch,
                stride, single ? bumps.mix : nullptr, ColumnShape::bump, row_const});
    if (single) {
        for (int i = 0; i < rows.n; ++i) {
            const float score = mixed_sum(scratch + i * kLanes<float>) + bumps.intercept;
            scores[i] = score + (score - score);
        }
        return;
    }
    score_pass({bumps.last, rows.n, bumps.n_scores, scratch, stride, rows, nullptr, 0, scores, bumps.padded, nullptr,
                ColumnShape::score},
               bumps.paired);
}

// scores[row][padded], NaN where a number on the way was too large for a float. scratch: the columns of all layers.
inline void evaluate_hinges(const Hinges& hinges, const TreeRows& rows, float* scratch, float* scores) noexcept {
    if (hinges.bumps) return evaluate_bumps(hinges, rows, scratch, scores);
    const bool stored = rows.stored != nullptr;
    const float *inputs = stored ? nullptr : rows.dense, *before = nullptr;
    std::ptrdiff_t input_stride = hinges.d, before_stride = 0;
    for (int l = 0; l < hinges.n_layers; ++l) {
        const HingeLayer& layer = hinges.layers[l];
        const bool mixes = hinges.n_scores == 1 && l == hinges.n_layers - 1;
        const std::ptrdiff_t stride = mixes ? kLanes<float> : layer.width;
        hinge_pass({layer, rows.n, hinges.n_scores, inputs, input_stride, rows, before, before_stride, scratch, stride,
                    mixes ? hinges.mix : nullptr});
        before = scratch;
        before_stride = input_stride = stride;
        inputs = scratch + hinges.n_scores;
        scratch += rows.n * stride;
    }
    if (hinges.n_scores == 1) {
        for (int i = 0; i < rows.n; ++i) {
            const float score = mixed_sum(before + i * kLanes<float>);
            scores[i] = score + (score - score);
        }
        return;
    }
    score_pass({hinges.last, rows.n, hinges.n_scores, inputs, input_stride, rows, before, before_stride, scores,
                hinges.padded, nullptr, ColumnShape::score},
               hinges.paired);
}

}  // namespace
}  // namespace svelto::SVELTO_NAMESPACE
