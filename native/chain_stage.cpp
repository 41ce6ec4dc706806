#include "chain_stage.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace svelto {
namespace {

constexpr std::int32_t kNoClass = -1;
static_assert(kColumnRows == kBlockRows);

// Buffers of one thread: a block of rows, and what they met in a chain.
class ChainWalker {
  public:
    ChainWalker(const ChainStage& stage, const HotTable& hot)
        : stage_(stage),
          chains_(stage.chains),
          hot_(hot),
          packer_(chains_.d, chains_.stride, stage.stored, stage.shift, &hot) {}
    ChainWalker(const ChainWalker&) = delete;
    ChainWalker& operator=(const ChainWalker&) = delete;

    StageOutcome outcome;

  protected:
    // The block as `meet` wants it.
    void arrange(const TreeRows& rows) {
        has_columns_ = hot_.turn_rows(chains_, rows, columns_);
        for (int i = 0; i < rows.n; ++i) list_[i] = i;
    }

    // The rows of list_[0 .. n) through a chain; outcome_ of all of them is known thereafter.
    void meet(int chain, const TreeRows& rows, int n, bool trace) {
        const ChainAnswers answers = {outcome_, trace ? node_ : nullptr, trace ? score_ : nullptr};
        const int first = chains_.start[chain], last = chains_.start[chain + 1];
        std::copy_n(list_, n, left_);
        n_left_ = hot_.peel_chain(chains_, first, last, rows, has_columns_ ? columns_ : nullptr, left_, n, answers);
        for (int i = 0; i < n_left_; ++i) outcome_[left_[i]] = static_cast<std::int8_t>(chains_.end[chain]);
    }

    // The last node that a row met in a chain that has nodes, and its product in the caller's units.
    int last_node(int chain, std::int32_t row) const { return chains_.start[chain] + node_[row]; }
    double last_score(int chain, std::int32_t row) const {
        const int node = last_node(chain, row);
        return static_cast<double>(score_[row]) * stage_.unit[node] + stage_.offset[node];
    }

    const ChainStage& stage_;
    const Chains& chains_;
    const HotTable& hot_;
    RowPacker packer_;
    int n_left_ = 0;  // rows that came to the chain's end, in left_
    std::int32_t list_[kBlockRows], left_[kBlockRows];
    std::int8_t outcome_[kBlockRows];
    alignas(64) std::int32_t node_[kBlockRows];
    alignas(64) float score_[kBlockRows];
    alignas(64) float columns_[kTreeLanes * kColumnRows];
    bool has_columns_ = false;
};

// Rows that are asked by all chains, and the scores of classes that follow.
class ChainVoter : public ChainWalker {
  public:
    using ChainWalker::ChainWalker;

  protected:
    // The n rows of list_ in their order, of a block that is arranged.
    void score(const TreeRows& rows, int n, double* scores) {
        const int width = score_width(chains_);
        const auto n_scores = static_cast<std::size_t>(n) * static_cast<std::size_t>(width);
        const bool votes = chains_.rule == ChainRule::one_vs_one && width > 1;
        std::fill_n(scores, n_scores, 0.0);
        if (votes) sums_.assign(n_scores, 0.0);
        for (int chain = 0; chain < chains_.n_chains; ++chain) {
            meet(chain, rows, n, true);
            const std::int32_t minus = chains_.classes[2 * chain], plus = chains_.classes[2 * chain + 1];
            for (int i = 0; i < n; ++i) {
                const int side = outcome_[list_[i]];
                const double margin = margin_of(chain, list_[i]);
                double* of_row = scores + static_cast<std::ptrdiff_t>(i) * width;
                if (!votes) {
                    of_row[width == 1 ? 0 : plus] = side * margin;
                    continue;
                }
                if (side != 0) of_row[side < 0 ? minus : plus] += 1.0;
                double* sums = sums_.data() + static_cast<std::ptrdiff_t>(i) * width;
                const double clear = side * std::min(margin, stage_.clear);
                sums[plus] += clear;
                sums[minus] -= clear;
            }
        }
        for (std::size_t k = 0; votes && k < n_scores; ++k) scores[k] += sums_[k] / (3.0 * (std::abs(sums_[k]) + 1.0));
    }

