// Walking a tree of kernel values and evaluating its leaves, for rows that are already packed.
//
// Sixteen rows walk at once, one step each: first their sums over features, then the kernel function of all sixteen
// together, then their tests. Nothing is fused and sums run in sixteen parts (tree_tile.hpp): a row meets the same
// values, the same leaf and the same score at every instruction level and beside any other rows.
#pragma once

#include "kernel_ops.hpp"
#include "path_tree.hpp"
#include "tree_tile.hpp"

namespace svelto::SVELTO_NAMESPACE {
namespace {

static_assert(kWalkers == kTreeLanes);

// Sum over the stored features of |x - s| - |s|; features that are not stored would add nothing.
[[gnu::always_inline]] inline float stored_abs(const StoredFeature* x, const StoredFeature* last, const float* s) {
    static_assert(kStoredGroup == 4);
    const auto term = [s](const StoredFeature& at) __attribute__((always_inline)) {
        return __builtin_fabsf(at.value - s[at.feature]) - __builtin_fabsf(s[at.feature]);
    };
    float a = 0.0f, b = 0.0f, c = 0.0f, d = 0.0f;
    for (; x < last; x += kStoredGroup) {
        a += term(x[0]);
        b += term(x[1]);
        c += term(x[2]);
        d += term(x[3]);
        asm("" : "+r"(x));  // as in stored_dot
    }
    return (a + c) + (b + d);
}

// x.s, |x - s|^2 or |x - s|_1 of a row and a node's vector; kGroups as in step_dot.
template <PairKind kPair, bool kStored, int kGroups>
[[gnu::always_inline]] inline float pair_sum(const TreeRows& rows, int row, const PathNode& node, const float* vector,
                                             int stride) {
    if constexpr (kStored) {
        if constexpr (kPair == PairKind::dot) return row_dot<true>(rows, row, vector, stride);
        float sum = 0.0f;
        if constexpr (kPair == PairKind::sq_diff)
            sum = (rows.sq_norm[row] + node.sq_norm) - 2.0f * row_dot<true>(rows, row, vector, stride);
        else
            sum = node.abs_sum + stored_abs(rows.stored + rows.start[row], rows.stored + rows.start[row + 1], vector);
        return sum < 0.0f ? 0.0f : sum;  // a NaN stays one
    } else {
        if constexpr (kGroups > 0) stride = kGroups * kTreeLanes;
        const float* x = rows.dense + static_cast<std::ptrdiff_t>(row) * stride;
        return feature_sum(stride, [&](int k) __attribute__((always_inline)) {
            const VecF a = load(x + k), b = load(vector + k);
            if constexpr (kPair == PairKind::dot) return a * b;
            const VecF difference = a - b;
            if constexpr (kPair == PairKind::abs_diff) return vabs(difference);
            return difference * difference;
        });
    }
}

// Sums over features to kernel values, n of them (and what follows in their vector) in place. A NaN stays one: such a
// row is not to be trusted.
inline void kernel_values(const PathTree& tree, float* sums, int n) {
    for (int v = 0; v < n; v += kLanes<float>) {
        const VecF sum = load(sums + v);
        VecF value = sum;
        switch (tree.kernel) {
            case KernelKind::rbf:
            case KernelKind::laplacian:
                value = exp2_clamped<false>(sum * tree.scale);
                break;
            case KernelKind::exponential:
                value = exp2_clamped<false>(vsqrt(sum) * tree.scale);
                break;
            case KernelKind::poly:
                value = power<float>(sum * tree.scale + tree.coef0, tree.degree);
                break;
            case KernelKind::sigmoid:
                value = tanh_lanes<float, false>(sum * tree.scale + tree.coef0);
                break;
            case KernelKind::linear:
                break;
        }
        store(sums + v, sum == sum ? value : sum);
    }
}

// Where the path's values lead from a node.
[[gnu::always_inline]] inline std::int32_t step(const PathNode& node, const float* path) {
    return node.child[!(path[node.test] <= node.threshold)];  // no branch: nobody can foresee it
}

// On to the next node that evaluates something, or to a leaf.
[[gnu::always_inline]] inline std::int32_t pass_tests(const PathTree& tree, std::int32_t at, const float* path) {
    while (at >= 0 && tree.nodes[at].vector < 0) at = step(tree.nodes[at], path);
    return at;
}

template <PairKind kPair, bool kStored, int kGroups>
inline void walk_values(const PathTree& tree, const TreeRows& rows, const PathValues& out) {
    const std::ptrdiff_t stride = kGroups > 0 ? kGroups * kTreeLanes : tree.stride, width = out.width;
    for (int i = 0; i < rows.n; ++i) {
        out.count[i] = 0;
        out.path[i * width] = 0.0f;  // what a node without a test looks at before there are values
    }
    const std::int32_t start = pass_tests(tree, 0, out.path);
    if (start < 0) {
        for (int i = 0; i < rows.n; ++i) out.leaf[i] = ~start;
        return;
    }
    int walking = rows.n < kWalkers ? rows.n : kWalkers, next = walking;
    int row[kWalkers];
    std::int32_t node[kWalkers];
    alignas(64) float value[kTreeLanes] = {};
    for (int g = 0; g < walking; ++g) {
        row[g] = g;
        node[g] = start;
    }
    while (walking > 0) {
        for (int g = 0; g < walking; ++g) {
            const PathNode& here = tree.nodes[node[g]];
            value[g] = pair_sum<kPair, kStored, kGroups>(rows, row[g], here, tree.vectors + here.vector * stride,
                                                         static_cast<int>(stride));
        }
        kernel_values(tree, value, walking);
        for (int g = 0; g < walking;) {
            float* path = out.path + row[g] * width;
            path[out.count[row[g]]++] = value[g];
            const std::int32_t at = pass_tests(tree, step(tree.nodes[node[g]], path), path);
            if (at >= 0) [[likely]] {
                node[g] = at;
                fetch_for<kStored>(rows, row[g], tree.vectors + tree.nodes[at].vector * stride,
                                   static_cast<int>(stride));
                ++g;
                continue;
            }
            out.leaf[row[g]] = ~at;
            if (next < rows.n) {
                node[g] = start;
                row[g++] = next++;
            } else {
                --walking;
                row[g] = row[walking];
                node[g] = node[walking];
                value[g] = value[walking];
            }
        }
    }
}

template <PairKind kPair>
inline void walk_pairs(const PathTree& tree, const TreeRows& rows, const PathValues& out) {
    if (rows.stored != nullptr) return walk_values<kPair, true, 0>(tree, rows, out);
    switch (tree.stride / kTreeLanes) {
        case 1:
            return walk_values<kPair, false, 1>(tree, rows, out);
        case 2:
            return walk_values<kPair, false, 2>(tree, rows, out);
        case 3:
            return walk_values<kPair, false, 3>(tree, rows, out);
        case 4:
            return walk_values<kPair, false, 4>(tree, rows, out);
        default:
            return walk_values<kPair, false, 0>(tree, rows, out);
    }
}

inline void walk_paths(const PathTree& tree, const TreeRows& rows, const PathValues& out) noexcept {
    switch (tree.kernel) {
        case KernelKind::rbf:
        case KernelKind::exponential:
            return walk_pairs<PairKind::sq_diff>(tree, rows, out);
        case KernelKind::laplacian:
            return walk_pairs<PairKind::abs_diff>(tree, rows, out);
        default:
            return walk_pairs<PairKind::dot>(tree, rows, out);
    }
}

[[gnu::always_inline]] inline float path_dot(const float* coef, const float* path, int n) {
    float even = 0.0f, odd = 0.0f;
    int h = 0;
    for (; h + 2 <= n; h += 2) {
        even += coef[h] * path[h];
        odd += coef[h + 1] * path[h + 1];
    }
    if (h < n) even += coef[h] * path[h];
    return even + odd;
}

template <bool kStored>
inline void evaluate_row(const PathTree& tree, const PathLeaves& leaves, const TreeRows& rows, const PathValues& of,
                         int i, float* scores) {
    const std::ptrdiff_t at = of.leaf[i];
    const float* path = of.path + static_cast<std::ptrdiff_t>(i) * of.width;
    if (leaves.padded == 0) {
        float score = leaves.constant[at] + path_dot(leaves.coef + at * tree.height, path, of.count[i]);
        if (leaves.slope != nullptr) score += row_dot<kStored>(rows, i, leaves.slope + at * tree.stride, tree.stride);
        scores[i] = score;
        return;
    }
    float* to = scores + static_cast<std::ptrdiff_t>(i) * leaves.padded;
    const auto value = [path](int h, int& line) {
        line = h;
        return path[h];
    };
    add_columns(leaves.constant + at * leaves.padded, leaves.coef + at * tree.height * leaves.padded, leaves.padded,
                of.count[i], value, to);
    if (leaves.slope == nullptr) return;
    const float* slope = leaves.slope + at * tree.d * leaves.padded;
    if constexpr (kStored) {
        const StoredFeature* x = rows.stored + rows.start[i];
        const auto stored = [x](int k, int& feature) {
            feature = x[k].feature;
            return x[k].value;
        };
        add_columns(to, slope, leaves.padded, rows.start[i + 1] - rows.start[i], stored, to);
    } else {
        const float* x = rows.dense + static_cast<std::ptrdiff_t>(i) * tree.stride;
        const auto dense = [x](int k, int& feature) {
            feature = k;
            return x[k];
        };
        add_columns(to, slope, leaves.padded, tree.d, dense, to);
    }
}

// scores[row][1 or padded].
inline void evaluate_paths(const PathTree& tree, const PathLeaves& leaves, const TreeRows& rows, const PathValues& of,
                           float* scores) noexcept {
    if (rows.stored != nullptr)
        for (int i = 0; i < rows.n; ++i) evaluate_row<true>(tree, leaves, rows, of, i, scores);
    else
        for (int i = 0; i < rows.n; ++i) evaluate_row<false>(tree, leaves, rows, of, i, scores);
}

}  // namespace
}  // namespace svelto::SVELTO_NAMESPACE
