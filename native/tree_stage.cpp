#include "tree_stage.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include "row_packer.hpp"
#include "stage_vote.hpp"

namespace svelto {
namespace {

// Buffers of one thread: a block of rows as padded floats, and what the tree says about them.
class Walker {
  public:
    Walker(const TreeStage& stage, const HotTable& hot, bool with_depth)
        : stage_(stage),
          hot_(hot),
          with_depth_(with_depth),
          width_(std::max(stage.leaves.padded, 1)),
          packer_(stage.tree.d, stage.tree.stride, stage.stored, stage.shift, &hot),
          vote_(stage.vote) {
        scores_.reserve(static_cast<std::size_t>(kBlockRows) * static_cast<std::size_t>(width_));
    }

    // Reads rows [first, first + n), walks them and evaluates their leaves. False where a row cannot be read.
    bool run(const RowSource& rows, std::int64_t first, int n) {
        if (!packer_.pack(rows, first, n, outcome)) return false;
        const TreeRows packed = packer_.rows();
        if (stage_.guarded) hot_.place_rows(stage_.guard, packed, places_);
        hot_.walk_rows(stage_.tree, packed, leaf_, with_depth_ ? depth_ : nullptr);
        hot_.evaluate_leaves(stage_.tree, stage_.leaves, packed, leaf_, scores_.get(), sq_dist_);
        return true;
    }

    int label(int i, double caution) {
        if (places_[i] != kInCore) return kUndecided;
        return vote_.label(scores_.get() + i * width_, caution, [this, i](int p) { return error(i, p); });
    }

    // Infinite for rows that the guard does not know and outside the leaf's reach: those rows are unlike the ones the
    // leaf was made of.
    double error(int i, int p) const {
        const LeafModels& leaves = stage_.leaves;
        const double sq_dist = static_cast<double>(sq_dist_[i]);
        if (places_[i] != kInCore || !(sq_dist <= static_cast<double>(leaves.reach[leaf_[i]])))
            return std::numeric_limits<double>::infinity();
        const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(leaf_[i]) * width_ + p;
        return static_cast<double>(leaves.base[at]) + static_cast<double>(leaves.growth[at]) * sq_dist;
    }

    void write(std::int64_t row, int i, const StageTrace& out) const {
        const int n = stage_.vote.n_scores;
        for (int p = 0; p < n; ++p) {
            if (out.scores != nullptr) out.scores[row * n + p] = static_cast<double>(scores_.get()[i * width_ + p]);
            if (out.errors != nullptr) out.errors[row * n + p] = error(i, p);
        }
        if (out.sq_dist != nullptr) out.sq_dist[row] = static_cast<double>(sq_dist_[i]);
        if (out.leaf != nullptr) out.leaf[row] = leaf_[i];
        if (out.depth != nullptr) out.depth[row] = depth_[i];
    }

    StageOutcome outcome;

  private:
    const TreeStage& stage_;
    const HotTable& hot_;
    bool with_depth_;
    int width_;
    RowPacker packer_;
    StageVote vote_;
    AlignedBuffer<float> scores_;
    float sq_dist_[kBlockRows] = {};
    std::uint8_t places_[kBlockRows] = {};
    std::int32_t leaf_[kBlockRows] = {};
    std::int32_t depth_[kBlockRows] = {};
};

}  // namespace

StageOutcome stage_labels(const TreeStage& stage, const HotTable& hot, const RowSource& rows, double caution,
                          int n_threads, std::int32_t* labels) {
    return over_rows<Walker>(
        rows, n_threads, [&](std::optional<Walker>& walker) { walker.emplace(stage, hot, false); },
        [&](Walker& walker, std::int64_t row, int i) {
            labels[row] = walker.label(i, caution);
            walker.outcome.settled += labels[row] != kUndecided;
        });
}

StageOutcome stage_scores(const TreeStage& stage, const HotTable& hot, const RowSource& rows, int n_threads,
                          const StageTrace& out) {
    return over_rows<Walker>(
        rows, n_threads, [&](std::optional<Walker>& walker) { walker.emplace(stage, hot, out.depth != nullptr); },
        [&](Walker& walker, std::int64_t row, int i) { walker.write(row, i, out); });
}

}  // namespace svelto
