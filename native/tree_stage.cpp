#include "tree_stage.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "parallel.hpp"
#include "plain_arithmetic.hpp"
#include "vote.hpp"
#include "workspace.hpp"

namespace svelto {
namespace {

constexpr int kBlockRows = 64;

// Buffers of one thread: a block of rows as padded floats, and what the tree says about them.
class Walker {
  public:
    Walker(const TreeStage& stage, const HotTable& hot)
        : stage_(stage), hot_(hot), width_(std::max(stage.leaves.padded, 1)), row_(size(stage.tree.d)) {
        if (!stage.stored) {
            rows_.reserve(size(kBlockRows) * size(stage.tree.stride));
            std::fill_n(rows_.get(), size(kBlockRows) * size(stage.tree.stride), 0.0f);
            for (int k = 0; k < stage.tree.d; ++k) empty_.push_back(static_cast<float>(0.0 - stage.shift[k]));
        }
        scores_.reserve(size(kBlockRows) * size(width_));
        one_score_.resize(size(stage.vote.n_scores));
        one_bound_.resize(size(stage.vote.n_scores));
        votes_.resize(size(2 * stage.vote.n_classes + 2));
        columns_.resize(size(stage.tree.d));
    }

    // Reads rows [first, first + n), walks them and evaluates their leaves. False where a row cannot be read.
    bool run(const RowSource& rows, std::int64_t first, int n, bool with_depth) {
        stored_.clear();
        for (int i = 0; i < n; ++i) {
            start_[i] = static_cast<std::int32_t>(stored_.size());
            outcome.fault =
                stage_.stored
                    ? pack_stored(rows, first + i, i)
                    : pack_dense(rows, first + i, rows_.get() + static_cast<std::ptrdiff_t>(i) * stage_.tree.stride);
            if (outcome.fault == Fault::none) continue;
            outcome.bad_row = first + i;
            return false;
        }
        start_[n] = static_cast<std::int32_t>(stored_.size());
        static constexpr StoredFeature kNothing{};
        TreeRows packed;
        packed.n = n;
        packed.dense = rows_.get();
        packed.stored = !stage_.stored ? nullptr : stored_.empty() ? &kNothing : stored_.data();
        packed.start = start_;
        packed.sq_norm = sq_norm_;
        hot_.walk_rows(stage_.tree, packed, leaf_, with_depth ? depth_ : nullptr);
        hot_.evaluate_leaves(stage_.tree, stage_.leaves, packed, leaf_, scores_.get(), sq_dist_);
        return true;
    }

    int label(int i, double caution) {
        const Machine& vote = stage_.vote;
        if (vote.n_scores == 1 && vote.rule != Rule::argmax) {
            const double score = static_cast<double>(scores_.get()[i]), bound_of = bound(i, 0, caution);
            if (vote.rule == Rule::value) return 0;
            if (!(std::fabs(score) > bound_of)) return kUndecided;
            return (score > 0.0) == (vote.rule == Rule::sign) ? 1 : 0;
        }
        for (int p = 0; p < vote.n_scores; ++p) {
            one_score_[size(p)] = static_cast<double>(scores_.get()[i * width_ + p]);
            one_bound_[size(p)] = bound(i, p, caution);
        }
        return decide(vote, one_score_.data(), one_bound_.data(), votes_.data());
    }

    double bound(int i, int p, double caution) const { return caution > 0.0 ? caution * error(i, p) : 0.0; }

