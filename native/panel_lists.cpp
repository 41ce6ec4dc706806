#include "panel_lists.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <type_traits>

#include "bounds.hpp"
#include "parallel.hpp"
#include "plain_arithmetic.hpp"
#include "region_rows.hpp"
#include "vote.hpp"

namespace svelto {
namespace {

// Rows of one step: enough that several rows of a region come together, few enough that they stay in the cache.
constexpr std::int64_t kMostStepRows = 16384;
constexpr std::int64_t kStepBytes = 1 << 20;

// A list that has seen this many rows of a call and cost about as much as the whole sum is left alone from there on.
constexpr std::int64_t kTrialRows = 48;
constexpr double kWorthwhile = 0.85;

// Once rounding is this many times what the rest can still change, only another precision can settle the row.
constexpr double kRoundingLimit = 4.0;

// One thread's rows: packs a step, sorts it by region, and walks each region's list.
class ListWorker {
  public:
    ListWorker(const Machine& machine, const HotTable& hot, const PanelLists& lists, const RowSource& rows,
               const std::uint8_t* enabled)
        : used(static_cast<std::size_t>(kCounts * lists.n_lists)),
          machine_(machine),
          hot_(hot),
          lists_(lists),
          rows_(machine, hot, lists, rows),
          enabled_(enabled, enabled + lists.n_lists),
          scores_(static_cast<std::size_t>(machine.n_scores)),
          bounds_(static_cast<std::size_t>(machine.n_scores)),
          votes_(static_cast<std::size_t>(2 * machine.n_classes)) {
        one_sign_ = machine.layout == Layout::single &&
                    (machine.rule == Rule::sign || (machine.rule == Rule::pairs && machine.n_classes == 2));
        stride_ = static_cast<std::size_t>(machine.f32.n_groups) * static_cast<std::size_t>(machine.f32.n_cols);
        single_.scratch.reserve(scratch_size(machine.f32));
        full_.scratch.reserve(scratch_size(machine.f64));
    }

    // labels[row] of what the bounds settle; the numbers of the others join `left` or, where float32 cannot settle
    // them, `left_f64`. Stops where a row cannot be read.
    void run(std::int64_t first, int n, std::int32_t* labels) {
        first_ = first;
        labels_ = labels;
        bad_row = rows_.load(first, n, fault);
        if (bad_row >= 0) return;
        for (int list = 0; list < lists_.n_lists; ++list) {
            if (rows_.begin(list) == rows_.end(list)) continue;
            if (enabled_[static_cast<std::size_t>(list)] != kNotWalked)
                walk(list);
            else
                for (const int* i = rows_.begin(list); i != rows_.end(list); ++i) left.push_back(first + *i);
        }
    }

    std::vector<std::int64_t> left, left_f64;
    std::vector<std::int64_t> used;  // [list][kCounts]
    std::int64_t bad_row = -1;
    Fault fault = Fault::none;

  private:
    // float32 first; what its rounding leaves open walks once more in float64.
    void walk(int list) {
        single_.clear();
        full_.clear();
        longest_ = dense_norms(0.0, 0.0, machine_.d);
        const bool in_double = enabled_[static_cast<std::size_t>(list)] == kInDouble;
        const double* reach = lists_.reach + static_cast<std::ptrdiff_t>(list) * lists_.n_levels;
        for (const int* at = rows_.begin(list); at != rows_.end(list); ++at) {
            const int i = *at;
            const double away = rows_.distance(i, list);
            if (!(away <= reach[lists_.n_levels - 1])) {  // too far out, or not finite: nothing is known of such rows
                left.push_back(first_ + i);
                continue;
            }
            const auto level = std::lower_bound(reach, reach + lists_.n_levels, away) - reach;
            grow(longest_, rows_.norms(i));
            if (in_double)
                full_.add(i, static_cast<int>(level));
            else
                single_.add(i, static_cast<int>(level));
        }
        // One bound for all: rows of a region are about equally long.
        single_bound_ = bound_f32(machine_, hot_, longest_);
        std::int64_t* count = used.data() + kCounts * list;
        count[kRows] += static_cast<std::int64_t>(single_.size() + full_.size());
        walk_in(single_, list, count);
        count[kRowsDouble] += static_cast<std::int64_t>(full_.size());
        walk_in(full_, list, count);
        if (count[kRows] >= kTrialRows && !pays(count)) enabled_[static_cast<std::size_t>(list)] = kNotWalked;
    }

