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
};

// What a Knockout points to.
struct KnockoutArrays {
    std::vector<DuelStep> steps;
    std::vector<std::int32_t> check;
};

// Sizes and indices of `chains` are already checked, and there is one chain for each pair of its two or more classes.
Knockout make_knockout(const Chains& chains, KnockoutArrays& arrays);

// labels[row]: the class that every settled chain of its own votes for, with one against the rest the class whose chain
// alone says +1 while all others say -1; else -1. work[row]: planes evaluated for it; may be null.
StageOutcome chain_labels(const ChainStage& stage, const HotTable& hot, const RowSource& rows, int n_threads,
                          std::int32_t* labels, std::int32_t* work);

// Every chain of every row, [n_rows][n_chains].
struct ChainTrace {
    std::int8_t* outcome = nullptr;
    std::int32_t* node = nullptr;  // the deciding node counted from the chain's first, their number at the end
    double* score = nullptr;       // its product in the caller's units; at the end the last node's; 0 without nodes
};
StageOutcome chain_trace(const ChainStage& stage, const HotTable& hot, const RowSource& rows, int n_threads,
                         const ChainTrace& out);

}  // namespace svelto
