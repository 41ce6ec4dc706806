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
constexpr int kWalkers = 8;

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

[[gnu::always_inline]] inline float tree_dot(const float* a, const float* b, int stride) {
    VecF sum[kTreeVectors] = {};
    for (int k = 0; k < stride; k += kTreeLanes)
#pragma GCC unroll 4
        for (int v = 0; v < kTreeVectors; ++v) {
            const int at = k + v * kLanes<float>;
            sum[v] = sum[v] + load(a + at) * load(b + at);
        }
    return tree_sum(sum);
}

[[gnu::always_inline]] inline void fetch(const float* p, int stride) {
    for (int k = 0; k < stride; k += 16) __builtin_prefetch(p + k);
}

inline void walk_rows(const Tree& tree, const float* rows, int n, std::int32_t* leaf, std::int32_t* depth) noexcept {
    for (int first = 0; first < n; first += kWalkers) {
        const int m = n - first < kWalkers ? n - first : kWalkers;
        std::int32_t node[kWalkers], steps[kWalkers] = {};
        for (int g = 0; g < m; ++g) node[g] = tree.n_inner > 0 ? 0 : ~0;
        for (bool walking = tree.n_inner > 0; walking;) {
            walking = false;
            for (int g = 0; g < m; ++g) {
                if (node[g] < 0) continue;
                const std::ptrdiff_t at = node[g];
                const float* row = rows + static_cast<std::ptrdiff_t>(first + g) * tree.stride;
                const float side = tree_dot(tree.normals + at * tree.stride, row, tree.stride) + tree.offsets[at];
                node[g] = tree.children[2 * at + (side >= 0.0f ? 1 : 0)];
                ++steps[g];
                if (node[g] < 0) continue;
                walking = true;
                fetch(tree.normals + static_cast<std::ptrdiff_t>(node[g]) * tree.stride, tree.stride);
            }
        }
        for (int g = 0; g < m; ++g) leaf[first + g] = ~node[g];
        if (depth != nullptr)
            for (int g = 0; g < m; ++g) depth[first + g] = steps[g];
    }
}

// Score and squared distance to the centre, one score a leaf.
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

// Scores of a row in its leaf, lanes are scores.
inline void leaf_many(const LeafModels& leaves, const Tree& tree, const float* row, std::ptrdiff_t leaf, float* scores,
                      float& sq_dist) {
    const float* centre = leaves.centres + leaf * tree.stride;
    const float* weight = leaves.weights + leaf * tree.d * leaves.padded;
    VecF square[kTreeVectors] = {};
    for (int k = 0; k < tree.stride; k += kTreeLanes)
        for (int v = 0; v < kTreeVectors; ++v) {
            const VecF difference = load(row + k + v * kLanes<float>) - load(centre + k + v * kLanes<float>);
            square[v] = square[v] + difference * difference;
        }
    sq_dist = tree_sum(square);
    for (int first = 0; first < leaves.padded; first += kTreeLanes) {
        VecF sum[kTreeVectors];
        for (int v = 0; v < kTreeVectors; ++v)
            sum[v] = load(leaves.values + leaf * leaves.padded + first + v * kLanes<float>);
        for (int k = 0; k < tree.d; ++k) {
            const VecF difference = broadcast(row[k] - centre[k]);
            const float* line = weight + static_cast<std::ptrdiff_t>(k) * leaves.padded + first;
#pragma GCC unroll 4
            for (int v = 0; v < kTreeVectors; ++v) sum[v] = sum[v] + difference * load(line + v * kLanes<float>);
        }
        for (int v = 0; v < kTreeVectors; ++v) store(scores + first + v * kLanes<float>, sum[v]);
    }
}

// scores[row][width] with width = 1 or padded, sq_dist[row].
inline void evaluate_leaves(const Tree& tree, const LeafModels& leaves, const float* rows, int n,
                            const std::int32_t* leaf, float* scores, float* sq_dist) noexcept {
    if (leaves.padded > 0) {
        for (int i = 0; i < n; ++i)
            leaf_many(leaves, tree, rows + static_cast<std::ptrdiff_t>(i) * tree.stride, leaf[i],
                      scores + static_cast<std::ptrdiff_t>(i) * leaves.padded, sq_dist[i]);
        return;
    }
    constexpr int kAhead = 4;
    for (int i = 0; i < n; ++i) {
        if (i + kAhead < n) {
            const std::ptrdiff_t next = static_cast<std::ptrdiff_t>(leaf[i + kAhead]) * tree.stride;
            fetch(leaves.centres + next, tree.stride);
            fetch(leaves.weights + next, tree.stride);
        }
        const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(leaf[i]) * tree.stride;
        leaf_single(rows + static_cast<std::ptrdiff_t>(i) * tree.stride, leaves.centres + at, leaves.weights + at,
                    tree.stride, leaves.values[leaf[i]], scores[i], sq_dist[i]);
    }
}

// Squared distances of one row to the rows `index`, and the sides of rows of a hyperplane: what building a tree needs.
inline void square_distances(const float* row, const float* rows, int stride, const std::int32_t* index, int n,
                             float* out) noexcept {
    for (int i = 0; i < n; ++i) {
        const float* other = rows + static_cast<std::ptrdiff_t>(index[i]) * stride;
        VecF sum[kTreeVectors] = {};
        for (int k = 0; k < stride; k += kTreeLanes)
#pragma GCC unroll 4
            for (int v = 0; v < kTreeVectors; ++v) {
                const int at = k + v * kLanes<float>;
                const VecF difference = load(row + at) - load(other + at);
                sum[v] = sum[v] + difference * difference;
            }
        out[i] = tree_sum(sum);
    }
}

inline void project_rows(const float* normal, const float* rows, int stride, const std::int32_t* index, int n,
                         float* out) noexcept {
    for (int i = 0; i < n; ++i)
        out[i] = tree_dot(normal, rows + static_cast<std::ptrdiff_t>(index[i]) * stride, stride);
}

}  // namespace
}  // namespace svelto::SVELTO_NAMESPACE
