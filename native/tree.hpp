// A metric tree with a linear model in every leaf, as arrays. Nodes are integers: inner nodes are numbered level by
// level, so that the levels every row passes stand together at the front; a leaf l appears as the child ~l.
#pragma once

#include <cstdint>

namespace svelto {

// Rows of floats are padded with zeros to a multiple of this; sums over features run in this many partial sums whatever
// the instruction level, so that every level takes a row to the same leaf and gives it the same score.
constexpr int kTreeLanes = 16;

// A stored feature of a sparse row.
struct StoredFeature {
    float value = 0.0f;
    std::int32_t feature = 0;
};
// Where a row is packed in groups, its features are padded with zeros to a multiple of this.
constexpr int kStoredGroup = 4;

// Rows that walk a tree: dense, or by their stored features where the tree was built on sparse rows.
struct TreeRows {
    int n = 0;
    const float* dense = nullptr;           // [n][stride], 64-byte aligned
    const StoredFeature* stored = nullptr;  // null: dense rows
    const std::int32_t* start = nullptr;    // [n + 1]; in groups: multiples of kStoredGroup
    const float* sq_norm = nullptr;         // [n]; in groups only
};

// What a step needs besides the hyperplane's normal; one load brings it all.
struct TreeNode {
    float offset = 0.0f;
    std::int32_t child[2] = {};  // where normal.x + offset < 0, and elsewhere
    std::int32_t unused = 0;
};

struct Tree {
    int d = 0;
    int stride = 0;  // d rounded up to kTreeLanes
    int n_inner = 0;
    int n_leaves = 0;
    const float* normals = nullptr;   // [n_inner][stride]
    const TreeNode* nodes = nullptr;  // [n_inner]
};

// The model of leaf l at its centre c: score_p(x) = value_p + weight_p . (x - c), with the error scale
// base_p + growth_p |x - c|^2. Beyond the squared distance `reach` the leaf knows nothing.
struct LeafModels {
    int n_scores = 0;
    int padded = 0;                  // scores rounded up to kTreeLanes; 0 with a single score
    const float* centres = nullptr;  // [n_leaves][stride]
    const float* weights = nullptr;  // single score: [n_leaves][stride]; else [n_leaves][d][padded]
    const float* values = nullptr;   // [n_leaves][n_scores or padded]
    const float* base = nullptr;     // the same shape
    const float* growth = nullptr;   // the same shape
    const float* reach = nullptr;    // [n_leaves]
    // For stored rows, whose differences from the centre would not be sparse:
    const float* bias = nullptr;            // value - weight . centre, in the shape of values
    const float* centre_sq_norm = nullptr;  // [n_leaves]
};

}  // namespace svelto
