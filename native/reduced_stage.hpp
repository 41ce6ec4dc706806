// A reduced set as a stage of a cascade: a sum over few vectors, with a map of its errors or one scale for all places.
#pragma once

#include "cascade_parts.hpp"
#include "machine.hpp"

namespace svelto {

struct ReducedSum {
    const WholeSum* sum = nullptr;
    const ErrorMap* map = nullptr;  // one error scale a row, in `unit`s; null: every error scale is the unit itself
    const double* unit = nullptr;   // [n_scores]
    Machine vote;                   // rule, n_scores, n_classes, break_ties: what decides a label
    Precision precision = Precision::float32;
    double rows_per_thread = 1.0;  // of the sum
};

// As LabelStage::settle.
StageOutcome reduced_labels(const ReducedSum& stage, const RowSource& rows, double caution, int n_threads,
                            std::int32_t* labels);

}  // namespace svelto