  private:
    // At least the smallest number: a margin of 0 has a side as well.
    double margin_of(int chain, std::int32_t row) const {
        double distance = 0.0;
        if (chains_.start[chain] < chains_.start[chain + 1]) {
            const int node = last_node(chain, row);
            const double score = last_score(chain, row);
            distance = std::min(std::abs(score - stage_.low[node]), std::abs(score - stage_.high[node]));
            distance /= stage_.spread[node];
            if (!std::isfinite(distance)) distance = 0.0;  // neither threshold is finite
        }
        return std::max(distance, std::numeric_limits<double>::min());
    }

    std::vector<double> sums_;
};

class ChainLabels : public ChainVoter {
  public:
    ChainLabels(const ChainStage& stage, const HotTable& hot, bool vote, std::int32_t* labels, std::int32_t* work)
        : ChainVoter(stage, hot), vote_(vote), labels_(labels), work_(work) {
        if (vote) scores_.resize(static_cast<std::size_t>(kBlockRows) * static_cast<std::size_t>(score_width(chains_)));
    }

    bool run(const RowSource& rows, std::int64_t first, int n) {
        if (!packer_.pack(rows, first, n, outcome)) return false;
        const TreeRows packed = packer_.rows();
        std::int32_t *labels = labels_ + first, *work = work_ == nullptr ? nullptr : work_ + first;
        if (chains_.rule == ChainRule::one_vs_rest)
            against_the_rest(packed, labels, work);
        else if (chains_.n_classes > 2)
            among_classes(packed, labels, work);
        else
            between_two(packed, labels, work);
        if (vote_) vote(packed, labels);
        for (int i = 0; i < n; ++i) outcome.settled += labels[i] != kNoClass;
        return true;
    }

  private:
    // Adds the planes that the n rows of list_ met in the chain.
    void count(int chain, int n, std::int32_t* work) const {
        if (chains_.start[chain] == chains_.start[chain + 1]) return;
        for (int i = 0; i < n; ++i) work[list_[i]] += node_[list_[i]] + 1;
    }

    void between_two(const TreeRows& rows, std::int32_t* labels, std::int32_t* work) {
        if (work != nullptr) std::fill_n(work, rows.n, 0);
        std::fill_n(labels, rows.n, 0);
        if (chains_.n_chains == 0) return;  // a single class has no duel to lose
        arrange(rows);
        meet(0, rows, rows.n, work != nullptr);
        const std::int32_t voted[3] = {chains_.classes[0], kNoClass, chains_.classes[1]};
        for (int i = 0; i < rows.n; ++i) labels[i] = voted[outcome_[i] + 1];
        if (work != nullptr) count(0, rows.n, work);
    }

    void against_the_rest(const TreeRows& rows, std::int32_t* labels, std::int32_t* work) {
        if (work != nullptr) std::fill_n(work, rows.n, 0);
        std::fill_n(labels, rows.n, kNoClass);
        int n = rows.n;
        arrange(rows);
        for (int place = 0; place < chains_.n_classes && n > 0; ++place) {
            const int chain = stage_.turn[place];
            meet(chain, rows, n, work != nullptr);
            if (work != nullptr) count(chain, n, work);
            int kept = 0;
            for (int i = 0; i < n; ++i) {
                const std::int32_t row = list_[i];
                const bool own = outcome_[row] > 0;
                // An open chain, or a second +1, and no class can win: the row leaves.
                const bool stays = outcome_[row] < 0 || (own && labels[row] == kNoClass);
                labels[row] = !stays ? kNoClass : own ? chains_.order[place] : labels[row];
                list_[kept] = row;
                kept += stays;
            }
            n = kept;
        }
    }

    void among_classes(const TreeRows& rows, std::int32_t* labels, std::int32_t* work) {
        hot_.knock_out(stage_.game, rows, labels, work);
        for (int i = 0; i < rows.n; ++i) labels[i] = labels[i] < 0 ? kNoClass : chains_.order[labels[i]];
    }