    // Infinite outside the leaf's reach: those rows are unlike the ones the leaf was made of.
    double error(int i, int p) const {
        const LeafModels& leaves = stage_.leaves;
        const double sq_dist = static_cast<double>(sq_dist_[i]);
        if (!(sq_dist <= static_cast<double>(leaves.reach[leaf_[i]]))) return std::numeric_limits<double>::infinity();
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
    template <class Int>
    static std::size_t size(Int n) {
        return static_cast<std::size_t>(n);
    }

    Fault pack_stored(const RowSource& rows, std::int64_t number, int i) {
        if (rows.is_csr) {
            const std::int64_t stored = stored_count(rows, number);
            if (stored < 0 || stored > stage_.tree.d) return Fault::bad_index;
        }
        int n = 0;
        const Fault fault = read_stored(rows, number, columns_.data(), row_.data(), n);
        if (fault != Fault::none) return fault;
        float sq_norm = 0.0f;
        for (int k = 0; k < n; ++k) {
            const float x = static_cast<float>(row_[size(k)]);
            stored_.push_back({x, columns_[size(k)]});
            sq_norm += x * x;
        }
        while (stored_.size() % kStoredGroup != 0) stored_.push_back({});
        sq_norm_[i] = sq_norm;
        return Fault::none;
    }

    Fault pack_dense(const RowSource& rows, std::int64_t number, float* to) {
        const int d = stage_.tree.d;
        if (rows.is_csr) {
            const std::int64_t stored = stored_count(rows, number);
            if (stored < 0 || stored > d) return Fault::bad_index;
            int n = 0;
            const Fault fault = read_stored(rows, number, columns_.data(), row_.data(), n);
            if (fault != Fault::none) return fault;
            std::copy_n(empty_.data(), d, to);
            for (int i = 0; i < n; ++i) {
                const std::int32_t k = columns_[size(i)];
                to[k] = static_cast<float>(row_[size(i)] - stage_.shift[k]);
            }
            return Fault::none;
        }
        const Fault fault = read_dense(rows, number, row_.data());
        if (fault != Fault::none) return fault;
        for (int k = 0; k < d; ++k) to[k] = static_cast<float>(row_[size(k)] - stage_.shift[k]);
        return Fault::none;
    }

    const TreeStage& stage_;
    const HotTable& hot_;
    int width_;
    AlignedBuffer<float> rows_;
    mutable AlignedBuffer<float> scores_;
    std::vector<std::int32_t> columns_;
    std::vector<float> empty_;  // what a row of zeros becomes
    std::vector<double> row_, one_score_, one_bound_, votes_;
    std::vector<StoredFeature> stored_;
    std::int32_t start_[kBlockRows + 1] = {};
    float sq_norm_[kBlockRows] = {};
    float sq_dist_[kBlockRows] = {};
    std::int32_t leaf_[kBlockRows] = {};
    std::int32_t depth_[kBlockRows] = {};
};

template <class Visit>
StageOutcome over_rows(const TreeStage& stage, const HotTable& hot, const RowSource& rows, int n_threads,
                       bool with_depth, Visit visit) {
    std::vector<std::optional<Walker>> walkers(static_cast<std::size_t>(std::max(n_threads, 1)));
    // Several blocks a step, so that the threads do not meet at the counter too often.
    const int blocks = rows.n_rows > 64 * kBlockRows ? 4 : 1;
    const int step = blocks * kBlockRows;
    for_blocks((rows.n_rows + step - 1) / step, n_threads, [&](int thread, std::int64_t number) {
        const PlainArithmetic plain;
        std::optional<Walker>& walker = walkers[static_cast<std::size_t>(thread)];
        if (!walker) walker.emplace(stage, hot);
        for (int b = 0; b < blocks; ++b) {
            const std::int64_t first = number * step + b * kBlockRows;
            if (walker->outcome.bad_row >= 0 || first >= rows.n_rows) return;
            const int n = static_cast<int>(std::min<std::int64_t>(kBlockRows, rows.n_rows - first));
            if (!walker->run(rows, first, n, with_depth)) return;
            for (int i = 0; i < n; ++i) visit(*walker, first + i, i);
        }
    });
    StageOutcome total;
    for (const std::optional<Walker>& walker : walkers) {
        if (!walker) continue;
        total.settled += walker->outcome.settled;
        if (walker->outcome.bad_row >= 0 && (total.bad_row < 0 || walker->outcome.bad_row < total.bad_row)) {
            total.bad_row = walker->outcome.bad_row;
            total.fault = walker->outcome.fault;
        }
    }
    return total;
}

}  // namespace

StageOutcome stage_labels(const TreeStage& stage, const HotTable& hot, const RowSource& rows, double caution,
                          int n_threads, std::int32_t* labels) {
    return over_rows(stage, hot, rows, n_threads, false, [&](Walker& walker, std::int64_t row, int i) {
        labels[row] = walker.label(i, caution);
        walker.outcome.settled += labels[row] != kUndecided;
    });
}

StageOutcome stage_scores(const TreeStage& stage, const HotTable& hot, const RowSource& rows, int n_threads,
                          const StageTrace& out) {
    return over_rows(stage, hot, rows, n_threads, out.depth != nullptr,
                     [&](Walker& walker, std::int64_t row, int i) { walker.write(row, i, out); });
}

void settle_scores(const Machine& vote, const double* scores, const double* bounds, std::int64_t n_rows,
                   std::int32_t* labels) {
    std::vector<double> votes(static_cast<std::size_t>(2 * vote.n_classes + 2));
    for (std::int64_t row = 0; row < n_rows; ++row)
        labels[row] = decide(vote, scores + row * vote.n_scores, bounds + row * vote.n_scores, votes.data());
}

}  // namespace svelto
