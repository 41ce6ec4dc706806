#include "chain_stage.hpp"

#include <algorithm>
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

class ChainLabels : public ChainWalker {
  public:
    ChainLabels(const ChainStage& stage, const HotTable& hot, std::int32_t* labels, std::int32_t* work)
        : ChainWalker(stage, hot), labels_(labels), work_(work) {}

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

    std::int32_t *labels_, *work_;
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
            const int start = chains_.start[chain], n_nodes = chains_.start[chain + 1] - start;
            for (int i = 0; i < n; ++i) {
                const std::int64_t at = (first + i) * chains_.n_chains + chain;
                const int node = start + node_[i];
                out_.outcome[at] = outcome_[i];
                out_.node[at] = node_[i];
                out_.score[at] = 0.0;
                if (n_nodes > 0)
                    out_.score[at] = static_cast<double>(score_[i]) * stage_.unit[node] + stage_.offset[node];
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

StageOutcome chain_labels(const ChainStage& stage, const HotTable& hot, const RowSource& rows, int n_threads,
                          std::int32_t* labels, std::int32_t* work) {
    return over_rows<ChainLabels>(
        rows, n_threads, [&](std::optional<ChainLabels>& walker) { walker.emplace(stage, hot, labels, work); },
        [](ChainLabels&, std::int64_t, int) {});
}

StageOutcome chain_trace(const ChainStage& stage, const HotTable& hot, const RowSource& rows, int n_threads,
                         const ChainTrace& out) {
    return over_rows<ChainTracer>(
        rows, n_threads, [&](std::optional<ChainTracer>& walker) { walker.emplace(stage, hot, out); },
        [](ChainTracer&, std::int64_t, int) {});
}

}  // namespace svelto
