// Walking a metric tree and evaluating its leaves, for rows that are already packed as padded floats.
//
// A step costs one product of `stride` features. The walk of one row is a chain of dependent steps, so several rows
// walk at once and the next node's numbers are fetched while the others take their step. Multiplication and addition
// round apart (no fused instruction): the answer is the same at every instruction level.
#pragma once

#include "simd.hpp"
#include "tree.hpp"

namespace svelto::SVELTO_NAMESPACE {
namespace {

constexpr int kTreeVectors = kTreeLanes / kLanes<float>;
constexpr int kWalkers = 16;

typedef float Float8 __attribute__((vector_size(32), may_alias));
typedef float Float4 __attribute__((vector_size(16), may_alias));

// Sixteen partial sums to one: halves are added until one is left.
[[gnu::always_inline]] inline float tree_sum(const VecF (&v)[kTreeVectors]) {
    Float4 q[4];
    __builtin_memcpy(q, v, sizeof q);
    const Float4 four = (q[0] + q[2]) + (q[1] + q[3]);
    const float a = four[0] + four[2], b = four[1] + four[3];
    return a + b;
}

// Four chains of sums, so that an addition need not wait for the one before it; short rows have one.
constexpr int kChains = 4;

// Sum over features of term(first feature of a vector), in an order that depends on the stride alone.
template <class Term>
[[gnu::always_inline]] inline float feature_sum(int stride, Term term) {
    if (stride < kChains * kTreeLanes) {
        VecF sum[kTreeVectors] = {};
        for (int k = 0; k < stride; k += kTreeLanes)
#pragma GCC unroll 4
            for (int v = 0; v < kTreeVectors; ++v) sum[v] = sum[v] + term(k + v * kLanes<float>);
        return tree_sum(sum);
    }
    VecF sum[kChains][kTreeVectors] = {};
    int k = 0;
    for (; k + kChains * kTreeLanes <= stride; k += kChains * kTreeLanes)
#pragma GCC unroll 4
        for (int c = 0; c < kChains; ++c)
#pragma GCC unroll 4
            for (int v = 0; v < kTreeVectors; ++v) sum[c][v] = sum[c][v] + term(k + c * kTreeLanes + v * kLanes<float>);
    for (; k < stride; k += kTreeLanes)
#pragma GCC unroll 4
        for (int v = 0; v < kTreeVectors; ++v) sum[0][v] = sum[0][v] + term(k + v * kLanes<float>);
#pragma GCC unroll 4
    for (int v = 0; v < kTreeVectors; ++v) sum[0][v] = (sum[0][v] + sum[2][v]) + (sum[1][v] + sum[3][v]);
    return tree_sum(sum[0]);
}

[[gnu::always_inline]] inline float tree_dot(const float* a, const float* b, int stride) {
    return feature_sum(stride, [&](int k) __attribute__((always_inline)) { return load(a + k) * load(b + k); });
}

// The first lines of a row of floats; the hardware sees the pattern and brings the rest.
[[gnu::always_inline]] inline void fetch(const float* p, int stride) {
    __builtin_prefetch(p);
    if (stride > 16) __builtin_prefetch(p + 16);
    if (stride > 32) __builtin_prefetch(p + 32);
    if (stride > 48) __builtin_prefetch(p + 48);
}

[[gnu::always_inline]] inline float stored_dot(const StoredFeature* x, const StoredFeature* last, const float* weight) {
    static_assert(kStoredGroup == 4);
    float a = 0.0f, b = 0.0f, c = 0.0f, d = 0.0f;
    for (; x < last; x += kStoredGroup) {
        a += x[0].value * weight[x[0].feature];
        b += x[1].value * weight[x[1].feature];
        c += x[2].value * weight[x[2].feature];
        d += x[3].value * weight[x[3].feature];
        asm("" : "+r"(x));  // keeps the compiler from gathering sixteen at a time, which is far slower
    }
    return (a + c) + (b + d);
}

template <bool kStored>
[[gnu::always_inline]] inline float row_dot(const TreeRows& rows, int row, const float* weight, int stride) {
    if constexpr (kStored)
        return stored_dot(rows.stored + rows.start[row], rows.stored + rows.start[row + 1], weight);
    else
        return tree_dot(weight, rows.dense + static_cast<std::ptrdiff_t>(row) * stride, stride);
}

// What the row will read of `weight`: a stored row a few numbers far apart, which the hardware would not foresee.
template <bool kStored>
[[gnu::always_inline]] inline void fetch_for(const TreeRows& rows, int row, const float* weight, int stride) {
    if constexpr (kStored) {
        for (std::int32_t i = rows.start[row]; i < rows.start[row + 1]; ++i)
            __builtin_prefetch(weight + rows.stored[i].feature);
    } else {
        fetch(weight, stride);
    }
}

// The product of a row with a node's normal; kGroups > 0 says that a dense row has so many groups of lanes, which
// spares a loop and its branches.
template <bool kStored, int kGroups>
[[gnu::always_inline]] inline float step_dot(const TreeRows& rows, int row, const float* normal, int stride) {
    if constexpr (kStored || kGroups == 0) {
        return row_dot<kStored>(rows, row, normal, stride);
    } else {
        constexpr int kStride = kGroups * kTreeLanes;
        return tree_dot(normal, rows.dense + static_cast<std::ptrdiff_t>(row) * kStride, kStride);
    }
}

// Several rows walk at once; one that has reached its leaf makes room for the next.
template <bool kStored, bool kFetch, int kGroups>
inline void walk(const Tree& tree, const TreeRows& rows, std::int32_t* leaf, std::int32_t* depth) {
    const std::ptrdiff_t stride = kGroups > 0 ? kGroups * kTreeLanes : tree.stride;
    int walking = rows.n < kWalkers ? rows.n : kWalkers, next = walking;
    int row[kWalkers];
    std::int32_t node[kWalkers] = {};
    for (int g = 0; g < walking; ++g) row[g] = g;
    if (depth != nullptr)
        for (int i = 0; i < rows.n; ++i) depth[i] = 0;
    while (walking > 0) {
        for (int g = 0; g < walking;) {
            const std::ptrdiff_t at = node[g];
            const TreeNode& here = tree.nodes[at];
            const float side = step_dot<kStored, kGroups>(rows, row[g], tree.normals + at * stride, tree.stride);
            const std::int32_t child = here.child[side + here.offset >= 0.0f];  // no branch: nobody can foresee it
            if (depth != nullptr) ++depth[row[g]];
            if (child >= 0) [[likely]] {
                node[g] = child;
                if constexpr (kFetch) {
                    fetch_for<kStored>(rows, row[g], tree.normals + child * stride, static_cast<int>(stride));
                    __builtin_prefetch(tree.nodes + child);
                }
                ++g;
                continue;
            }
            leaf[row[g]] = ~child;
            node[g] = 0;
            if (next < rows.n) {
                row[g++] = next++;
            } else {
                --walking;
                row[g] = row[walking];
                node[g] = node[walking];
            }
        }
    }
}

template <bool kFetch>
inline void walk_dense(const Tree& tree, const TreeRows& rows, std::int32_t* leaf, std::int32_t* depth) {
    switch (tree.stride / kTreeLanes) {
        case 1:
            return walk<false, kFetch, 1>(tree, rows, leaf, depth);
        case 2:
            return walk<false, kFetch, 2>(tree, rows, leaf, depth);
        case 3:
            return walk<false, kFetch, 3>(tree, rows, leaf, depth);
        case 4:
            return walk<false, kFetch, 4>(tree, rows, leaf, depth);
        case 5:
            return walk<false, kFetch, 5>(tree, rows, leaf, depth);
        case 6:
            return walk<false, kFetch, 6>(tree, rows, leaf, depth);
        case 7:
            return walk<false, kFetch, 7>(tree, rows, leaf, depth);
        case 8:
            return walk<false, kFetch, 8>(tree, rows, leaf, depth);
        default:
            return walk<false, kFetch, 0>(tree, rows, leaf, depth);
    }
}

// Trees beyond this size live in slow memory: the next node is asked for as soon as it is known.
constexpr std::ptrdiff_t kFastBytes = 1 << 23;

inline void walk_rows(const Tree& tree, const TreeRows& rows, std::int32_t* leaf, std::int32_t* depth) noexcept {
    if (tree.n_inner == 0) {
        for (int i = 0; i < rows.n; ++i) leaf[i] = 0;
        for (int i = 0; i < rows.n && depth != nullptr; ++i) depth[i] = 0;
        return;
    }
    const bool large = static_cast<std::ptrdiff_t>(tree.n_inner) * tree.stride * 4 > kFastBytes;
    if (rows.stored != nullptr)
        large ? walk<true, true, 0>(tree, rows, leaf, depth) : walk<true, false, 0>(tree, rows, leaf, depth);
    else
        large ? walk_dense<true>(tree, rows, leaf, depth) : walk_dense<false>(tree, rows, leaf, depth);
}

// Score and squared distance to the centre of a dense row, one score a leaf.
[[gnu::always_inline]] inline void leaf_single(const float* row, const float* centre, const float* weight, int stride,
                                               float value, float& score, float& sq_dist) {
    VecF sum[kTreeVectors] = {}, square[kTreeVectors] = {};
    for (int k = 0; k < stride; k += kTreeLanes)
#pragma GCC unroll 4
        for (int v = 0; v < kTreeVectors; ++v) {
            const int at = k + v * kLanes<float>;
            const VecF difference = load(row + at) - load(centre + at);
            sum[v] = sum[v] + difference * load(weight + at);
            square[v] = square[v] + difference * difference;
        }
    score = tree_sum(sum) + value;
    sq_dist = tree_sum(square);
}

// scores[padded] = start + sum of x[i] * weight[feature[i]], lanes are scores; next(i, x) gives x and its feature.
template <class Next>
[[gnu::always_inline]] inline void add_columns(const float* start, const float* weight, int padded, int n, Next next,
                                               float* scores) {
    for (int first = 0; first < padded; first += kTreeLanes) {
        VecF sum[kTreeVectors];
        for (int v = 0; v < kTreeVectors; ++v) sum[v] = load(start + first + v * kLanes<float>);
        for (int i = 0; i < n; ++i) {
            int feature = 0;
            const VecF x = broadcast(next(i, feature));
            const float* line = weight + static_cast<std::ptrdiff_t>(feature) * padded + first;
#pragma GCC unroll 4
            for (int v = 0; v < kTreeVectors; ++v) sum[v] = sum[v] + x * load(line + v * kLanes<float>);
        }
        for (int v = 0; v < kTreeVectors; ++v) store(scores + first + v * kLanes<float>, sum[v]);
    }
}

template <bool kStored>
inline void evaluate(const Tree& tree, const LeafModels& leaves, const TreeRows& rows, const std::int32_t* leaf,
                     float* scores, float* sq_dist) {
    constexpr int kAhead = 4;
    for (int i = 0; i < rows.n; ++i) {
        if (i + kAhead < rows.n && leaves.padded == 0) {
            const std::ptrdiff_t next = static_cast<std::ptrdiff_t>(leaf[i + kAhead]) * tree.stride;
            fetch_for<kStored>(rows, i + kAhead, leaves.centres + next, tree.stride);
            fetch_for<kStored>(rows, i + kAhead, leaves.weights + next, tree.stride);
        }
        const std::ptrdiff_t at = leaf[i];
        const float* centre = leaves.centres + at * tree.stride;
        const float* row = kStored ? nullptr : rows.dense + static_cast<std::ptrdiff_t>(i) * tree.stride;
        if (leaves.padded == 0) {
            const float* weight = leaves.weights + at * tree.stride;
            if constexpr (kStored) {
                scores[i] = row_dot<true>(rows, i, weight, tree.stride) + leaves.bias[at];
            } else {
                leaf_single(row, centre, weight, tree.stride, leaves.values[at], scores[i], sq_dist[i]);
                continue;
            }
        } else {
            const float* weight = leaves.weights + at * tree.d * leaves.padded;
            float* to = scores + static_cast<std::ptrdiff_t>(i) * leaves.padded;
            if constexpr (kStored) {
                const StoredFeature* x = rows.stored + rows.start[i];
                const auto stored = [x](int k, int& feature) {
                    feature = x[k].feature;
                    return x[k].value;
                };
                add_columns(leaves.bias + at * leaves.padded, weight, leaves.padded, rows.start[i + 1] - rows.start[i],
                            stored, to);
            } else {
                const auto dense = [row, centre](int k, int& feature) {
                    feature = k;
                    return row[k] - centre[k];
                };
                add_columns(leaves.values + at * leaves.padded, weight, leaves.padded, tree.d, dense, to);
            }
        }
        if constexpr (kStored) {
            const float product = row_dot<true>(rows, i, centre, tree.stride);
            const float distance = (rows.sq_norm[i] + leaves.centre_sq_norm[at]) - 2.0f * product;
            sq_dist[i] = distance > 0.0f ? distance : 0.0f;
        } else {
            sq_dist[i] = feature_sum(tree.stride, [&](int k) __attribute__((always_inline)) {
                const VecF difference = load(row + k) - load(centre + k);
                return difference * difference;
            });
        }
    }
}

// scores[row][1 or padded], sq_dist[row].
inline void evaluate_leaves(const Tree& tree, const LeafModels& leaves, const TreeRows& rows, const std::int32_t* leaf,
                            float* scores, float* sq_dist) noexcept {
    if (rows.stored != nullptr)
        evaluate<true>(tree, leaves, rows, leaf, scores, sq_dist);
    else
        evaluate<false>(tree, leaves, rows, leaf, scores, sq_dist);
}

// Squared distances of one row to the rows `index`, and the sides of rows of a hyperplane: what building a tree needs.
inline void square_distances(const float* row, const float* rows, int stride, const std::int32_t* index, int n,
                             float* out) noexcept {
    for (int i = 0; i < n; ++i) {
        const float* other = rows + static_cast<std::ptrdiff_t>(index[i]) * stride;
        out[i] = feature_sum(stride, [&](int k) __attribute__((always_inline)) {
            const VecF difference = load(row + k) - load(other + k);
            return difference * difference;
        });
    }
}

inline void project_rows(const float* normal, const float* rows, int stride, const std::int32_t* index, int n,
                         float* out) noexcept {
    for (int i = 0; i < n; ++i)
        out[i] = tree_dot(normal, rows + static_cast<std::ptrdiff_t>(index[i]) * stride, stride);
}

}  // namespace
}  // namespace svelto::SVELTO_NAMESPACE
