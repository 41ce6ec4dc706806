// Distance lists for Python: checks shapes once, lets the interpreter go, computes nothing.
#include <cmath>

#include "binding.hpp"
#include "distance_lists.hpp"

namespace svelto::binding {
namespace {

using Counts = nb::ndarray<std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using ListsTuple = std::tuple<std::int64_t, std::int64_t, int>;

// Votes are counted into an array of classes, and weights found by class and row.
void check_lists_rule(const Machine& vote, int n_rows, bool grouped) {
    const bool pairs = vote.rule == Rule::pairs;
    require(pairs || vote.rule == Rule::argmax || vote.rule == Rule::sign, "the rule settles no labels");
    if (pairs)
        require(vote.n_classes >= 2 && 2 * vote.n_scores == vote.n_classes * (vote.n_classes - 1),
                "scores and classes disagree");
    if (vote.rule == Rule::argmax) require(vote.n_scores == vote.n_classes, "scores and classes disagree");
    if (vote.rule == Rule::sign) require(vote.n_scores == 1, "a sign needs one score");
    require(grouped ? pairs && n_rows == vote.n_classes - 1 : n_rows == vote.n_scores, "coef and scores disagree");
}

void check_vectors(const Machine& vote) {
    const Reference& r = vote.reference;
    for (int i = 0; i < vote.n_sv; ++i) {
        require(r.row_start[i] <= r.row_start[i + 1], "vector_start decreases");
        for (std::int64_t k = r.row_start[i]; k < r.row_start[i + 1]; ++k)
            require(
                r.columns[k] >= 0 && r.columns[k] < vote.d && (k == r.row_start[i] || r.columns[k - 1] < r.columns[k]),
                "vector_columns is out of order");
    }
}

DistanceLists read_lists(const nb::dict& fields) {
    DistanceLists l;
    Machine& vote = l.vote;
    vote.kernel = static_cast<KernelKind>(get<int>(fields, "kernel"));
    require(vote.kernel == KernelKind::rbf || vote.kernel == KernelKind::exponential ||
                vote.kernel == KernelKind::laplacian,
            "the kernel has no bound by distances");
    vote.rule = static_cast<Rule>(get<int>(fields, "rule"));
    vote.d = get<int>(fields, "d");
    vote.n_sv = get<int>(fields, "n_sv");
    vote.n_scores = get<int>(fields, "n_scores");
    vote.n_classes = get<int>(fields, "n_classes");
    vote.break_ties = get<bool>(fields, "break_ties");
    l.n_lists = get<int>(fields, "n_lists");
    l.n_rows = get<int>(fields, "n_rows");
    require(vote.d > 0 && vote.n_sv > 0 && vote.n_scores > 0 && vote.n_classes >= 0 && l.n_lists > 0 && l.n_rows > 0,
            "the machine is empty");
    const bool grouped = get<bool>(fields, "is_grouped");
    check_lists_rule(vote, l.n_rows, grouped);
    const std::int64_t n_sv = vote.n_sv, n_lists = l.n_lists, n_scores = vote.n_scores, n_rows = l.n_rows;
    vote.intercept = array<double>(fields, "intercept", n_scores);
    Reference& r = vote.reference;
    r.gamma = get<double>(fields, "gamma");
    require(std::isfinite(r.gamma) && r.gamma >= 0.0, "gamma must not be negative");
    if (get<bool>(fields, "is_csr")) {
        r.row_start = array<std::int64_t>(fields, "vector_start", n_sv + 1);
        const std::int64_t stored = r.row_start[n_sv];
        require(r.row_start[0] == 0 && stored >= 0, "vector_start is damaged");
        r.columns = array<std::int32_t>(fields, "vector_columns", stored);
        r.vectors = array<double>(fields, "vectors", stored);
        check_vectors(vote);
    } else {
        r.vectors = array<double>(fields, "vectors", n_sv * vote.d);
    }
    l.coef = array<double>(fields, "coef", n_sv * n_rows);
    l.weight_sum = array<double>(fields, "weight_sum", n_scores);
    if (grouped) {
        l.sv_class = array<std::int32_t>(fields, "sv_class", n_sv);
        for (std::int64_t i = 0; i < n_sv; ++i)
            require(l.sv_class[i] >= 0 && l.sv_class[i] < vote.n_classes, "sv_class is out of range");
    }
    l.order = array<std::int32_t>(fields, "order", n_lists * n_sv);
    l.distance = array<double>(fields, "distance", n_lists * n_sv);
    l.starts = array<std::int32_t>(fields, "starts", n_sv);
    l.last = array<std::int32_t>(fields, "last", n_lists * n_scores);
    l.total = array<double>(fields, "total", n_lists * n_scores * 2);
    l.rest = array<double>(fields, "rest", n_lists * n_sv * n_rows * 2);
    for (std::int64_t i = 0; i < n_lists * n_sv; ++i)
        require(l.order[i] >= 0 && l.order[i] < vote.n_sv, "order is out of range");
    for (std::int64_t i = 0; i < n_sv; ++i)
        require(l.starts[i] >= -1 && l.starts[i] < l.n_lists, "starts is out of range");
    for (std::int64_t i = 0; i < n_lists * n_scores; ++i)
        require(l.last[i] >= -1 && l.last[i] < vote.n_sv, "last is out of range");
    return l;
}

// Lists ready to answer. Holds pointers into the arrays of `fields`, and `fields` itself.
class Lists {
  public:
    explicit Lists(nb::dict fields)
        : fields_(std::move(fields)), lists_(read_lists(fields_)), scaling_(read_scaling(fields_, lists_.vote.d)) {}

    ListsTuple labels_dense(const AnyMatrix& X, Labels out, Counts evaluations, bool shared, bool scale,
                            int n_threads) const {
        RowSource rows = dense_source(X);
        require(rows.d == lists_.vote.d, "rows and machine disagree in width");
        if (scale) rows.scaling = scaling_;
        return labels(rows, out, evaluations, shared, n_threads);
    }
    ListsTuple labels_csr(const AnyVector& data, const AnyVector& indices, const AnyVector& row_start, Labels out,
                          Counts evaluations, bool shared, int n_threads) const {
        return labels(csr_source(data, indices, row_start, lists_.vote.d), out, evaluations, shared, n_threads);
    }

  private:
    ListsTuple labels(const RowSource& rows, Labels& out, Counts& evaluations, bool shared, int n_threads) const {
        require(static_cast<std::int64_t>(out.shape(0)) == rows.n_rows && out.shape(0) == evaluations.shape(0),
                "out, evaluations and rows disagree in length");
        const nb::gil_scoped_release nogil;
        const ListsOutcome o = list_labels(lists_, rows, shared, n_threads, out.data(), evaluations.data());
        return {o.settled, o.bad_row, static_cast<int>(o.fault)};
    }

    nb::dict fields_;
    DistanceLists lists_;
    RowScaling scaling_;
};

}  // namespace

void bind_lists(nb::module_& m) {
    nb::class_<Lists>(m, "DistanceLists")
        .def(nb::init<nb::dict>(), "fields"_a)
        .def("labels_dense", &Lists::labels_dense, "X"_a.noconvert(), "out"_a.noconvert(), "evaluations"_a.noconvert(),
             "shared"_a, "scale"_a, "n_threads"_a)
        .def("labels_csr", &Lists::labels_csr, "data"_a.noconvert(), "indices"_a.noconvert(), "row_start"_a.noconvert(),
             "out"_a.noconvert(), "evaluations"_a.noconvert(), "shared"_a, "n_threads"_a);
}

}  // namespace svelto::binding
