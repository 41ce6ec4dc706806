// Labels and scores of query rows: float32 where that is certain, float64 where it is needed, LIBSVM's order at last.
#pragma once

#include <cstdint>
#include <span>

#include "hot.hpp"
#include "machine.hpp"
#include "rows.hpp"

namespace svelto {

enum class Precision : int { float32 = 0, float64 = 1, reference = 2 };

// Where the rows were settled, and the first row that could not be read (-1: none).
struct Outcome {
    std::int64_t settled_f32 = 0;
    std::int64_t settled_f64 = 0;
    std::int64_t settled_reference = 0;
    std::int64_t passes = 0;  // evaluations of a whole row, over all tiers
    std::int64_t bad_row = -1;
    Fault fault = Fault::none;
};

// labels[row] in vote order; rule sign: 1 or 0. With first tier float64 or reference the earlier ones are skipped.
Outcome predict_labels(const Machine& machine, const HotTable& hot, const RowSource& rows, Precision first,
                       int n_threads, std::int32_t* labels);

// The same for the rows with the given numbers.
Outcome predict_some(const Machine& machine, const HotTable& hot, const RowSource& rows,
                     std::span<const std::int64_t> numbers, Precision first, int n_threads, std::int32_t* labels);

// scores[row][n_scores], and where `bounds` is given the bound on |score - float64 score| of each. A float32 score that
// overflowed is computed again in float64.
Outcome compute_scores(const Machine& machine, const HotTable& hot, const RowSource& rows, Precision precision,
                       int n_threads, double* scores, double* bounds);

}  // namespace svelto
