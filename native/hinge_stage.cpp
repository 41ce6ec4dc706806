#include "hinge_stage.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "pair_vote.hpp"
#include "stage_vote.hpp"

namespace svelto {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A label and by how much it wins against the next one.
struct Margin {
    int label = kUndecided;
    double value = 0.0;
};

// The smallest caution that does not settle a margin: bound(caution) grows with the caution and is about
// caution * error. Rounding makes the quotient miss it by a step or two.
template <class Bound>
double smallest_open_caution(double margin, double error, Bound bound) {
    if (!(margin > 0.0)) return 0.0;
    double caution = margin / error;
    while (caution < kInfinity && bound(caution) < margin) caution = std::nextafter(caution, kInfinity);
    for (double less = caution; caution > 0.0; caution = less) {
        less = std::nextafter(caution, 0.0);
        if (bound(less) < margin) break;
    }
    return caution;
}

// Limits of |scores| in the core of a guard and on its rim; outside of it nothing is settled.
struct SignLimits {
    float core, rim;
};

// labels[i] where |scores[i]| exceeds the limit of its place; a loop that compilers turn into vectors.
void signs_beyond(const float* scores, const std::uint8_t* places, int n, SignLimits limits, std::int32_t positive,
                  std::int32_t* labels) {
    constexpr float kNever = std::numeric_limits<float>::infinity();
    for (int i = 0; i < n; ++i) {
        const float outer = places[i] == kOnRim ? limits.rim : kNever;
        const float limit = places[i] == kInCore ? limits.core : outer;
        const std::int32_t side = scores[i] > 0.0f ? positive : 1 - positive;
        labels[i] = std::fabs(scores[i]) > limit ? side : kUndecided;
    }
}

// How many of a block's labels are given; counted in the width of labels, which vectors hold twice as many of as of
// std::count's numbers.
int count_settled(const std::int32_t* labels, int n) {
    int open = 0;
    for (int i = 0; i < n; ++i) open += static_cast<int>(labels[i] == kUndecided);
    return n - open;
}

// Buffers of one thread: a block of rows as floats, the layers' columns and the scores.
class HingeWalker {
  public:
    HingeWalker(const HingeStage& stage, const HotTable& hot, const RowSource& rows)
        : stage_(stage),
          hot_(hot),
          packer_(stage.hinges.d, stage.hinges.d, rows.is_csr && !stage.shifted, stage.shift, &hot, false),
          vote_(stage.vote) {
        const Hinges& hinges = stage.hinges;
        std::size_t columns = 0;
        for (int l = 0; l < hinges.n_layers; ++l) columns += static_cast<std::size_t>(hinges.layers[l].width);
        const std::size_t room = rows.n_rows < kBlockRows ? static_cast<std::size_t>(rows.n_rows) : kBlockRows;
        columns_.reserve(room * (columns + 1));
        scores_.reserve(room * static_cast<std::size_t>(hinges.padded));
        votes_by_pairs_ = !stage.distilled && PairVote::serves(stage.vote);
        if (votes_by_pairs_) pair_vote_ = PairVote(hot, stage.vote.n_classes, stage.error);
    }

    // Reads rows [first, first + n) and evaluates them. False where a row cannot be read.
    bool run(const RowSource& rows, std::int64_t first, int n) {
        if (!packer_.pack(rows, first, n, outcome)) return false;
        if (stage_.guarded) hot_.place_rows(stage_.guard, packer_.rows(), places_);
        const Hinges& hinges = stage_.hinges;
        hot_.evaluate_hinges(hinges, packer_.rows(), columns_.get(), scores_.get());
        if (stage_.vote.rule == Rule::argmax)
            hot_.best_classes(hinges.n_scores, scores_.get(), hinges.padded, n, {best_, best_score_, next_score_});
        return true;
    }

