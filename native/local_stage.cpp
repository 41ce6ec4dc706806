#include "local_stage.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "parallel.hpp"
#include "plain_arithmetic.hpp"
#include "workspace.hpp"

namespace svelto {
namespace {

constexpr int kWidth = kPanelWidth<double>;
constexpr double kLog2E = 1.442695040888963407359924681;
// Queries of a machine that are packed at once.
constexpr int kQueries = 64;

std::size_t size(std::int64_t n) {
    return static_cast<std::size_t>(n);
}

// Buffers of one thread.
class LocalWalker {
  public:
    LocalWalker(const LocalMachines& machines, const LocalQueries& queries, const HotTable& hot, double* scores)
        : m_(machines), queries_(queries), hot_(hot), width_(local_score_width(machines.n_classes)), scores_(scores) {
        row_.resize(size(m_.d));
        row_const_.reserve(kQueries + kMaxTileRows);
        std::fill_n(row_const_.get(), kQueries + kMaxTileRows, 0.0);
        tiles_.reserve(size(kQueries + kMaxTileRows) * size(m_.d));
    }
    LocalWalker(const LocalWalker&) = delete;
    LocalWalker& operator=(const LocalWalker&) = delete;

    StageOutcome outcome;

    // The queries [first, last), all of one machine.
    void run(std::int64_t first, std::int64_t last) {
        const std::int64_t machine = queries_.machine[first];
        const std::int64_t n_pairs = m_.pair_start[machine + 1] - m_.pair_start[machine];
        if (n_pairs > 0) gather(machine);
        for (; first < last; first += kQueries) {
            const int n = static_cast<int>(std::min<std::int64_t>(kQueries, last - first));
            if (!pack(first, n, m_.kernel == KernelKind::poly ? m_.gamma[machine] : 1.0)) return;
            values_.assign(size(n * n_pairs), 0.0);
            if (n_pairs > 0) {
                const DenseRows<double> rows = {tiles_.get(), row_const_.get(), n};
                hot_.dense_f64(panels_, rows, scratch_.get(), values_.data());
            }
            for (int i = 0; i < n; ++i) combine(machine, values_.data() + i * n_pairs, scores_ + (first + i) * width_);
        }
    }

  private:
    // The machine's vectors as panels.
    void gather(std::int64_t machine) {
        const std::int64_t first = m_.entry_start[machine], n = m_.entry_start[machine + 1] - first;
        const auto n_panels = static_cast<int>((n + kWidth - 1) / kWidth);
        const std::int64_t packed = static_cast<std::int64_t>(n_panels) * kWidth;
        vectors_.reserve(size(packed) * size(m_.d));
        for (std::int64_t s = 0; s < packed; ++s) {
            // What fills the last panel is a vector that exists, with weight zero: no value can overflow.
            const double* from = m_.vectors + m_.entries[first + std::min(s, n - 1)] * m_.d;
            double* to = vectors_.get() + s / kWidth * kWidth * m_.d + s % kWidth;
            for (int k = 0; k < m_.d; ++k) to[static_cast<std::ptrdiff_t>(k) * kWidth] = from[k];
        }
        constants_.reserve(size(packed));
        std::fill_n(constants_.get(), packed, 0.0);
        const auto n_pairs = static_cast<int>(m_.pair_start[machine + 1] - m_.pair_start[machine]);
        const bool linear = m_.kernel == KernelKind::linear;
        if (!linear) {
            weights_.reserve(size(packed) * size(n_pairs));
            std::fill_n(weights_.get(), packed * n_pairs, 0.0);
            for (int pair = 0; pair < n_pairs; ++pair) {
                const std::int64_t* range = m_.support_start + m_.pair_start[machine] + pair;
                for (std::int64_t s = range[0]; s < range[1]; ++s)
                    weights_.get()[pair * packed + m_.place[s]] = m_.coef[s];
            }
        }
        group_start_[1] = n_panels;
        panels_ = {};
        panels_.kernel = m_.kernel;
        panels_.pair = m_.kernel == KernelKind::rbf ? PairKind::sq_diff : PairKind::dot;
        panels_.vectors = vectors_.get();
        panels_.vector_const = panels_.sparse_const = constants_.get();
        panels_.weights = linear ? nullptr : weights_.get();
        panels_.group_start = group_start_;
        panels_.n_groups = 1;
        panels_.n_cols = panels_.padded_cols = n_pairs;
        panels_.n_panels = n_panels;
        panels_.d = m_.d;
        panels_.scale = -m_.gamma[machine] * kLog2E;
        panels_.coef0 = m_.coef0;
        panels_.degree = m_.degree;
        scratch_.reserve(scratch_size(panels_));
    }

