// Building a metric tree: every node is cut by the hyperplane half-way between its two points farthest apart, moved off
// points that lie on it.
#pragma once

#include <cstdint>
#include <vector>

#include "hot.hpp"

namespace svelto {

struct TreeLimits {
    int leaf_size = 1;       // nodes with no more points stay leaves
    int max_leaves = 0;      // 0: none
    int max_depth = 0;       // 0: none
    int exact_pairs = 1024;  // nodes with no more points look at all pairs, others sweep (linear time)
    double least_share = 0;  // of a node's points on either side of the cut: 0 half-way wherever it is, 0.5 the median
    std::uint64_t seed = 0;
    int n_threads = 1;
};

struct MetricTree {
    std::vector<float> normals;            // [n_inner][stride]
    std::vector<float> offsets;            // [n_inner]
    std::vector<std::int32_t> children;    // [n_inner][2]
    std::vector<std::int32_t> order;       // [n], rows in leaf order
    std::vector<std::int32_t> leaf_start;  // [n_leaves + 1], into order
};

// rows: [n][stride] floats, zero-padded, 64-byte aligned.
MetricTree build_metric_tree(const HotTable& hot, const float* rows, std::int32_t n, int stride,
                             const TreeLimits& limits);

}  // namespace svelto
