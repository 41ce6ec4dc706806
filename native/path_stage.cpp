#include "path_stage.hpp"

#include <algorithm>
#include <limits>

#include "stage_vote.hpp"

namespace svelto {
namespace {

// Buffers of one thread: a block of rows, their paths and their scores.
class PathWalker {
  public:
    PathWalker(const PathStage& stage, const HotTable& hot)
        : stage_(stage),
          hot_(hot),
          width_(std::max(stage.leaves.padded, 1)),
          packer_(stage.tree.d, stage.tree.stride, stage.stored, stage.shift, &hot),
          vote_(stage.vote) {
        values_.width = std::max(stage.tree.height, 1);
        path_.reserve(static_cast<std::size_t>(kBlockRows) * static_cast<std::size_t>(values_.width));
        scores_.reserve(static_cast<std::size_t>(kBlockRows) * static_cast<std::size_t>(width_));
        values_.path = path_.get();
        values_.count = count_;
        values_.leaf = leaf_;
        origin_.reserve(static_cast<std::size_t>(stage.tree.stride));
        std::fill_n(origin_.get(), stage.tree.stride, 0.0f);
        for (int i = 0; i < kBlockRows; ++i) number_[i] = i;
    }
    PathWalker(const PathWalker&) = delete;
    PathWalker& operator=(const PathWalker&) = delete;

    // Reads rows [first, first + n), walks them and evaluates their leaves. False where a row cannot be read.
    bool run(const RowSource& rows, std::int64_t first, int n) {
        if (!packer_.pack(rows, first, n, outcome)) return false;
        const TreeRows packed = packer_.rows();
        hot_.walk_paths(stage_.tree, packed, values_);
        hot_.evaluate_paths(stage_.tree, stage_.leaves, packed, values_, scores_.get());
        if (stage_.stored)
            std::copy_n(packed.sq_norm, n, sq_norm_);
        else
            hot_.square_distances(origin_.get(), packed.dense, stage_.tree.stride, number_, n, sq_norm_);
        return true;
    }

    int label(int i, double caution) {
        return vote_.label(scores_.get() + i * width_, caution, [this, i](int p) { return error(i, p); });
    }

    // Infinite where the leaf gives a score that none of its rows had, or the row is farther out than all of them.
    double error(int i, int p) const {
        const PathLeaves& leaves = stage_.leaves;
        const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(leaf_[i]) * width_ + p;
        const float score = scores_.get()[i * width_ + p];
        const bool like_them = score >= leaves.low[at] && score <= leaves.high[at] && sq_norm_[i] <= stage_.reach;
        if (!like_them) return std::numeric_limits<double>::infinity();
        return static_cast<double>(leaves.error[at]);
    }

    void write(std::int64_t row, int i, const PathTrace& out) const {
        const int n = stage_.vote.n_scores;
        for (int p = 0; p < n; ++p) {
            out.scores[row * n + p] = static_cast<double>(scores_.get()[i * width_ + p]);
            out.errors[row * n + p] = error(i, p);
        }
        out.leaf[row] = leaf_[i];
        out.evaluations[row] = count_[i];
    }

    StageOutcome outcome;

  private:
    const PathStage& stage_;
    const HotTable& hot_;
    int width_;
    RowPacker packer_;
    StageVote vote_;
    PathValues values_;
    AlignedBuffer<float> path_, scores_, origin_;
    std::int32_t number_[kBlockRows] = {};
    float sq_norm_[kBlockRows] = {};
    std::int32_t count_[kBlockRows] = {};
    std::int32_t leaf_[kBlockRows] = {};
};

}  // namespace

StageOutcome path_labels(const PathStage& stage, const HotTable& hot, const RowSource& rows, double caution,
                         int n_threads, std::int32_t* labels) {
    return over_rows<PathWalker>(
        rows, n_threads, [&](std::optional<PathWalker>& walker) { walker.emplace(stage, hot); },
        [&](PathWalker& walker, std::int64_t row, int i) {
            labels[row] = walker.label(i, caution);
            walker.outcome.settled += labels[row] != kUndecided;
        });
}

StageOutcome path_scores(const PathStage& stage, const HotTable& hot, const RowSource& rows, int n_threads,
                         const PathTrace& out) {
    return over_rows<PathWalker>(
        rows, n_threads, [&](std::optional<PathWalker>& walker) { walker.emplace(stage, hot); },
        [&](PathWalker& walker, std::int64_t row, int i) { walker.write(row, i, out); });
}

}  // namespace svelto