    // Whether a list costs less than the whole sum, which takes rows that float32 cannot settle twice, too.
    bool pays(const std::int64_t* count) const {
        const double n = static_cast<double>(count[kRows]);
        const double whole = (n + kDoubleCost * static_cast<double>(count[kRowsDouble])) * machine_.f32.n_panels;
        const double cost = static_cast<double>(count[kPanelsSingle]) +
                            kDoubleCost * static_cast<double>(count[kPanelsDouble]) +
                            lists_.check_cost * static_cast<double>(count[kChecks]);
        const double open = 1.0 - static_cast<double>(count[kSettled]) / n;
        return cost + open * whole < kWorthwhile * whole;
    }

    // Sums chunk after chunk until every row is settled, or handed on.
    template <class T>
    void walk_in(Group<T>& group, int list, std::int64_t* count) {
        constexpr bool kSingle = std::is_same_v<T, float>;
        if (group.size() == 0) return;
        group.parts.assign(group.size() * stride_, 0.0);
        group.magnitude.assign(group.size(), 0.0);
        group.rounding.assign(group.size(), 0.0);
        rows_.fill_tiles(group);
        if (!kSingle) full_bound_ = bound_f64(machine_, rows_.longest_f64());
        const std::int32_t* order =
            lists_.order + static_cast<std::ptrdiff_t>(list) * lists_.chunk_start[lists_.n_chunks];
        for (int chunk = 0;; ++chunk) {
            const std::size_t before = group.size();
            count[kChecks] += static_cast<std::int64_t>(before);
            count[kSettled] += static_cast<std::int64_t>(settle(group, list, chunk));
            if (group.size() == 0) return;
            if (chunk == lists_.n_chunks) {
                auto& to = kSingle ? left : left_f64;
                for (const int row : group.row) to.push_back(first_ + row);
                return;
            }
            if (group.size() != before) rows_.fill_tiles(group);
            const int from = lists_.chunk_start[chunk], size = lists_.chunk_start[chunk + 1] - from;
            sum_panels(group, order + from, size);
            count[kSingle ? kPanelsSingle : kPanelsDouble] += size * static_cast<std::int64_t>(group.size());
        }
    }

    void sum_panels(Group<float>& group, const std::int32_t* list, int n) {
        const DenseRows<float> rows{group.tiles.get(), group.tile_const.get(), static_cast<int>(group.size())};
        hot_.panels_f32(machine_.f32, rows, list, n, group.scratch.get(), group.parts.data());
    }

    // A float32 panel is two float64 panels; the last of a group may be one.
    void sum_panels(Group<double>& group, const std::int32_t* list, int n) {
        constexpr int kRatio = kPanelWidth<float> / kPanelWidth<double>;
        halves_.clear();
        int g = 0;
        for (int i = 0; i < n; ++i) {
            while (list[i] >= machine_.f32.group_start[g + 1]) ++g;
            const int start = machine_.f64.group_start[g] + kRatio * (list[i] - machine_.f32.group_start[g]);
            for (int p = start; p < std::min(start + kRatio, machine_.f64.group_start[g + 1]); ++p)
                halves_.push_back(p);
        }
        const DenseRows<double> rows{group.tiles.get(), group.tile_const.get(), static_cast<int>(group.size())};
        hot_.panels_f64(machine_.f64, rows, halves_.data(), static_cast<int>(halves_.size()), group.scratch.get(),
                        group.parts.data());
    }

