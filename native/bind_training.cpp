// Solvers that training uses, for Python: checks shapes once, lets the interpreter go, computes nothing.
#include <algorithm>
#include <utility>

#include "binding.hpp"
#include "hull_projection.hpp"

namespace svelto::binding {
namespace {

using Weights = nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
// Status, |w|^2, gap, steps, passes.
using HullTuple = std::tuple<int, double, double, std::int64_t, std::int64_t>;

// Keeps the arrays that the projector reads and writes.
class HullSolver {
  public:
    HullSolver(Matrix<double> points, Vector<double> target, Vector<double> lower, Vector<double> upper,
               Weights weights, bool has_start, double tol, double zero_tol, int n_threads)
        : points_(std::move(points)),
          target_(std::move(target)),
          lower_(std::move(lower)),
          upper_(std::move(upper)),
          weights_(std::move(weights)),
          projector_(make(has_start, tol, zero_tol, n_threads)) {}

    HullTuple advance(std::int64_t max_passes, double seconds, int n_threads) {
        const nb::gil_scoped_release nogil;
        const HullReport report = projector_.advance(max_passes, seconds, n_threads);
        return {static_cast<int>(report.status), report.sq_norm, report.gap, report.n_steps, report.n_passes};
    }

    void direction(Weights out) const {
        const std::vector<double>& w = projector_.direction();
        require(out.shape(0) == w.size(), "out and target disagree in length");
        std::copy(w.begin(), w.end(), out.data());
    }

  private:
    HullProjector make(bool has_start, double tol, double zero_tol, int n_threads) {
        const std::size_t n = points_.shape(0), d = points_.shape(1);
        require(n >= 1 && d >= 1, "there are no points");
        require(target_.shape(0) == d, "points and target disagree in width");
        require(lower_.shape(0) == n && upper_.shape(0) == n && weights_.shape(0) == n,
                "points, bounds and weights disagree in length");
        HullProblem problem;
        problem.points = points_.data();
        problem.n_rows = static_cast<std::int64_t>(n);
        problem.n_features = static_cast<std::int64_t>(d);
        problem.target = target_.data();
        problem.lower = lower_.data();
        problem.upper = upper_.data();
        problem.tol = tol;
        problem.zero_tol = zero_tol;
        const nb::gil_scoped_release nogil;
        return HullProjector(problem, weights_.data(), has_start, n_threads);
    }

    Matrix<double> points_;
    Vector<double> target_, lower_, upper_;
    Weights weights_;
    HullProjector projector_;
};

}  // namespace

void bind_training(nb::module_& m) {
    nb::class_<HullSolver>(m, "HullSolver")
        .def(nb::init<Matrix<double>, Vector<double>, Vector<double>, Vector<double>, Weights, bool, double, double,
                      int>(),
             "points"_a.noconvert(), "target"_a.noconvert(), "lower"_a.noconvert(), "upper"_a.noconvert(),
             "weights"_a.noconvert(), "has_start"_a, "tol"_a, "zero_tol"_a, "n_threads"_a)
        .def("advance", &HullSolver::advance, "max_passes"_a, "seconds"_a, "n_threads"_a)
        .def("direction", &HullSolver::direction, "out"_a.noconvert());
}

}  // namespace svelto::binding
