// Leaves that know how wrong they can be: intervals for the scores of a Gaussian machine that hold for every row.
//
// With c the leaf's centre, delta = x - c, q = |delta|^2, D_i = s_i - c and k_i = exp(-gamma |D_i|^2),
//
//     f(x) - b = exp(-gamma q) sum_i a_i k_i exp(t_i),    t_i = 2 gamma delta . D_i,
//
// exactly. Expanding exp(t) = 1 + t + t^2/2 + rest, |rest| <= |t|^3/6 exp(|t|):
//
//     sum a_i k_i                         value
//     2 gamma sum a_i k_i D_i . delta     slope
//     2 gamma^2 delta^T M delta           between low q and high q, from the eigenvalues of M = sum a_i k_i D_i D_i^T
//     at most cubic q^(3/2)               cubic = 8 gamma^3/6 sum |a_i| k_i |D_i|^3 exp(2 gamma r |D_i|), for q <= r^2
//
// `slack` has room for all rounding, of these numbers, of their evaluation here, and of the reference's own sum.
#pragma once

#include <cstdint>

#include "tree_stage.hpp"

namespace svelto {

struct CertifiedLeaves {
    double gamma = 0.0;
    const double* intercept = nullptr;  // [n_scores]
    const double* centres = nullptr;    // [n_leaves][d]
    const double* sq_radius = nullptr;  // [n_leaves]: the interval holds for q up to this
    const double* value = nullptr;      // [n_leaves][n_scores], and so the others
    const double* slope = nullptr;      // [n_leaves][n_scores][d]
    const double* low = nullptr;
    const double* high = nullptr;
    const double* cubic = nullptr;
    const double* slack = nullptr;
};

// Labels where the intervals decide, else kUndecided. scores and bounds ([n_rows][n_scores], the middle and half the
// width of the interval) may be null.
StageOutcome certified_labels(const TreeStage& stage, const CertifiedLeaves& leaves, const HotTable& hot,
                              const RowSource& rows, int n_threads, std::int32_t* labels, double* scores,
                              double* bounds);

}  // namespace svelto
