// Sequential minimal optimisation of one C-SVM: pairs of variables chosen as LIBSVM does (Fan, Chen and Lin 2005,
// WSS2), one pair a step, until no pair violates the optimality conditions by more than tol.
//
// Variables carry the sign of their class (local_rows.hpp). Those that stay at a bound are set aside for a while, as by
// LIBSVM's shrinking: the others are packed together, with their part of the kernel matrix, so that passes stay
// contiguous. Optimality of all is checked at the end, on slopes computed anew.
#pragma once

#include <cstdint>
#include <vector>

#include "local_gram.hpp"

namespace svelto {

struct SmoReport {
    double intercept = 0.0;
    std::int64_t n_steps = 0;
    bool converged = false;
    bool met_bound = false;  // whether a weight ever reached C; if none did, every larger C takes the same steps
};

// Weights between bounds, and what the passes over them need.
struct Variables {
    std::vector<double> weight, low, high;
    AlignedBuffer<double> slope, rise, fall;
    AlignedBuffer<float> falling;
    SolverState state;
    Extremes extremes{};

    int size() const { return static_cast<int>(weight.size()); }
    void resize(int n, int n_padded);
    void mark(int i);  // whether weight i may rise and fall
    void find_extremes();
    int steepest_fall() const;
};

class SmoSolver {
  public:
    // The first n_positive rows are of the class +1, the others of -1; both have rows. bounds[i] > 0 is C of row i.
    // At most max_steps steps; -1: as many as LIBSVM allows.
    SmoReport solve(SubGram& gram, int n_positive, const double* bounds, double tol, std::int64_t max_steps,
                    const HotTable& hot);

    // y_i alpha_i of row i: its coefficient in the decision function.
    double coef(int i) const { return all_.weight[static_cast<std::size_t>(i)] / factor_; }

  private:
    void start(const SubGram& gram, int n_positive, const double* bounds);
    void step(SubGram& gram, Variables& v);
    void set_aside(SubGram& gram);
    void take_back(SubGram& gram);
    double intercept() const;

    const HotTable* hot_ = nullptr;
    double factor_ = 1.0;
    int n_positive_ = 0;
    Variables all_, active_, smaller_;
    std::vector<int> ids_, smaller_ids_, positions_;  // places of the active variables in all_; scratch
    SubGram active_gram_;
    bool is_shrunk_ = false;
    bool met_bound_ = false;
};

}  // namespace svelto
