// Lists of support vectors by distance, and sums that stop when the rest cannot change the label.
//
// A list holds all support vectors in ascending order of their distance from its first one, s_1. A query x takes the
// list whose first vector is nearest and adds w_i k(x, s_i) along it. With t = d(x, s_1), known from that choice, the
// triangle inequality bounds what is left behind position n, positive weights P and negative weights N apart:
//
//     lower P  <=  sum of the positive terms left  <=  upper P,      and the same for N
//
//     rbf                      upper = exp(-gamma low^2),  low = max(0, d(s_1, s_n+1) - t)    P, N: sums of |w_i|
//                              lower = exp(-gamma upp^2),  upp = d(s_1, s_last) + t
//     exponential, laplacian   upper = exp(+gamma t),  lower = exp(-gamma t)                  P, N: sums of
//                                                                                             |w_i| exp(-gamma d(s_1,
//                                                                                             s_i))
//
// so that the score lies in [f_n + lower P - upper N, f_n + upper P - lower N]. The laplacian kernel is the exponential
// one in the L1 metric.
#pragma once

#include <cstdint>

#include "machine.hpp"
#include "rows.hpp"

namespace svelto {

struct DistanceLists {
    Machine vote;  // kernel, d, n_sv, rule, n_scores, n_classes, break_ties, intercept, reference vectors and gamma
    int n_lists = 0;
    int n_rows = 0;                          // rows of dual_coef
    const double* coef = nullptr;            // [n_sv][n_rows]
    const std::int32_t* sv_class = nullptr;  // [n_sv] for LIBSVM's compact layout of pairs; null: one row a score
    const double* weight_sum = nullptr;      // [n_scores], sum |w|
    const std::int32_t* order = nullptr;     // [n_lists][n_sv]
    const double* distance = nullptr;        // [n_lists][n_sv], from the first vector, ascending
    const std::int32_t* starts = nullptr;    // [n_sv]: the list that the vector starts, or -1
    const std::int32_t* last = nullptr;      // [n_lists][n_scores]: last position with a weight in the score, or -1
    const double* total = nullptr;           // [n_lists][n_scores][2]: P and N in front of the list
    const double* rest = nullptr;            // [n_lists][n_sv][n_rows][2]: P and N behind the position
};

struct ListsOutcome {
    std::int64_t settled = 0;
    std::int64_t bad_row = -1;
    Fault fault = Fault::none;
};

// Label of every row in vote order, kUndecided where rounding leaves it open, and the kernel values that it took.
//   shared   one walk for all scores, until the vote is certain
//   else     a walk for each score, until its own sign is certain (the paper); evaluations are added up
ListsOutcome list_labels(const DistanceLists& lists, const RowSource& rows, bool shared, int n_threads,
                         std::int32_t* labels, std::int64_t* evaluations);

}  // namespace svelto
