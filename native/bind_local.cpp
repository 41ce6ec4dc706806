// Many small SVMs, for Python: checks shapes and row numbers once, lets the interpreter go, computes nothing.
#include <algorithm>
#include <limits>
#include <utility>

#include "binding.hpp"
#include "local_spread.hpp"
#include "local_svm.hpp"

namespace svelto::binding {
namespace {

template <class T>
using Owned = nb::ndarray<nb::numpy, T, nb::ndim<1>>;
// Classes present (start, codes); pairs (start, intercepts, steps, converged); support (start, rows, coefficients).
using ModelTuple =
    std::tuple<Owned<std::int64_t>, Owned<std::int32_t>, Owned<std::int64_t>, Owned<double>, Owned<std::int64_t>,
               Owned<std::uint8_t>, Owned<std::int64_t>, Owned<std::int32_t>, Owned<double>>;

// A NumPy array that owns the vector's memory.
template <class T>
Owned<T> give(std::vector<T>& values) {
    auto* kept = new std::vector<T>(std::move(values));
    const nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return Owned<T>(kept->data(), {kept->size()}, owner);
}

bool all_positive(const double* values, std::size_t n) {
    return std::all_of(values, values + n,
                       [](double v) { return v > 0.0 && v < std::numeric_limits<double>::infinity(); });
}

LocalProblems read_problems(const AnyMatrix& X, const Vector<std::int32_t>& y, const Vector<double>& weight,
                            const Vector<std::int64_t>& start, const Vector<std::int64_t>& numbers, int kernel,
                            int degree, double coef0, double tol, std::int64_t max_steps, int n_threads) {
    LocalProblems p;
    const std::size_t n = X.shape(0), d = X.shape(1);
    p.rows.is_float32 = X.dtype() == nb::dtype<float>();
    require(p.rows.is_float32 || X.dtype() == nb::dtype<double>(), "rows must be float32 or float64");
    require(n >= 1 && d >= 1, "there are no rows");
    // The stride of an axis with one element says nothing.
    require((d == 1 || X.stride(1) == 1) && (n == 1 || X.stride(0) == static_cast<std::int64_t>(d)),
            "rows must be C-contiguous");
    require(n < static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()) &&
                d < static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max() / kLocalBlock),
            "there are too many rows");
    p.rows.data = X.data();
    p.rows.n_rows = static_cast<std::int64_t>(n);
    p.rows.n_features = static_cast<int>(d);
    require(y.shape(0) == n, "y and rows disagree in length");
    p.y = y.data();
    require(weight.shape(0) == n || weight.shape(0) == 0, "weights and rows disagree in length");
    if (weight.shape(0) == n) {
        p.weight = weight.data();
        require(std::all_of(p.weight, p.weight + n,
                            [](double w) { return w >= 0.0 && w < std::numeric_limits<double>::infinity(); }),
                "a weight is negative or not finite");
    }
    require(start.shape(0) >= 1 && start.data()[0] == 0, "indptr does not begin with 0");
    p.start = start.data();
    p.n_problems = static_cast<std::int64_t>(start.shape(0)) - 1;
    for (std::int64_t k = 0; k < p.n_problems; ++k) {
        const std::int64_t size = p.start[k + 1] - p.start[k];
        require(p.start[k + 1] >= p.start[k], "indptr falls");
        require(size <= kMaxLocalRows, "a neighbourhood has too many rows");
    }
    require(p.start[p.n_problems] == static_cast<std::int64_t>(numbers.shape(0)),
            "indptr does not cover the row numbers");
    p.numbers = numbers.data();
    for (std::size_t k = 0; k < numbers.shape(0); ++k)
        require(p.numbers[k] >= 0 && p.numbers[k] < p.rows.n_rows, "a row number is out of range");
    p.kernel.kind = static_cast<KernelKind>(kernel);
    require(
        p.kernel.kind == KernelKind::rbf || p.kernel.kind == KernelKind::poly || p.kernel.kind == KernelKind::linear,
        "the kernel must be rbf, poly or linear");
    p.kernel.degree = degree;
    p.kernel.coef0 = coef0;
    require(degree >= 1, "degree must be positive");
    require(coef0 > -std::numeric_limits<double>::infinity() && coef0 < std::numeric_limits<double>::infinity(),
            "coef0 must be finite");
    require(tol > 0.0, "tol must be positive");
    require(n_threads >= 1, "n_threads must be positive");
    p.tol = tol;
    p.max_steps = max_steps;
    return p;
}

