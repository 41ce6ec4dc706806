// A tree of boxes over rows, and the queries that ask it for their nearest rows. Points and sizes only.
//
// The tree holds each row twice. `rows` are the rows themselves, in float64: they alone decide the order. Boxes and
// lanes hold float32 images of the rows, shorter ones perhaps, made so that the distance of two images is at most
// `scale` times that of their rows. They only tell which rows cannot be among the nearest, with room for their
// rounding.
#pragma once

#include <cstdint>

namespace svelto {

// Rows of a leaf that are compared together, and the width that image rows are padded to.
constexpr int kNeighbourLanes = 16;
// Lanes of the float64 sum of squares: feature f goes to lane f % 8, each lane is summed in order of features.
constexpr int kExactLanes = 8;
// Levels of the tree: cuts at the middle of the widest side may be lopsided; below the first limit rows are halved.
constexpr int kMiddleLevels = 64;
constexpr int kMostLevels = kMiddleLevels + 40;

struct NeighbourNodes {
    const float* box;            // [n_nodes][2][width]: lowest and highest image
    const float* norm;           // [n_nodes]: largest norm of an image
    const std::int32_t* lowest;  // [n_nodes]: first row
    const std::int32_t* right;   // [n_nodes]: right child (the left one is the next node); -1 for leaves
    const std::int32_t* first;   // [n_nodes]: first slot of a leaf
    const std::int32_t* count;   // [n_nodes]: rows of a leaf
    const float* lanes;          // [n_slots / 16][width][16]
    const std::int32_t* row_of;  // [n_slots]
    const double* rows;          // [n][d]
    int d;
    int width;
    double scale;
};

struct NeighbourQueries {
    const double* rows;   // [n][d_padded]: padded with zeros to whole exact lanes
    const float* images;  // [n][width]
    const double* norm;   // [n]: of the images
    std::int32_t* index;  // [n][k]
    double* sq_dist;      // [n][k]
    int k;
};

struct Neighbour {
    double sq_dist;
    std::int32_t row;
};

// What a search did: numbers of images that were read, rows whose distance was computed.
struct NeighbourWork {
    std::int64_t numbers = 0;
    std::int64_t rows = 0;
};

}  // namespace svelto