    // Labels the rows that nothing behind `chunk` can change any more, sends those that rounding keeps open on to
    // float64, moves the others together. Returns how many it labelled.
    template <class T>
    std::size_t settle(Group<T>& group, int list, int chunk) {
        constexpr bool kSingle = std::is_same_v<T, float>;
        const auto n_scores = static_cast<std::size_t>(machine_.n_scores);
        const float* rest = lists_.rest + (static_cast<std::ptrdiff_t>(list) * (lists_.n_chunks + 1) + chunk) *
                                              lists_.n_levels * 2 * machine_.n_scores;
        const double scale = kSingle ? machine_.weight_scale : 1.0;
        const RowBound& row_bound = kSingle ? single_bound_ : full_bound_;
        std::size_t kept = 0, labelled = 0;
        relative_.assign(static_cast<std::size_t>(lists_.n_levels), -1.0);
        for (std::size_t i = 0; i < group.size(); ++i) {
            const double* parts = group.parts.data() + i * stride_;
            const float* low = rest + static_cast<std::size_t>(group.level[i]) * 2 * n_scores;
            bool limited = false;
            int label = kUndecided;
            if (!one_sign_) {
                label = vote_label(parts, scale, row_bound, low, limited);
            } else {
                const Bounded sum = assemble_single(machine_, parts, scale, row_bound);
                label = sign_label(kSingle ? graded(group, i, list, chunk, sum) : sum, low, limited);
            }
            if (label != kUndecided) {
                labels_[first_ + group.row[i]] = label;
                ++labelled;
            } else if (kSingle && limited) {
                full_.add(group.row[i], group.level[i]);
            } else {
                group.keep(kept++, i, stride_);
            }
        }
        group.shrink(kept);
        return labelled;
    }

    // The label if no sum within the bounds has another; `limited`: rounding is most of what keeps it open.
    int vote_label(const double* parts, double scale, const RowBound& bound, const float* low, bool& limited) {
        assemble(machine_, parts, scale, bound, scores_.data(), bounds_.data());
        const auto n_scores = static_cast<std::size_t>(machine_.n_scores);
        const float* high = low + n_scores;
        double rounding = 0.0, open = 0.0;
        for (std::size_t s = 0; s < n_scores; ++s) {
            const double l = static_cast<double>(low[s]), h = static_cast<double>(high[s]);
            rounding += bounds_[s];
            open += 0.5 * (h - l);
            scores_[s] += 0.5 * (l + h);
            bounds_[s] += 0.5 * (h - l) + 0x1p-50 * (std::fabs(scores_[s]) + h - l);
        }
        limited = rounding > kRoundingLimit * open;
        return decide(machine_, scores_.data(), bounds_.data(), votes_.data());
    }

    // The same where the label is the sign of one sum.
    int sign_label(const Bounded& sum, const float* low, bool& limited) const {
        const double l = static_cast<double>(low[0]), h = static_cast<double>(low[1]);
        const double least = sum.score + l - sum.bound, most = sum.score + h + sum.bound;
        const double slack = 0x1p-50 * (std::fabs(sum.score) + h - l);
        limited = sum.bound > kRoundingLimit * 0.5 * (h - l);
        const int positive = machine_.rule == Rule::sign ? 1 : 0;
        if (least > slack) return positive;
        return most < -slack ? 1 - positive : kUndecided;
    }

    // A sum whose rounding is bounded chunk by chunk: the near chunks hold most of it, and their exponents are small.
    template <class T>
    Bounded graded(Group<T>& group, std::size_t i, int list, int chunk, const Bounded& sum) {
        if (chunk == 0) return sum;
        const double* parts = group.parts.data() + i * stride_;
        double magnitude = 0.0;
        for (std::size_t g = 0; g < stride_; ++g) magnitude += std::fabs(parts[g]);
        double& relative = relative_[static_cast<std::size_t>(group.level[i])];
        if (relative < 0.0) {
            const std::ptrdiff_t at =
                (static_cast<std::ptrdiff_t>(list) * lists_.n_chunks + chunk - 1) * lists_.n_levels + group.level[i];
            relative = relative_f32(machine_, hot_, longest_, static_cast<double>(lists_.exponent[at]));
        }
        group.rounding[i] += relative * std::max(magnitude - group.magnitude[i], 0.0) + 0x1p-50 * magnitude;
        group.magnitude[i] = magnitude;
        const double absolute = single_bound_.absolute * machine_.coef_sum[0] + single_bound_.constant;
        const double total = machine_.weight_scale * group.rounding[i] + absolute +
                             0x1p-52 * std::fabs(machine_.intercept[0]) + (machine_.n_sv + 4.0) * 0x1p-1073;
        return {sum.score, total < sum.bound ? total : sum.bound};
    }

