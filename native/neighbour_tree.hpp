// A tree of boxes for exact nearest neighbours: built from float32 images, asked for many queries at once.
#pragma once

#include <cstdint>
#include <vector>

#include "hot.hpp"
#include "neighbours.hpp"
#include "workspace.hpp"

namespace svelto {

// Nodes in the order of a walk that goes left first. Leaves are ranges of `order` until they get their slots.
struct NeighbourBranch {
    std::vector<float> box, norm, cut;
    std::vector<std::int32_t> lowest, right, first, count, feature;
};

class NeighbourTree {
  public:
    // images: [n][width], rows: [n][d]; n >= 1. The rows are read by every search, the images only here.
    NeighbourTree(const HotTable& hot, const float* images, const double* rows, std::int64_t n, int d, int width,
                  double scale, int leaf_rows, int n_threads);

    // The k <= n nearest rows of each query, nearest first; queries of one region are answered together.
    NeighbourWork search(const NeighbourQueries& queries, std::int64_t n, int n_threads) const;

    std::int64_t n_slots() const { return static_cast<std::int64_t>(row_of_.size()); }

  private:
    void fill_lanes(const float* images, const std::vector<std::int32_t>& order, int n_threads);
    std::int32_t leaf_of(const float* image) const;
    NeighbourNodes view() const;

    const HotTable& hot_;
    const double* rows_;
    int d_, width_;
    double scale_;
    NeighbourBranch nodes_;
    AlignedBuffer<float> box_, lanes_;
    std::vector<std::int32_t> row_of_;
};

}  // namespace svelto
