// A tree whose nodes evaluate one kernel value and test one of the values evaluated so far, as arrays.
//
// A row walks from node 0. A node with a vector appends k(x, vector) to the row's path of values; then the value at
// position `test` of the path is compared with the threshold. The scores of a leaf are linear in the path's values, and
// in the row itself where leaves have slopes. A child >= 0 is a node with a larger number, a child < 0 the leaf ~child.
#pragma once

#include <cstdint>

#include "model.hpp"
#include "tree.hpp"

namespace svelto {

// What a step needs besides the vector; one load brings it all.
struct alignas(32) PathNode {
    std::int32_t vector = -1;  // -1: nothing is evaluated here
    std::int32_t test = 0;     // without a test both children are one, and any position does
    float threshold = 0.0f;    // value <= threshold goes to child[0], all else (NaN too) to child[1]
    std::int32_t child[2] = {};
    float sq_norm = 0.0f;  // of the vector, for stored rows
    float abs_sum = 0.0f;
};

struct PathTree {
    int d = 0;
    int stride = 0;  // d rounded up to kTreeLanes
    int n_nodes = 0;
    int n_leaves = 0;
    int n_vectors = 0;
    int height = 0;  // most values on a path
    KernelKind kernel = KernelKind::rbf;
    float scale = 0.0f;  // factor of the distance in the exponent of 2, or of the product (poly, sigmoid)
    float coef0 = 0.0f;
    int degree = 0;
    const float* vectors = nullptr;   // [n_vectors][stride], 64-byte aligned, shifted as rows are
    const PathNode* nodes = nullptr;  // [n_nodes]
};

// score_p(x) = constant_p + sum over the path of coef_hp value_h + slope_p . x, trusted within [low_p, high_p].
struct PathLeaves {
    int n_scores = 0;
    int padded = 0;                   // scores rounded up to kTreeLanes; 0 with a single score
    const float* coef = nullptr;      // single score: [n_leaves][height]; else [n_leaves][height][padded]
    const float* constant = nullptr;  // [n_leaves][1 or padded]
    const float* slope = nullptr;     // null: none; single score: [n_leaves][stride]; else [n_leaves][d][padded]
    const float* error = nullptr;     // [n_leaves][1 or padded], as low and high
    const float* low = nullptr;
    const float* high = nullptr;
};

// The values of a block of rows: path[row][h], h < count[row].
struct PathValues {
    float* path = nullptr;  // [rows][width]
    int width = 0;          // max(height, 1)
    std::int32_t* count = nullptr;
    std::int32_t* leaf = nullptr;
};

}  // namespace svelto