    // Labels of the rows that no class has won.
    void vote(const TreeRows& rows, std::int32_t* labels) {
        if (std::find(labels, labels + rows.n, kNoClass) == labels + rows.n) return;
        std::int32_t open[kBlockRows];
        int n = 0;
        for (int i = 0; i < rows.n; ++i) {
            open[n] = i;
            n += labels[i] == kNoClass;
        }
        if (rows.stored != nullptr) {
            std::copy_n(open, n, list_);
            score(rows, n, scores_.data());
        } else {
            // Closed up, a few rows fill a few vectors where they are turned to columns.
            open_rows_.reserve(static_cast<std::size_t>(kBlockRows) * static_cast<std::size_t>(chains_.stride));
            for (int i = 0; i < n; ++i)
                std::copy_n(rows.dense + static_cast<std::ptrdiff_t>(open[i]) * chains_.stride, chains_.stride,
                            open_rows_.get() + static_cast<std::ptrdiff_t>(i) * chains_.stride);
            TreeRows closed = rows;
            closed.n = n;
            closed.dense = open_rows_.get();
            arrange(closed);
            score(closed, n, scores_.data());
        }
        const int width = score_width(chains_);
        for (int i = 0; i < n; ++i) {
            const double* first = scores_.data() + static_cast<std::ptrdiff_t>(i) * width;
            const auto best = static_cast<std::int32_t>(std::max_element(first, first + width) - first);
            labels[open[i]] = width == chains_.n_classes ? best : chains_.classes[*first > 0.0];
        }
    }

    bool vote_;
    std::int32_t *labels_, *work_;
    std::vector<double> scores_;
    AlignedBuffer<float> open_rows_;
};

class ChainScores : public ChainVoter {
  public:
    ChainScores(const ChainStage& stage, const HotTable& hot, double* scores)
        : ChainVoter(stage, hot), scores_(scores) {}

    bool run(const RowSource& rows, std::int64_t first, int n) {
        if (!packer_.pack(rows, first, n, outcome)) return false;
        const TreeRows packed = packer_.rows();
        arrange(packed);
        score(packed, n, scores_ + first * score_width(chains_));
        return true;
    }

  private:
    double* scores_;
};

class ChainTracer : public ChainWalker {
  public:
    ChainTracer(const ChainStage& stage, const HotTable& hot, const ChainTrace& out)
        : ChainWalker(stage, hot), out_(out) {}

    bool run(const RowSource& rows, std::int64_t first, int n) {
        if (!packer_.pack(rows, first, n, outcome)) return false;
        const TreeRows packed = packer_.rows();
        arrange(packed);
        for (int chain = 0; chain < chains_.n_chains; ++chain) {
            std::fill_n(node_, n, 0);
            meet(chain, packed, n, true);
            const int n_nodes = chains_.start[chain + 1] - chains_.start[chain];
            for (int i = 0; i < n; ++i) {
                const std::int64_t at = (first + i) * chains_.n_chains + chain;
                out_.outcome[at] = outcome_[i];
                out_.node[at] = node_[i];
                out_.score[at] = n_nodes > 0 ? last_score(chain, i) : 0.0;
            }
            for (int i = 0; i < n_left_; ++i) out_.node[(first + left_[i]) * chains_.n_chains + chain] = n_nodes;
        }
        return true;
    }

  private:
    ChainTrace out_;
};

// Writes the steps of duels, one after another.
class DuelWriter {
  public:
    DuelWriter(const Chains& chains, std::vector<DuelStep>& steps) : chains_(chains), steps_(steps) {}

    // Where a duel of this chain ends for its champion.
    struct Exits {
        std::int32_t won, lost, open;
    };

    void write(int chain, int champion, int challenger, const Exits& exits) {
        const bool plus_wins = chains_.classes[2 * chain + 1] == chains_.order[champion];
        const std::int32_t minus = plus_wins ? exits.lost : exits.won, plus = plus_wins ? exits.won : exits.lost;
        const int end = chains_.end[chain];
        DuelStep step;
        step.champion = static_cast<std::int16_t>(champion);
        step.challenger = static_cast<std::int16_t>(challenger);
        const int first = chains_.start[chain], last = chains_.start[chain + 1];
        for (int h = first; h < std::max(last, first + 1); ++h) {
            const bool empty = first == last;
            step.low = empty ? -std::numeric_limits<float>::infinity() : chains_.nodes[h].low;
            step.high = empty ? std::numeric_limits<float>::infinity() : chains_.nodes[h].high;
            step.plane = empty ? 0 : h;
            step.cost = empty ? 0 : 1;
            step.next[0] = minus;
            step.next[1] = h + 1 < last ? 2 * (static_cast<std::int32_t>(steps_.size()) + 1)
                           : end < 0    ? minus
                           : end > 0    ? plus
                                        : exits.open;
            step.next[2] = plus;
            steps_.push_back(step);
        }
    }

