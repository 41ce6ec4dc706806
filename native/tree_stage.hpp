// A metric tree as the first stage of a cascade: labels of the rows it is sure about, scores with error scales.
#pragma once

#include <cstdint>

#include "hot.hpp"
#include "machine.hpp"
#include "row_packer.hpp"

namespace svelto {

struct TreeStage {
    Tree tree;
    LeafModels leaves;
    Machine vote;                   // rule, n_scores, n_classes, break_ties: what decides a label
    const double* shift = nullptr;  // [d], taken off every row before it becomes float32; zeros with stored rows
    bool stored = false;            // the tree was built on sparse rows: all rows walk by their stored features
    bool guarded = false;
    PackedGuard guard;  // rows that it does not know are open: undecided at every caution, their errors infinite
};

// labels[row]: the label where |score| exceeds `caution` times the row's error scale for every pair that can change the
// vote, else kUndecided. caution = 0 settles every row that the guard knows and whose scores are numbers.
StageOutcome stage_labels(const TreeStage& stage, const HotTable& hot, const RowSource& rows, double caution,
                          int n_threads, std::int32_t* labels);

// What stands behind the labels; pointers may be null. scores and errors: [n_rows][n_scores].
struct StageTrace {
    double* scores = nullptr;
    double* errors = nullptr;
    double* sq_dist = nullptr;
    std::int32_t* leaf = nullptr;
    std::int32_t* depth = nullptr;
};
StageOutcome stage_scores(const TreeStage& stage, const HotTable& hot, const RowSource& rows, int n_threads,
                          const StageTrace& out);

}  // namespace svelto