    bool pack(std::int64_t first, int n, double factor) {
        const int tile = hot_.tile_rows_f64;
        for (int i = 0; i < n; ++i) {
            const std::int64_t number = queries_.row[first + i];
            outcome.fault = read_dense(queries_.rows, number, row_.data());
            if (outcome.fault != Fault::none) {
                outcome.bad_row = number;
                return false;
            }
            double* to = tiles_.get() + static_cast<std::ptrdiff_t>(i / tile) * tile * m_.d + i % tile;
            for (int k = 0; k < m_.d; ++k) to[static_cast<std::ptrdiff_t>(k) * tile] = row_[size(k)] * factor;
        }
        return true;
    }

    void combine(std::int64_t machine, const double* values, double* scores) {
        const std::int32_t* classes = m_.classes + m_.class_start[machine];
        const auto n_known = static_cast<int>(m_.class_start[machine + 1] - m_.class_start[machine]);
        const double* intercept = m_.intercept + m_.pair_start[machine];
        if (width_ == 1) {  // a pair is positive for its first class, a score for code 1
            scores[0] = n_known == 1 ? (classes[0] == 1 ? 1.0 : -1.0) : -(values[0] + intercept[0]);
            return;
        }
        sums_.assign(size(width_), 0.0);
        const double n_unknown = width_ - n_known;
        std::fill_n(scores, width_, 0.0);
        std::fill(sums_.begin(), sums_.end(), -static_cast<double>(n_known));
        for (int a = 0; a < n_known; ++a) scores[classes[a]] = sums_[size(classes[a])] = n_unknown;
        for (int a = 0, pair = 0; a < n_known; ++a)
            for (int b = a + 1; b < n_known; ++b, ++pair) {
                const double value = values[pair] + intercept[pair];
                scores[classes[value > 0.0 ? a : b]] += 1.0;
                sums_[size(classes[a])] += value;
                sums_[size(classes[b])] -= value;
            }
        for (int c = 0; c < width_; ++c) scores[c] += sums_[size(c)] / (3.0 * (std::fabs(sums_[size(c)]) + 1.0));
    }

    const LocalMachines& m_;
    const LocalQueries& queries_;
    const HotTable& hot_;
    int width_;
    double* scores_;
    Panels<double> panels_;
    std::int32_t group_start_[2] = {0, 0};
    std::vector<double> row_, values_, sums_;
    AlignedBuffer<double> vectors_, constants_, weights_, tiles_, row_const_, scratch_;
};

}  // namespace

int local_score_width(int n_classes) {
    return n_classes <= 2 ? 1 : n_classes;
}

StageOutcome local_scores(const LocalMachines& machines, const LocalQueries& queries, const HotTable& hot,
                          int n_threads, double* scores) {
    std::vector<std::int64_t> start;  // of the queries of a machine
    for (std::int64_t i = 0; i < queries.n; ++i)
        if (i == 0 || queries.machine[i] != queries.machine[i - 1]) start.push_back(i);
    start.push_back(queries.n);
    // Several machines a step, so that the threads do not meet at the counter too often.
    constexpr std::int64_t kStep = 16;
    const auto n_groups = static_cast<std::int64_t>(start.size()) - 1;
    std::vector<std::optional<LocalWalker>> walkers(static_cast<std::size_t>(std::max(n_threads, 1)));
    for_blocks((n_groups + kStep - 1) / kStep, n_threads, [&](int thread, std::int64_t block) {
        const PlainArithmetic plain;
        std::optional<LocalWalker>& walker = walkers[static_cast<std::size_t>(thread)];
        if (!walker) walker.emplace(machines, queries, hot, scores);
        const std::int64_t last = std::min(n_groups, (block + 1) * kStep);
        for (std::int64_t group = block * kStep; group < last && walker->outcome.bad_row < 0; ++group)
            walker->run(start[size(group)], start[size(group + 1)]);
    });
    StageOutcome total;
    for (const std::optional<LocalWalker>& walker : walkers)
        if (walker && walker->outcome.bad_row >= 0 && (total.bad_row < 0 || walker->outcome.bad_row < total.bad_row))
            total = walker->outcome;
    return total;
}

}  // namespace svelto