    // Labels of the block; `times`, if given: how many times the error scales of each row count.
    void find_labels(int n, double caution, std::int32_t* labels, const double* times) {
        const Machine& vote = stage_.vote;
        if (times != nullptr && vote.n_scores == 1 && vote.rule != Rule::argmax) {
            // In double precision, as thresholds were found: they stand on single rows.
            for (int i = 0; i < n; ++i) {
                const double error = factor_of(i) * stage_.error[0] * times[i];
                const bool known = places_[i] != kOutside;
                labels[i] = known ? vote_.label(scores(i), caution, [=](int) { return error; }) : kUndecided;
            }
            return;
        }
        if (times != nullptr) divide_scores(n, times);
        if (votes_by_pairs_) {
            pair_vote_.set_caution(caution);
            pair_vote_.find_labels(scores_.get(), stage_.hinges.padded, n, labels);
        } else if (stage_.distilled) {
            const double bound = caution > 0.0 ? caution * stage_.error[0] : 0.0;
            for (int i = 0; i < n; ++i) labels[i] = best_class(i).value > bound ? best_[i] : kUndecided;
        } else if (vote.n_scores > 1 || vote.rule == Rule::argmax || vote.rule == Rule::value) {
            for (int i = 0; i < n; ++i) labels[i] = label(i, caution);
        } else {
            const auto limit = [&](double much) { return float_below(much > 0.0 ? much * stage_.error[0] : 0.0); };
            const SignLimits limits{limit(caution), limit(std::max(caution, caution * stage_.rim_factor))};
            return signs_beyond(scores_.get(), places_, n, limits, vote.rule == Rule::sign ? 1 : 0, labels);
        }
        if (stage_.guarded) look_at_places(n, caution, labels);
    }

    int label(int i, double caution) {
        if (stage_.distilled) {
            const Margin margin = best_class(i);
            return margin.value > (caution > 0.0 ? caution * stage_.error[0] : 0.0) ? margin.label : kUndecided;
        }
        return vote_.label(scores(i), caution, [this](int p) { return stage_.error[p]; });
    }

    // The label, and in `caution` the smallest caution that does not settle it.
    int label_and_caution(int i, double& caution) {
        if (places_[i] == kOutside) {
            caution = 0.0;
            return kUndecided;
        }
        const double *error = stage_.error, factor = factor_of(i);
        int label = kUndecided;
        if (stage_.distilled) {
            const Margin margin = best_class(i);
            label = margin.label;
            caution =
                smallest_open_caution(margin.value, factor * error[0], [=](double c) { return c * factor * error[0]; });
        } else if (stage_.vote.n_scores == 1 && stage_.vote.rule != Rule::argmax) {
            label = this->label(i, 0.0);
            const double margin = std::fabs(static_cast<double>(scores(i)[0]));
            caution = smallest_open_caution(margin, factor * error[0], [=](double c) { return c * factor * error[0]; });
        } else {
            label = best_class(i).label;
            caution = kInfinity;
            for (int p = 0; p < stage_.vote.n_scores && label != kUndecided; ++p) {
                if (p == label) continue;
                const double margin = static_cast<double>(scores(i)[label]) - static_cast<double>(scores(i)[p]);
                const double sum = factor * (error[label] + error[p]);
                caution = std::min(caution, smallest_open_caution(margin, sum, [=](double c) {
                                       return c * factor * error[label] + c * factor * error[p];
                                   }));
            }
        }
        if (label == kUndecided || !(caution > 0.0)) {
            caution = 0.0;
            return kUndecided;
        }
        return label;
    }

    void write(std::int64_t row, int i, double* to_scores, double* to_errors) const {
        const int n = stage_.vote.n_scores;
        for (int p = 0; p < n; ++p) to_scores[row * n + p] = static_cast<double>(scores(i)[p]);
        const double factor = places_[i] == kOutside ? kInfinity : factor_of(i);
        for (int p = 0; p < n; ++p) to_errors[row * n + p] = factor == kInfinity ? kInfinity : factor * stage_.error[p];
    }

    StageOutcome outcome;

  private:
    const float* scores(int i) const noexcept {
        return scores_.get() + static_cast<std::ptrdiff_t>(i) * stage_.hinges.padded;
    }

    // Scores exceed a bound times some number where scores by that number exceed the bound; by infinity they are none.
    void divide_scores(int n, const double* times) noexcept {
        for (int i = 0; i < n; ++i) {
            const auto part = static_cast<float>(1.0 / times[i]);
            float* score = scores_.get() + static_cast<std::ptrdiff_t>(i) * stage_.hinges.padded;
            for (int p = 0; p < stage_.vote.n_scores; ++p) score[p] *= part;
        }
    }

    double factor_of(int i) const noexcept { return places_[i] == kInCore ? 1.0 : stage_.rim_factor; }

