// The point of a (reduced) convex hull that is nearest to a target: the H1-SVM of paper S2 (sections 3.1.2 and 4.1,
// Problem 4.3). Its soft class, whose multipliers all are 1, only acts through its centre of gravity, the target; the
// hard class's multipliers, over the number of soft rows, are the weights lambda.
//
//     minimise 1/2 |w|^2,  w = sum_i lambda_i x_i - target,  sum lambda = 1,  lower_i <= lambda_i <= upper_i
//
// A pass computes the gradient g_i = <w, x_i - target> of every row, chooses a few hundred rows that violate the
// optimality conditions, and solves the problem in their weights alone (hull_subproblem.hpp). The same gradients bound
// the distance from below, by the plane that is orthogonal to w and touches the hull: the gap is |w|^2 less the
// smallest <w, x - target> in the hull, and passes end when it is small.
#pragma once

#include <cstdint>
#include <vector>

#include "hull_subproblem.hpp"

namespace svelto {

struct HullProblem {
    const double* points = nullptr;  // [n_rows][n_features]
    std::int64_t n_rows = 0;
    std::int64_t n_features = 0;
    const double* target = nullptr;  // [n_features]
    const double* lower = nullptr;   // [n_rows]; sums to at most 1
    const double* upper = nullptr;   // [n_rows], may be infinite; sums to at least 1
    double tol = 0.0;                // gap that ends it, as a share of |w|^2
    double zero_tol = 0.0;           // |w| that counts as zero, as a share of the median |x_i - target|
};

// stalled: passes change nothing any more, by rounding.
enum class HullStatus : int { running, optimal, zero, stalled };

struct HullReport {
    HullStatus status = HullStatus::running;
    double sq_norm = 0.0;  // |w|^2
    double gap = 0.0;
    std::int64_t n_steps = 0;
    std::int64_t n_passes = 0;
};

class HullProjector {
  public:
    // `weights` [n_rows] is written after every pass; it holds a feasible start where has_start says so. The problem's
    // arrays are kept as pointers. Throws std::overflow_error where squared distances are too large for a double.
    HullProjector(const HullProblem& problem, double* weights, bool has_start, int n_threads);

    // At most this many passes more (the first only evaluates the start), and none begun after this many seconds. The
    // same bits for any number of threads, and for any division into calls.
    HullReport advance(std::int64_t max_passes, double seconds, int n_threads);

    // w. It is kept from pass to pass, and has digits that the weights cannot hold where the target almost lies in the
    // hull; from sum lambda_i x_i - target it differs by rounding of the rows.
    const std::vector<double>& direction() const { return w_; }

  private:
    void measure_rows(int n_threads);
    double fill_smallest(const std::vector<double>& values, double* weights);
    void compute_w(int n_threads);
    void compute_gradient(int n_threads);
    void find_violators();
    bool sweep();
    void select_rows();
    void take_rows(int n_threads);
    bool solve_rows();
    bool is_stuck();
    void evaluate(int n_threads);
    bool improve(int n_threads);

    HullProblem problem_;
    double* weights_;
    double zero_below_ = 0.0;
    double moved_ = 0.0;               // weight moved since w was computed from all weights
    std::vector<double> w_, centre_;   // [n_features]; products are taken about the centre
    std::vector<double> gradient_;     // [n_rows]
    double level_ = 0.0;               // between the gradients that should rise and those that should fall
    std::vector<std::int64_t> order_;  // [n_rows]
    std::vector<std::int64_t> grow_, fall_, between_;  // rows at the lower bound, at the upper, between the two
    int capacity_;                                     // rows of the subproblem
    std::int64_t stride_;
    HullSubproblem subproblem_;
    std::vector<std::int64_t> rows_;  // its rows
    std::vector<std::size_t> kept_;   // the positions that the first of them had in the pass before
    std::vector<double> columns_;     // the rows about the centre: [n_features][stride]
    double checked_gap_, checked_norm_;
    HullReport report_;
};

}  // namespace svelto
