// Many small C-SVMs: one for each neighbourhood of a training set (paper S4), and their cross-validation.
//
// A neighbourhood is a list of training rows. Several classes are settled one against one, as LIBSVM does: a machine
// for every pair of classes that are present, positive for the first of the two. One class needs no machine.
// Neighbourhoods are handed out to threads one by one; the answer is the same for any number of threads and any
// instruction level.
#pragma once

#include <cstdint>
#include <vector>

#include "local_gram.hpp"

namespace svelto {

// Rows of a neighbourhood at most: its kernel matrix then has 16 GB, of which only rows that are used are touched.
constexpr std::int64_t kMaxLocalRows = 65'536;

struct LocalProblems {
    LocalRows rows;
    const std::int32_t* y = nullptr;        // [n_rows], class codes
    const double* weight = nullptr;         // [n_rows], multiplies C; rows of weight 0 are left out. May be null
    const std::int64_t* start = nullptr;    // [n_problems + 1], into numbers
    const std::int64_t* numbers = nullptr;  // row numbers
    std::int64_t n_problems = 0;
    LocalKernel kernel;
    double tol = 1e-3;
    std::int64_t max_steps = -1;  // -1: LIBSVM's limit
};

// Flat arrays in the order of the problems.
struct LocalModels {
    std::vector<std::int64_t> class_start;    // [n_problems + 1], into classes
    std::vector<std::int32_t> classes;        // codes that are present, ascending
    std::vector<std::int64_t> pair_start;     // [n_problems + 1], into the pairs (0, 1), (0, 2), ... (1, 2), ...
    std::vector<double> intercept;            // [n_pairs]
    std::vector<std::int64_t> n_steps;        // [n_pairs]
    std::vector<std::uint8_t> converged;      // [n_pairs]
    std::vector<std::int64_t> support_start;  // [n_pairs + 1], into the next two
    std::vector<std::int32_t> support;        // training rows with a coefficient
    std::vector<double> coef;
};

// C and gamma: [n_problems]; a linear kernel reads no gamma. Throws std::overflow_error where values are not finite or
// too large to be squared.
LocalModels fit_local(const LocalProblems& problems, const double* C, const double* gamma, int n_threads,
                      const HotTable& hot);

// Grid of hyperparameters and folds of the rows.
struct LocalGrid {
    const double* C = nullptr;      // [n_problems][n_C]
    const double* gamma = nullptr;  // [n_problems][n_gamma]
    int n_C = 0;
    int n_gamma = 0;
    const std::int32_t* fold = nullptr;  // one for each of the row numbers; negative: never held out
    const double* worth = nullptr;       // [n_rows], what a right answer counts; may be null: 1
};

// right[problem][gamma][C]: what the held-out rows that were answered rightly are worth, over all folds.
void search_local(const LocalProblems& problems, const LocalGrid& grid, int n_threads, const HotTable& hot,
                  double* right);

}  // namespace svelto
