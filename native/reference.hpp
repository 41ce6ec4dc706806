// Scores in LIBSVM's own order of operations: the last word where a score is within its rounding of zero.
#pragma once

#include "machine.hpp"

namespace svelto {

// Kernel values of a dense row with every support vector, features in ascending order, one rounding an operation.
void reference_kernel(const Machine& machine, const double* x, double* values) noexcept;

// The same for a row given by its stored elements (ascending columns); for machines with CSR vectors.
void reference_kernel_stored(const Machine& machine, const std::int32_t* columns, const double* x, int n,
                             double* values) noexcept;

// Scores from kernel values, support vectors in the machine's order.
void reference_scores(const Machine& machine, const double* values, double* scores) noexcept;

}  // namespace svelto