    const Machine& machine_;
    const HotTable& hot_;
    const PanelLists& lists_;
    RegionRows rows_;
    std::vector<std::uint8_t> enabled_;
    std::int64_t first_ = 0;
    std::int32_t* labels_ = nullptr;
    std::size_t stride_ = 0;
    bool one_sign_ = false;
    Group<float> single_;
    Group<double> full_;
    RowBound single_bound_, full_bound_;
    RowNorms longest_;              // of the rows that walk together
    std::vector<double> relative_;  // rounding of the last chunk by level; negative: not computed yet
    std::vector<double> scores_, bounds_, votes_;
    std::vector<std::int32_t> halves_;
};

}  // namespace

BoundedOutcome predict_bounded(const Machine& machine, const HotTable& hot, const PanelLists& lists,
                               const RowSource& rows, const std::uint8_t* enabled, Precision first, int n_threads,
                               std::int32_t* labels, std::int64_t* used) {
    BoundedOutcome total;
    if (rows.n_rows == 0) return total;
    const std::int64_t most =
        std::clamp<std::int64_t>(kStepBytes / (4 * static_cast<std::int64_t>(machine.d)), 256, kMostStepRows);
    const std::int64_t share = (rows.n_rows + n_threads - 1) / n_threads;
    const std::int64_t pieces = (share + most - 1) / most;  // equal ones, so that threads finish together
    const std::int64_t step = (share + pieces - 1) / pieces;
    std::vector<std::optional<ListWorker>> workers(static_cast<std::size_t>(n_threads));
    for_blocks((rows.n_rows + step - 1) / step, n_threads, [&](int thread, std::int64_t block) {
        const PlainArithmetic plain;
        std::optional<ListWorker>& worker = workers[static_cast<std::size_t>(thread)];
        if (!worker) worker.emplace(machine, hot, lists, rows, enabled);
        if (worker->bad_row >= 0) return;
        const std::int64_t begin = block * step;
        worker->run(begin, static_cast<int>(std::min(step, rows.n_rows - begin)), labels);
    });
    std::vector<std::int64_t> left, left_f64;
    for (const std::optional<ListWorker>& worker : workers) {
        if (!worker) continue;
        if (worker->bad_row >= 0 && (total.rest.bad_row < 0 || worker->bad_row < total.rest.bad_row)) {
            total.rest.bad_row = worker->bad_row;
            total.rest.fault = worker->fault;
        }
        left.insert(left.end(), worker->left.begin(), worker->left.end());
        left_f64.insert(left_f64.end(), worker->left_f64.begin(), worker->left_f64.end());
        for (std::size_t i = 0; i < worker->used.size(); ++i) {
            if (used != nullptr) used[i] += worker->used[i];
            if (i % kCounts == kSettled) total.settled += worker->used[i];
            if (i % kCounts == kPanelsSingle || i % kCounts == kPanelsDouble) total.panels += worker->used[i];
        }
    }
    if (total.rest.bad_row >= 0) return total;
    std::sort(left.begin(), left.end());
    total.rest = predict_some(machine, hot, rows, left, first, n_threads, labels);
    const Outcome doubles = predict_some(machine, hot, rows, left_f64, Precision::float64, n_threads, labels);
    total.rest.settled_f64 += doubles.settled_f64;
    total.rest.settled_reference += doubles.settled_reference;
    total.rest.passes += doubles.passes;
    return total;
}

}  // namespace svelto
