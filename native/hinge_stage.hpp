// Hinging hyperplanes, or bumps, as a stage of a cascade: labels of the rows they are sure about, scores with error
// scales.
#pragma once

#include <cstdint>

#include "cascade_parts.hpp"
#include "hot.hpp"
#include "machine.hpp"
#include "row_packer.hpp"

namespace svelto {

struct HingeStage {
    Hinges hinges;
    Machine vote;                   // rule, n_scores, n_classes, break_ties: what decides a label
    bool distilled = false;         // one score a class; settled where the best is far enough from the second
    const double* shift = nullptr;  // [d], taken off every row before it becomes float32
    bool shifted = false;           // whether one of them is not zero; CSR rows are then made dense
    const double* error = nullptr;  // [n_scores], error scales; a distilled stage reads the first
    bool guarded = false;
    PackedGuard guard;              // rows outside are open: undecided at every caution, their errors infinite
    double rim_factor = 1.0;        // error scales of rows on the rim count so many times
    const ErrorMap* map = nullptr;  // says how many times a row's error scales count; null: once
};

// labels[row]: the label where |score| exceeds `caution` times its error scale for every score that can change it, else
// kUndecided. caution = 0 settles every row that the guard knows and whose scores are numbers and not equal.
StageOutcome hinge_labels(const HingeStage& stage, const HotTable& hot, const RowSource& rows, double caution,
                          int n_threads, std::int32_t* labels);

// scores and errors: [n_rows][n_scores].
StageOutcome hinge_scores(const HingeStage& stage, const HotTable& hot, const RowSource& rows, int n_threads,
                          double* scores, double* errors);

// Whether hinge_cautions can answer: votes of pairs of several classes and values have no single margin.
bool has_cautions(const HingeStage& stage);

// labels[row] and cautions[row]: hinge_labels gives that label at exactly the cautions below that number. A row that no
// caution settles has the label kUndecided and the caution 0.
StageOutcome hinge_cautions(const HingeStage& stage, const HotTable& hot, const RowSource& rows, int n_threads,
                            std::int32_t* labels, double* cautions);

}  // namespace svelto