    // Rows outside stay open, those on the rim take more caution.
    void look_at_places(int n, double caution, std::int32_t* labels) {
        static_assert(kInCore == 0 && kUndecided == -1);
        std::uint8_t any = 0;
        for (int i = 0; i < n; ++i) any |= places_[i];  // a loop that compilers turn into vectors, as the next
        if (any == 0) return;
        for (int i = 0; i < n; ++i) labels[i] |= -static_cast<std::int32_t>(places_[i] == kOutside);
        const double more = caution * stage_.rim_factor;
        if (!(more > caution)) return;
        if (votes_by_pairs_) pair_vote_.set_caution(more);
        for (int i = 0; i < n; ++i)  // what less caution leaves open stays open
            if (places_[i] == kOnRim && labels[i] != kUndecided)
                labels[i] = votes_by_pairs_ ? pair_vote_.label(scores(i)) : label(i, more);
    }

    // The class of the largest score and its distance to the second; undecided where a score is no number.
    Margin best_class(int i) const noexcept {
        static_assert(kNoClass == kUndecided);
        return {best_[i], static_cast<double>(best_score_[i]) - static_cast<double>(next_score_[i])};
    }

    const HingeStage& stage_;
    const HotTable& hot_;
    RowPacker packer_;
    StageVote vote_;
    PairVote pair_vote_;
    bool votes_by_pairs_ = false;
    AlignedBuffer<float> columns_, scores_;
    std::uint8_t places_[kBlockRows] = {};
    // Of rows with one score a class: the best of them, and its score and the next.
    alignas(64) std::int32_t best_[kBlockRows];
    alignas(64) float best_score_[kBlockRows], next_score_[kBlockRows];
};

template <class Visit>
StageOutcome over_hinges(const HingeStage& stage, const HotTable& hot, const RowSource& rows, int n_threads,
                         Visit visit) {
    return over_rows<HingeWalker>(
        rows, n_threads, [&](std::optional<HingeWalker>& walker) { walker.emplace(stage, hot, rows); }, visit);
}

// Rows whose places on the map are held at a time.
constexpr std::int64_t kRowsAtATime = 8192;

StageOutcome plain_labels(const HingeStage& stage, const HotTable& hot, const RowSource& rows, double caution,
                          int n_threads, std::int32_t* labels, const double* times) {
    return over_blocks<HingeWalker>(
        rows, n_threads, [&](std::optional<HingeWalker>& walker) { walker.emplace(stage, hot, rows); },
        [&](HingeWalker& walker, std::int64_t first, int n) {
            walker.find_labels(n, caution, labels + first, times == nullptr ? nullptr : times + first);
            walker.outcome.settled += count_settled(labels + first, n);
        });
}

}  // namespace

StageOutcome hinge_labels(const HingeStage& stage, const HotTable& hot, const RowSource& rows, double caution,
                          int n_threads, std::int32_t* labels) {
    if (stage.map == nullptr || !(caution > 0.0))
        return plain_labels(stage, hot, rows, caution, n_threads, labels, nullptr);
    std::vector<double> times(static_cast<std::size_t>(std::min(rows.n_rows, kRowsAtATime)));
    StageOutcome total;
    for (std::int64_t first = 0; first < rows.n_rows; first += kRowsAtATime) {
        const RowSource part = rows_from(rows, first, std::min(kRowsAtATime, rows.n_rows - first));
        StageOutcome outcome = stage.map->errors(part, n_threads, times.data());
        if (outcome.bad_row < 0)
            outcome = plain_labels(stage, hot, part, caution, n_threads, labels + first, times.data());
        if (outcome.bad_row >= 0) return {total.settled, first + outcome.bad_row, outcome.fault};
        total.settled += outcome.settled;
    }
    return total;
}

StageOutcome hinge_scores(const HingeStage& stage, const HotTable& hot, const RowSource& rows, int n_threads,
                          double* scores, double* errors) {
    return over_hinges(stage, hot, rows, n_threads, [&](const HingeWalker& walker, std::int64_t row, int i) {
        walker.write(row, i, scores, errors);
    });
}

bool has_cautions(const HingeStage& stage) {
    const Rule rule = stage.vote.rule;
    return stage.distilled || rule == Rule::argmax || rule == Rule::sign ||
           (rule == Rule::pairs && stage.vote.n_scores == 1);
}

StageOutcome hinge_cautions(const HingeStage& stage, const HotTable& hot, const RowSource& rows, int n_threads,
                            std::int32_t* labels, double* cautions) {
    return over_hinges(stage, hot, rows, n_threads, [&](HingeWalker& walker, std::int64_t row, int i) {
        labels[row] = walker.label_and_caution(i, cautions[row]);
        walker.outcome.settled += labels[row] != kUndecided;
    });
}

}  // namespace svelto
