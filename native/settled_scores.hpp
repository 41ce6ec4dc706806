// What scores and error bounds that somebody else computed say about labels.
#pragma once

#include <cstdint>

#include "machine.hpp"

namespace svelto {

// Labels; kUndecided where the bounds leave them open. Scores and bounds: [n_rows][n_scores].
void settle_scores(const Machine& vote, const double* scores, const double* bounds, std::int64_t n_rows,
                   std::int32_t* labels);

// For every row the last of the increasing `rungs` for which bounds of rung times error settle it, 0 where none does.
// Settled at a rung means settled at every smaller one, so it is found by bisection.
void last_settled_rungs(const Machine& vote, const double* scores, const double* errors, std::int64_t n_rows,
                        const double* rungs, int n_rungs, int n_threads, std::int32_t* last);

}  // namespace svelto
