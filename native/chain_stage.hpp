// Chains of hyperplanes between classes: labels of rows whose duels are all settled, and what every chain says.
#pragma once

#include <cstdint>
#include <vector>

#include "chains.hpp"
#include "hot.hpp"
#include "row_packer.hpp"

namespace svelto {

struct ChainStage {
    Chains chains;
    Knockout game;                       // three and more classes, one against one
    const std::int32_t* turn = nullptr;  // one against the rest: [n_classes], the chain of the class at each place
    const double* shift = nullptr;       // [d], taken off every row; zeros with stored rows
    bool stored = false;                 // all rows are met by their stored features
    const double* unit = nullptr;        // [n_nodes]: product in the caller's units = unit * packed product + offset
    const double* offset = nullptr;      // [n_nodes]
    const double* low = nullptr;         // [n_nodes], in the caller's units, as are high and spread
    const double* high = nullptr;        // [n_nodes]
    const double* spread = nullptr;      // [n_nodes], > 0: what a margin is measured in
    double clear = 0.0;                  // a margin beyond this counts no more in a sum of margins
};

// What a Knockout points to.
struct KnockoutArrays {
    std::vector<DuelStep> steps;
    std::vector<std::int32_t> check;
};

// Sizes and indices of `chains` are already checked, and there is one chain for each pair of its two or more classes.
Knockout make_knockout(const Chains& chains, KnockoutArrays& arrays);

// labels[row]: the class that every settled chain of its own votes for, with one against the rest the class whose chain
// alone says +1 while all others say -1; else -1, or with `vote` the first class with the largest score.
// work[row]: planes evaluated for it, without those of the vote; may be null.
StageOutcome chain_labels(const ChainStage& stage, const HotTable& hot, const RowSource& rows, int n_threads, bool vote,
                          std::int32_t* labels, std::int32_t* work);

// Scores of classes in a row: one for two classes with one chain, else one for each class.
int score_width(const Chains& chains);

// scores[row][width], from the outcome of every chain times its margin: the distance of the deciding node's product
// from the nearer threshold, in spreads, the smallest positive number at least. Two classes, and one against the rest:
// these as they are. Pairs: votes, plus a sum of margins squashed into (-1/3, 1/3) that decides between equal votes.
// Wide margins count no more than clear ones there: those of duels between other classes say nothing, loudly.
StageOutcome chain_scores(const ChainStage& stage, const HotTable& hot, const RowSource& rows, int n_threads,
                          double* scores);

// Every chain of every row, [n_rows][n_chains].
struct ChainTrace {
    std::int8_t* outcome = nullptr;
    std::int32_t* node = nullptr;  // the deciding node counted from the chain's first, their number at the end
    double* score = nullptr;       // its product in the caller's units; at the end the last node's; 0 without nodes
};
StageOutcome chain_trace(const ChainStage& stage, const HotTable& hot, const RowSource& rows, int n_threads,
                         const ChainTrace& out);

}  // namespace svelto
