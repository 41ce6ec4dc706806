// From group sums to scores, and from scores with error bounds to labels that are certain.
#pragma once

#include "bounds.hpp"
#include "machine.hpp"

namespace svelto {

constexpr int kUndecided = -1;

// scores[n_scores] and bounds[n_scores] of one row; `scale` multiplies the parts (the float32 weights are scaled).
void assemble(const Machine& machine, const double* parts, double scale, const RowBound& bound, double* scores,
              double* bounds) noexcept;

// The label, in vote order (rule sign: 1 or 0 for +1 and -1), if no error within the bounds can change it, else
// kUndecided. NaN scores and infinite bounds are undecided. `votes` has room for 2 * n_classes doubles.
int decide(const Machine& machine, const double* scores, const double* bounds, double* votes) noexcept;

// The label of the scores as they are: LIBSVM's vote with its tie rule, or scikit-learn's broken ties.
int label_of(const Machine& machine, const double* scores, double* votes) noexcept;

}  // namespace svelto