ModelTuple fit_problems(const AnyMatrix& X, const Vector<std::int32_t>& y, const Vector<double>& weight,
                        const Vector<std::int64_t>& start, const Vector<std::int64_t>& numbers, int kernel, int degree,
                        double coef0, const Vector<double>& C, const Vector<double>& gamma, double tol,
                        std::int64_t max_steps, int n_threads, const std::string& level) {
    const LocalProblems p =
        read_problems(X, y, weight, start, numbers, kernel, degree, coef0, tol, max_steps, n_threads);
    const auto n = static_cast<std::size_t>(p.n_problems);
    require(C.shape(0) == n && gamma.shape(0) == n, "C, gamma and problems disagree in length");
    require(all_positive(C.data(), n) && all_positive(gamma.data(), n), "C and gamma must be positive");
    const HotTable& hot = level_table(level);
    LocalModels models;
    {
        const nb::gil_scoped_release nogil;
        models = fit_local(p, C.data(), gamma.data(), n_threads, hot);
    }
    return {give(models.class_start),   give(models.classes), give(models.pair_start),
            give(models.intercept),     give(models.n_steps), give(models.converged),
            give(models.support_start), give(models.support), give(models.coef)};
}

using Right = nb::ndarray<double, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

void search_problems(const AnyMatrix& X, const Vector<std::int32_t>& y, const Vector<double>& weight,
                     const Vector<std::int64_t>& start, const Vector<std::int64_t>& numbers, int kernel, int degree,
                     double coef0, const Vector<std::int32_t>& fold, const Vector<double>& worth,
                     const Matrix<double>& C, const Matrix<double>& gamma, double tol, std::int64_t max_steps,
                     int n_threads, const std::string& level, Right right) {
    const LocalProblems p =
        read_problems(X, y, weight, start, numbers, kernel, degree, coef0, tol, max_steps, n_threads);
    const auto n = static_cast<std::size_t>(p.n_problems);
    require(fold.shape(0) == numbers.shape(0), "folds and row numbers disagree in length");
    require(worth.shape(0) == y.shape(0) || worth.shape(0) == 0, "worth and rows disagree in length");
    require(C.shape(0) == n && gamma.shape(0) == n, "C, gamma and problems disagree in length");
    require(C.shape(1) >= 1 && gamma.shape(1) >= 1 && C.shape(1) < 1'000'000 && gamma.shape(1) < 1'000,
            "the grid is empty or too large");
    require(all_positive(C.data(), C.size()) && all_positive(gamma.data(), gamma.size()),
            "C and gamma must be positive");
    require(right.shape(0) == n && right.shape(1) == gamma.shape(1) && right.shape(2) == C.shape(1),
            "right has a wrong shape");
    LocalGrid grid;
    grid.C = C.data();
    grid.gamma = gamma.data();
    grid.n_C = static_cast<int>(C.shape(1));
    grid.n_gamma = static_cast<int>(gamma.shape(1));
    grid.fold = fold.data();
    grid.worth = worth.shape(0) == 0 ? nullptr : worth.data();
    const HotTable& hot = level_table(level);
    const nb::gil_scoped_release nogil;
    search_local(p, grid, n_threads, hot, right.data());
}

void spread_problems(const Matrix<double>& X, const Vector<std::int64_t>& start, const Vector<std::int64_t>& numbers,
                     int n_threads, nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu> out) {
    require(start.shape(0) >= 1 && start.data()[0] == 0, "indptr does not begin with 0");
    const auto n = static_cast<std::int64_t>(start.shape(0)) - 1;
    for (std::int64_t k = 0; k < n; ++k) require(start.data()[k + 1] >= start.data()[k], "indptr falls");
    require(start.data()[n] == static_cast<std::int64_t>(numbers.shape(0)), "indptr does not cover the row numbers");
    for (std::size_t k = 0; k < numbers.shape(0); ++k)
        require(numbers.data()[k] >= 0 && numbers.data()[k] < static_cast<std::int64_t>(X.shape(0)),
                "a row number is out of range");
    require(out.shape(0) == static_cast<std::size_t>(n), "out has a wrong shape");
    const nb::gil_scoped_release nogil;
    local_spread(X.data(), static_cast<int>(X.shape(1)), start.data(), numbers.data(), n, n_threads, out.data());
}

}  // namespace

void bind_local(nb::module_& m) {
    m.attr("MAX_LOCAL_ROWS") = kMaxLocalRows;
    m.def("fit_local", &fit_problems, "X"_a.noconvert(), "y"_a.noconvert(), "weight"_a.noconvert(),
          "start"_a.noconvert(), "numbers"_a.noconvert(), "kernel"_a, "degree"_a, "coef0"_a, "C"_a.noconvert(),
          "gamma"_a.noconvert(), "tol"_a, "max_steps"_a, "n_threads"_a, "level"_a);
    m.def("local_spread", &spread_problems, "X"_a.noconvert(), "start"_a.noconvert(), "numbers"_a.noconvert(),
          "n_threads"_a, "out"_a.noconvert());
    m.def("search_local", &search_problems, "X"_a.noconvert(), "y"_a.noconvert(), "weight"_a.noconvert(),
          "start"_a.noconvert(), "numbers"_a.noconvert(), "kernel"_a, "degree"_a, "coef0"_a, "fold"_a.noconvert(),
          "worth"_a.noconvert(), "C"_a.noconvert(), "gamma"_a.noconvert(), "tol"_a, "max_steps"_a, "n_threads"_a,
          "level"_a, "right"_a.noconvert());
}

}  // namespace svelto::binding
