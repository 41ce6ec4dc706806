// A tree of kernel values as the first stage of a cascade: labels of the rows it is sure about, scores with error
// scales.
#pragma once

#include <cstdint>

#include "hot.hpp"
#include "machine.hpp"
#include "path_tree.hpp"
#include "row_packer.hpp"

namespace svelto {

struct PathStage {
    PathTree tree;
    PathLeaves leaves;
    Machine vote;                   // rule, n_scores, n_classes, break_ties: what decides a label
    const double* shift = nullptr;  // [d], taken off every row; zeros with stored rows and kernels of products
    bool stored = false;            // all rows walk by their stored features
    float reach = 0.0f;             // largest squared length of a packed row that is like those of the leaves
};

// labels[row]: the label where |score| exceeds `caution` times the row's error scale for every pair that can change the
// vote, else kUndecided. caution = 0 settles every row whose scores are numbers.
StageOutcome path_labels(const PathStage& stage, const HotTable& hot, const RowSource& rows, double caution,
                         int n_threads, std::int32_t* labels);

// What stands behind the labels. scores and errors: [n_rows][n_scores].
struct PathTrace {
    double* scores = nullptr;
    double* errors = nullptr;
    std::int32_t* leaf = nullptr;
    std::int32_t* evaluations = nullptr;  // kernel values
};
StageOutcome path_scores(const PathStage& stage, const HotTable& hot, const RowSource& rows, int n_threads,
                         const PathTrace& out);

}  // namespace svelto