  private:
    const Chains& chains_;
    std::vector<DuelStep>& steps_;
};

}  // namespace

Knockout make_knockout(const Chains& chains, KnockoutArrays& arrays) {
    const int n = chains.n_classes;
    const auto pair = [](int low, int high) { return static_cast<std::size_t>(high * (high - 1) / 2 + low); };
    const auto size = [](auto count) { return static_cast<std::size_t>(count); };
    std::vector<int> place(size(n));
    for (int p = 0; p < n; ++p) place[size(chains.order[p])] = p;
    std::vector<int> chain_of(size(chains.n_chains));
    for (int chain = 0; chain < chains.n_chains; ++chain) {
        const int a = place[size(chains.classes[2 * chain])], b = place[size(chains.classes[2 * chain + 1])];
        chain_of[pair(std::min(a, b), std::max(a, b))] = chain;
    }
    // Duels stand in the order of `pair`, first those of rising champions, then those of the checks.
    std::vector<std::int32_t> rise(size(chains.n_chains));
    std::vector<std::int32_t>& check = arrays.check;
    check.resize(size(chains.n_chains));
    std::int32_t n_steps = 0;
    for (std::vector<std::int32_t>* first : {&rise, &check})
        for (int p = 0; p < chains.n_chains; ++p) {
            const int chain = chain_of[size(p)];
            (*first)[size(p)] = n_steps;
            n_steps += std::max(chains.start[chain + 1] - chains.start[chain], 1);
        }
    arrays.steps.clear();
    arrays.steps.reserve(size(n_steps));
    DuelWriter writer(chains, arrays.steps);
    // The step of a champion against the next place, or the end of its rise.
    const auto beaten = [](std::int32_t next) { return next >= 0 ? next + 1 : next; };
    const auto meet = [&](int champion, int next) {
        return next < n ? 2 * rise[pair(champion, next)] : ~(1 + champion);
    };
    for (int b = 1; b < n; ++b)
        for (int a = 0; a < b; ++a)
            writer.write(chain_of[pair(a, b)], a, b,
                         {meet(a, b + 1), beaten(meet(b, b + 1)), b + 1 < n ? meet(b + 1, b + 2) : kOpenRow});
    for (int b = 1; b < n; ++b)
        for (int a = 0; a < b; ++a)
            writer.write(chain_of[pair(a, b)], b, a, {2 * check[pair((a + 1) % b, b)], kOpenRow, kOpenRow});
    Knockout game;
    game.stride = chains.stride;
    game.planes = chains.planes;
    game.steps = arrays.steps.data();
    game.check = check.data();
    // Measured: asking for the next plane gains a fifth with 2 MB of planes, and costs 2 % with 100 kB.
    constexpr std::int64_t kFastBytes = 1 << 19;
    game.fetch = static_cast<std::int64_t>(chains.n_nodes) * chains.stride * 4 > kFastBytes;
    return game;
}

int score_width(const Chains& chains) {
    return chains.n_classes == 2 && chains.rule == ChainRule::one_vs_one ? 1 : chains.n_classes;
}

StageOutcome chain_labels(const ChainStage& stage, const HotTable& hot, const RowSource& rows, int n_threads, bool vote,
                          std::int32_t* labels, std::int32_t* work) {
    return over_rows<ChainLabels>(
        rows, n_threads, [&](std::optional<ChainLabels>& walker) { walker.emplace(stage, hot, vote, labels, work); },
        [](ChainLabels&, std::int64_t, int) {});
}

StageOutcome chain_scores(const ChainStage& stage, const HotTable& hot, const RowSource& rows, int n_threads,
                          double* scores) {
    return over_rows<ChainScores>(
        rows, n_threads, [&](std::optional<ChainScores>& walker) { walker.emplace(stage, hot, scores); },
        [](ChainScores&, std::int64_t, int) {});
}

StageOutcome chain_trace(const ChainStage& stage, const HotTable& hot, const RowSource& rows, int n_threads,
                         const ChainTrace& out) {
    return over_rows<ChainTracer>(
        rows, n_threads, [&](std::optional<ChainTracer>& walker) { walker.emplace(stage, hot, out); },
        [](ChainTracer&, std::int64_t, int) {});
}

}  // namespace svelto
