// The projection onto a hull in the weights of a few rows, all others kept as they are.
//
// With z_k the rows about some centre, weights change by c_k with sum c = 0, and 1/2 |w + sum c_k z_k|^2 is to fall.
// Only products of rows are needed, and the gradients g_k = <w, z_k> up to a constant, which such changes do not see.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "free_factor.hpp"

namespace svelto {

class HullSubproblem {
  public:
    HullSubproblem(int capacity, int stride, int n_features);

    // Filled by the owner for rows 0 .. size - 1, `change` with zeros.
    std::int64_t size = 0;
    std::vector<double> gradient, weight, lower, upper;
    // Sum of all steps of a weight. Kept apart from the weight, where a step below its last digit would be lost: such
    // steps still count in w when the target almost lies in the hull.
    std::vector<double> change;
    double* products(std::int64_t k) { return products_.get() + k * stride_; }
    const double* products(std::int64_t k) const { return products_.get() + k * stride_; }

    // Largest gradient of a weight that may fall less the smallest of one that may grow; at most 0 at an optimum.
    double violation() const;

    // Steps of two weights (S2, section 4.1, Algorithm 1) until the violation is at most `tolerance`; how many.
    std::int64_t pair_steps(double tolerance, std::int64_t limit);

    // Exact solutions in the weights between their bounds, one of which leaves or enters at a time (Wolfe's method of
    // the nearest point, with boxes), until the violation is at most `tolerance`; how many.
    std::int64_t active_set_steps(double tolerance, std::int64_t limit);

  private:
    bool may_grow(std::size_t k) const { return weight[k] < upper[k]; }
    bool may_fall(std::size_t k) const { return weight[k] > lower[k]; }
    void move(std::size_t k, double step);
    void start_free();
    bool add_free(std::size_t k);
    void remove_free(int position);
    void balance_direction(double rest);
    void find_direction();
    void find_exchange(std::size_t k);
    int apply_direction();
    void enter(std::size_t k);
    double free_level(double& spread) const;
    std::ptrdiff_t find_entering(double level, double tolerance) const;

    std::ptrdiff_t stride_;
    std::unique_ptr<double[]> products_;  // [stride][stride]; pages that are never used are never touched
    FreeFactor factor_;                   // of the free rows' products, each plus shift_
    double shift_ = 0.0;
    std::vector<std::size_t> free_;  // the factor's rows, in its order
    std::vector<char> is_free_;
    std::vector<std::size_t> moving_;  // the rows of direction_
    std::vector<double> direction_, ones_, column_, slope_;
};

}  // namespace svelto
