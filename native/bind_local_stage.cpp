// Local machines for Python: checks shapes once, lets the interpreter go, computes nothing.
#include <algorithm>
#include <cmath>

#include "binding.hpp"
#include "local_stage.hpp"

namespace svelto::binding {
namespace {

using Scores = nb::ndarray<double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Numbers = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

const std::int64_t* starts(const nb::dict& fields, const char* name, std::int64_t n, std::int64_t& total) {
    const std::int64_t* start = array<std::int64_t>(fields, name, n + 1);
    require(start[0] == 0, "a list of starts does not begin at 0");
    for (std::int64_t i = 0; i < n; ++i) require(start[i] <= start[i + 1], "a list of starts decreases");
    total = start[n];
    return start;
}

bool all_finite(const double* values, std::int64_t n) {
    return std::all_of(values, values + n, [](double x) { return std::isfinite(x); });
}

LocalMachines read_machines(const nb::dict& fields) {
    LocalMachines m;
    m.d = get<int>(fields, "d");
    m.n_classes = get<int>(fields, "n_classes");
    m.n_machines = get<std::int64_t>(fields, "n_machines");
    m.n_vectors = get<std::int64_t>(fields, "n_vectors");
    require(m.d >= 1 && m.n_classes >= 1 && m.n_machines >= 1 && m.n_vectors >= 0, "a number is out of range");
    m.kernel = static_cast<KernelKind>(get<int>(fields, "kernel"));
    const bool linear = m.kernel == KernelKind::linear;
    require(linear || m.kernel == KernelKind::rbf || m.kernel == KernelKind::poly, "the kernel is not served");
    m.coef0 = get<double>(fields, "coef0");
    m.degree = get<int>(fields, "degree");
    require(std::isfinite(m.coef0) && m.degree >= 0, "coef0 or degree is out of range");
    m.vectors = array<double>(fields, "vectors", m.n_vectors * m.d);
    m.gamma = array<double>(fields, "gamma", m.n_machines);
    std::int64_t n_known = 0, n_pairs = 0, n_entries = 0, n_support = 0;
    m.class_start = starts(fields, "class_start", m.n_machines, n_known);
    m.pair_start = starts(fields, "pair_start", m.n_machines, n_pairs);
    m.entry_start = starts(fields, "entry_start", m.n_machines, n_entries);
    m.support_start = starts(fields, "support_start", n_pairs, n_support);
    m.classes = array<std::int32_t>(fields, "classes", n_known);
    m.intercept = array<double>(fields, "intercept", n_pairs);
    m.entries = array<std::int64_t>(fields, "entries", n_entries);
    m.place = array<std::int32_t>(fields, "place", n_support);
    m.coef = array<double>(fields, "coef", n_support);
    require(all_finite(m.gamma, m.n_machines) && all_finite(m.intercept, n_pairs) && all_finite(m.coef, n_support),
            "gamma, an intercept or a coefficient is not finite");
    require(all_finite(m.vectors, m.n_vectors * m.d), "a vector is not finite");
    for (std::int64_t i = 0; i < m.n_machines; ++i) {
        const std::int64_t known = m.class_start[i + 1] - m.class_start[i], first = m.class_start[i];
        const std::int64_t pairs = m.pair_start[i + 1] - m.pair_start[i];
        const std::int64_t entries = m.entry_start[i + 1] - m.entry_start[i];
        require(known >= 1 && known <= m.n_classes, "a machine knows no class");
        require(m.classes[first] >= 0 && m.classes[first + known - 1] < m.n_classes, "a class does not exist");
        for (std::int64_t c = first + 1; c < first + known; ++c)
            require(m.classes[c - 1] < m.classes[c], "the classes of a machine do not ascend");
        require(pairs == known * (known - 1) / 2, "the pairs and the classes of a machine disagree in number");
        require(!linear || entries == pairs, "a machine has a wrong number of vectors");
        for (std::int64_t s = m.support_start[m.pair_start[i]]; s < m.support_start[m.pair_start[i + 1]]; ++s)
            require(m.place[s] >= 0 && m.place[s] < entries, "a coefficient has no vector");
    }
    for (std::int64_t i = 0; i < n_entries; ++i)
        require(m.entries[i] >= 0 && m.entries[i] < m.n_vectors, "a vector of a machine does not exist");
    return m;
}

// Machines ready to answer. Holds pointers into the arrays of `fields`, and `fields` itself.
class LocalEngine {
  public:
    LocalEngine(nb::dict fields, const std::string& level)
        : fields_(std::move(fields)), machines_(read_machines(fields_)), hot_(level_table(level)) {}
    LocalEngine(const LocalEngine&) = delete;
    LocalEngine& operator=(const LocalEngine&) = delete;

    StageTuple scores_dense(const AnyMatrix& X, Numbers row, Numbers machine, Scores out, int n_threads) const {
        const RowSource rows = dense_source(X);
        require(rows.d == machines_.d, "rows and machines disagree in width");
        return scores(rows, row, machine, out, n_threads);
    }
    StageTuple scores_csr(const AnyVector& data, const AnyVector& indices, const AnyVector& row_start, Numbers row,
                          Numbers machine, Scores out, int n_threads) const {
        return scores(csr_source(data, indices, row_start, machines_.d), row, machine, out, n_threads);
    }

  private:
    StageTuple scores(const RowSource& rows, const Numbers& row, const Numbers& machine, Scores& out,
                      int n_threads) const {
        const auto width = static_cast<std::size_t>(local_score_width(machines_.n_classes));
        LocalQueries queries;
        queries.rows = rows;
        queries.n = static_cast<std::int64_t>(row.shape(0));
        queries.row = row.data();
        queries.machine = machine.data();
        require(machine.shape(0) == row.shape(0), "rows and machines disagree in number");
        require(out.shape(0) == row.shape(0) && out.shape(1) == width, "out has a wrong shape");
        for (std::int64_t i = 0; i < queries.n; ++i) {
            require(queries.row[i] >= 0 && queries.row[i] < rows.n_rows, "a row does not exist");
            require(queries.machine[i] >= 0 && queries.machine[i] < machines_.n_machines, "a machine does not exist");
            require(i == 0 || queries.machine[i - 1] <= queries.machine[i], "the machines do not ascend");
        }
        const nb::gil_scoped_release nogil;
        return as_tuple(local_scores(machines_, queries, hot_, n_threads, out.data()));
    }

    nb::dict fields_;
    LocalMachines machines_;
    const HotTable& hot_;
};

}  // namespace

void bind_local_stage(nb::module_& m) {
    nb::class_<LocalEngine>(m, "LocalStage")
        .def(nb::init<nb::dict, const std::string&>(), "fields"_a, "level"_a)
        .def("scores_dense", &LocalEngine::scores_dense, "X"_a.noconvert(), "row"_a.noconvert(),
             "machine"_a.noconvert(), "out"_a.noconvert(), "n_threads"_a)
        .def("scores_csr", &LocalEngine::scores_csr, "data"_a.noconvert(), "indices"_a.noconvert(),
             "row_start"_a.noconvert(), "row"_a.noconvert(), "machine"_a.noconvert(), "out"_a.noconvert(),
             "n_threads"_a);
}

}  // namespace svelto::binding
