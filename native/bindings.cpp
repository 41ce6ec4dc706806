// With bind_*.cpp the only files that know Python: check shapes once, let the interpreter go, compute nothing.
#include <cmath>
#include <optional>

#include "binding.hpp"
#include "bounds.hpp"
#include "cascade_parts.hpp"
#include "panel_lists.hpp"
#include "plain_arithmetic.hpp"
#include "reference.hpp"
#include "runner.hpp"
#include "vote.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using namespace svelto;
using namespace svelto::binding;

template <class T>
Panels<T> read_panels(const nb::dict& fields, const std::string& suffix, const Machine& m) {
    Panels<T> sv;
    const auto key = [&](const char* name) { return std::string(name) + suffix; };
    sv.kernel = m.kernel;
    sv.pair = static_cast<PairKind>(get<int>(fields, key("pair").c_str()));
    sv.n_groups = get<int>(fields, key("n_groups").c_str());
    sv.n_cols = get<int>(fields, key("n_cols").c_str());
    sv.padded_cols = get<int>(fields, key("padded_cols").c_str());
    sv.n_panels = get<int>(fields, key("n_panels").c_str());
    sv.d = m.d;
    sv.scale = static_cast<T>(get<double>(fields, key("scale").c_str()));
    sv.coef0 = static_cast<T>(get<double>(fields, "coef0"));
    sv.degree = get<int>(fields, "degree");
    const std::int64_t packed = static_cast<std::int64_t>(sv.n_panels) * kPanelWidth<T>;
    if (!m.use_postings) sv.vectors = aligned<T>(fields, key("vectors"), packed * m.d);
    sv.vector_const = aligned<T>(fields, key("vector_const"), packed);
    sv.sparse_const = aligned<T>(fields, key("sparse_const"), packed);
    sv.by_column = get<bool>(fields, key("by_column").c_str());
    if (m.kernel != KernelKind::linear)
        sv.weights = aligned<T>(fields, key("weights"), packed * (sv.by_column ? sv.n_cols : sv.padded_cols));
    sv.group_start = array<std::int32_t>(fields, key("group_start"), sv.n_groups + 1);
    require(sv.group_start[0] == 0 && sv.group_start[sv.n_groups] == sv.n_panels,
            "group_start does not cover the panels");
    for (int g = 0; g < sv.n_groups; ++g) require(sv.group_start[g] <= sv.group_start[g + 1], "group_start decreases");
    require(sv.by_column || sv.padded_cols >= sv.n_cols, "padded_cols is smaller than n_cols");
    return sv;
}

VectorStats read_stats(const nb::dict& fields, const std::string& name) {
    const double* stats = array<double>(fields, name, 4);
    return {stats[0], stats[1], stats[2], stats[3]};
}

Machine read_machine(const nb::dict& fields) {
    Machine m;
    m.kernel = static_cast<KernelKind>(get<int>(fields, "kernel"));
    m.rule = static_cast<Rule>(get<int>(fields, "rule"));
    m.layout = static_cast<Layout>(get<int>(fields, "layout"));
    m.d = get<int>(fields, "d");
    m.n_sv = get<int>(fields, "n_sv");
    m.n_scores = get<int>(fields, "n_scores");
    m.n_classes = get<int>(fields, "n_classes");
    m.break_ties = get<bool>(fields, "break_ties");
    m.has_f32 = get<bool>(fields, "has_f32");
    m.use_postings = get<bool>(fields, "use_postings");
    m.abs_cols = get<int>(fields, "abs_cols");
    require(m.d > 0 && m.n_sv > 0 && m.n_scores > 0 && m.n_classes >= 0, "the machine is empty");
    m.f64 = read_panels<double>(fields, "_f64", m);
    m.stats64 = read_stats(fields, "stats_f64");
    m.row_scale64 = get<double>(fields, "row_scale_f64");
    if (m.has_f32) {
        m.f32 = read_panels<float>(fields, "_f32", m);
        require(m.f32.n_groups == m.f64.n_groups && m.f32.n_cols == m.f64.n_cols, "the precisions differ in groups");
        m.stats32 = read_stats(fields, "stats_f32");
        m.row_scale32 = get<double>(fields, "row_scale_f32");
        m.weight_scale = get<double>(fields, "weight_scale");
        if (get<bool>(fields, "has_centre")) m.centre = array<double>(fields, "centre", m.d);
    }
    const int cols = m.f64.n_cols, groups = m.f64.n_groups, abs_factor = m.abs_cols > 0 ? 2 : 1;
    if (m.layout == Layout::single)
        require(cols == 1 && m.n_scores == 1, "a single score needs one column");
    else if (m.layout == Layout::classes)
        require(groups == m.n_classes && cols == abs_factor * (m.n_classes - 1) &&
                    2 * m.n_scores == m.n_classes * (m.n_classes - 1),
                "classes and columns disagree");
    else
        require(groups == 1 && cols == abs_factor * m.n_scores, "scores and columns disagree");
    m.intercept = array<double>(fields, "intercept", m.n_scores);
    m.coef_sum = array<double>(fields, "coef_sum", m.n_scores);
    m.near_exponent = near_exponent(m);
    Reference& r = m.reference;
    m.coef_total = get<double>(fields, "coef_total");
    m.vector_norm = get<double>(fields, "vector_norm");
    r.gamma = get<double>(fields, "gamma");
    r.coef0 = get<double>(fields, "coef0");
    r.degree = get<int>(fields, "degree");
    r.n_rows = get<int>(fields, "n_rows");
    r.dual_coef = array<double>(fields, "dual_coef", static_cast<std::int64_t>(r.n_rows) * m.n_sv);
    if (get<bool>(fields, "is_grouped")) {
        require(r.n_rows == m.n_classes - 1, "dual_coef and classes disagree");
        r.class_start = array<std::int32_t>(fields, "class_start", m.n_classes + 1);
        require(r.class_start[0] == 0 && r.class_start[m.n_classes] == m.n_sv,
                "class_start does not cover the vectors");
    } else {
        require(r.n_rows == m.n_scores, "dual_coef and scores disagree");
    }
    if (get<bool>(fields, "is_csr")) {
        r.row_start = array<std::int64_t>(fields, "vector_start", m.n_sv + 1);
        const std::int64_t stored = r.row_start[m.n_sv];
        require(r.row_start[0] == 0 && stored >= 0, "vector_start is damaged");
        r.columns = array<std::int32_t>(fields, "vector_columns", stored);
        r.vectors = array<double>(fields, "vectors", stored);
    } else {
        r.vectors = array<double>(fields, "vectors", static_cast<std::int64_t>(m.n_sv) * m.d);
    }
    if (m.use_postings) {
        m.postings.start = array<std::int64_t>(fields, "posting_start", m.d + 1);
        const std::int64_t stored = m.postings.start[m.d];
        require(m.postings.start[0] == 0 && stored >= 0, "posting_start is damaged");
        m.postings.vector = array<std::int32_t>(fields, "posting_vector", stored);
        m.postings.value = array<double>(fields, "posting_value", stored);
        const std::int64_t packed = static_cast<std::int64_t>(m.f64.n_panels) * kPanelWidth<double>;
        for (std::int64_t i = 0; i < stored; ++i)
            require(m.postings.vector[i] >= 0 && m.postings.vector[i] < packed, "posting_vector is out of range");
    }
    return m;
}

using OutcomeTuple = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, int, std::int64_t>;
OutcomeTuple as_tuple(const Outcome& o) {
    return {o.settled_f32, o.settled_f64, o.settled_reference, o.bad_row, static_cast<int>(o.fault), o.passes};
}

PanelLists read_lists(const nb::dict& fields, const Machine& m) {
    require(m.has_f32 && m.kernel != KernelKind::linear, "lists need float32 panels");
    PanelLists l;
    l.n_lists = get<int>(fields, "n_lists");
    l.n_chunks = get<int>(fields, "n_chunks");
    l.n_levels = get<int>(fields, "n_levels");
    require(l.n_lists > 0 && l.n_chunks > 0 && l.n_levels > 0, "there are no lists");
    l.check_cost = get<double>(fields, "check_cost");
    l.n_centre_panels = (l.n_lists + kPanelWidth<float> - 1) / kPanelWidth<float>;
    const std::int64_t packed = static_cast<std::int64_t>(l.n_centre_panels) * kPanelWidth<float>;
    l.centres = array<float>(fields, "centres", static_cast<std::int64_t>(l.n_lists) * m.d);
    l.centre_panels = aligned<float>(fields, "centre_panels", packed * m.d);
    l.centre_const = aligned<float>(fields, "centre_const", packed);
    l.chunk_start = array<std::int32_t>(fields, "chunk_start", l.n_chunks + 1);
    require(l.chunk_start[0] == 0, "the first chunk does not start the list");
    for (int c = 0; c < l.n_chunks; ++c) require(l.chunk_start[c] < l.chunk_start[c + 1], "a chunk is empty");
    const std::int64_t length = l.chunk_start[l.n_chunks];
    require(length <= m.f32.n_panels, "lists are longer than there are panels");
    l.order = array<std::int32_t>(fields, "order", l.n_lists * length);
    for (int list = 0; list < l.n_lists; ++list) {
        std::vector<char> seen(static_cast<std::size_t>(m.f32.n_panels));
        for (int c = 0; c < l.n_chunks; ++c) {
            for (int at = l.chunk_start[c]; at < l.chunk_start[c + 1]; ++at) {
                const std::int32_t panel = l.order[list * length + at];
                require(panel >= 0 && panel < m.f32.n_panels, "a listed panel does not exist");
                require(at == l.chunk_start[c] || l.order[list * length + at - 1] < panel, "a chunk does not ascend");
                require(seen[static_cast<std::size_t>(panel)] == 0, "a panel is listed twice");
                seen[static_cast<std::size_t>(panel)] = 1;
            }
        }
    }
    l.reach = array<double>(fields, "reach", static_cast<std::int64_t>(l.n_lists) * l.n_levels);
    l.exponent = array<float>(fields, "exponent", static_cast<std::int64_t>(l.n_lists) * l.n_chunks * l.n_levels);
    l.rest = array<float>(fields, "rest",
                          static_cast<std::int64_t>(l.n_lists) * (l.n_chunks + 1) * l.n_levels * 2 * m.n_scores);
    return l;
}

using Counts = nb::ndarray<std::int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
// Settled by a bound, row times panel summed in lists, then the outcome of the rest.
using BoundedTuple = std::tuple<std::int64_t, std::int64_t, OutcomeTuple>;

// A machine ready to answer. Holds pointers into the arrays of `fields`, and `fields` itself.
class Engine final : public WholeSum {
  public:
    Engine(nb::dict fields, const std::string& level)
        : fields_(std::move(fields)),
          machine_(read_machine(fields_)),
          hot_(&level_table(level)),
          scaling_(read_scaling(fields_, machine_.d)) {}

    int width() const noexcept override { return machine_.d; }
    int n_scores() const noexcept override { return machine_.n_scores; }
    const RowScaling& scaling() const noexcept override { return scaling_; }
    Outcome labels(const RowSource& rows, std::span<const std::int64_t> numbers, Precision first, int n_threads,
                   std::int32_t* labels) const override {
        return predict_some(machine_, *hot_, rows, numbers, useful(first), n_threads, labels);
    }
    Outcome scores(const RowSource& rows, Precision precision, int n_threads, double* scores) const override {
        return compute_scores(machine_, *hot_, rows, useful(precision), n_threads, scores, nullptr);
    }

    OutcomeTuple predict_dense(const AnyMatrix& X, Labels out, int precision, bool scale, int n_threads) const {
        return predict(prepared(dense_source(X), scale), out, precision, n_threads);
    }
    OutcomeTuple predict_csr(const AnyVector& data, const AnyVector& indices, const AnyVector& row_start, Labels out,
                             int precision, int n_threads) const {
        return predict(csr_source(data, indices, row_start, machine_.d), out, precision, n_threads);
    }
    // Lists of panels for the bounded predictions below.
    void set_lists(nb::dict fields) {
        lists_ = read_lists(fields, machine_);
        list_fields_ = std::move(fields);
    }
    // `enabled` says which lists are walked; `used` is added to, see kCounts.
    BoundedTuple bounded_dense(const AnyMatrix& X, Labels out, const Vector<std::uint8_t>& enabled, Counts used,
                               int precision, bool scale, int n_threads) const {
        return bounded(prepared(dense_source(X), scale), out, enabled, used, precision, n_threads);
    }
    BoundedTuple bounded_csr(const AnyVector& data, const AnyVector& indices, const AnyVector& row_start, Labels out,
                             const Vector<std::uint8_t>& enabled, Counts used, int precision, int n_threads) const {
        return bounded(csr_source(data, indices, row_start, machine_.d), out, enabled, used, precision, n_threads);
    }
    OutcomeTuple scores_dense(const AnyMatrix& X, Scores out, Scores bounds, int precision, bool scale,
                              int n_threads) const {
        return scores_into(prepared(dense_source(X), scale), out, bounds, precision, n_threads);
    }
    OutcomeTuple scores_csr(const AnyVector& data, const AnyVector& indices, const AnyVector& row_start, Scores out,
                            Scores bounds, int precision, int n_threads) const {
        return scores_into(csr_source(data, indices, row_start, machine_.d), out, bounds, precision, n_threads);
    }

  private:
    double operations(std::int64_t n_rows) const noexcept {
        return static_cast<double>(n_rows) * machine_.n_sv * (machine_.d + 16.0);
    }
    RowSource prepared(RowSource rows, bool scale) const {
        require(rows.d == machine_.d, "rows and machine disagree in width");
        if (scale) rows.scaling = scaling_;
        return rows;
    }
    Precision first_tier(int precision) const {
        require(precision >= 0 && precision <= 2, "precision must be 0, 1 or 2");
        return useful(static_cast<Precision>(precision));
    }
    Precision useful(Precision tier) const noexcept {
        return tier == Precision::float32 && !machine_.has_f32 ? Precision::float64 : tier;
    }
    OutcomeTuple predict(const RowSource& rows, Labels& out, int precision, int n_threads) const {
        require(static_cast<std::int64_t>(out.shape(0)) == rows.n_rows, "out and rows disagree in length");
        const Precision first = first_tier(precision);
        const Unlocked unlocked(n_threads > 1 || operations(rows.n_rows) >= kWorthOperations);
        return as_tuple(predict_labels(machine_, *hot_, rows, first, n_threads, out.data()));
    }
    BoundedTuple bounded(const RowSource& rows, Labels& out, const Vector<std::uint8_t>& enabled, Counts& used,
                         int precision, int n_threads) const {
        require(lists_.n_lists > 0, "this engine has no lists");
        require(static_cast<std::int64_t>(out.shape(0)) == rows.n_rows, "out and rows disagree in length");
        const auto n_lists = static_cast<std::size_t>(lists_.n_lists);
        require(enabled.shape(0) == n_lists, "enabled and lists disagree in length");
        require(used.shape(0) == n_lists && used.shape(1) == kCounts, "used has a wrong shape");
        require(n_threads >= 1, "n_threads must be positive");
        const Precision first = first_tier(precision);
        BoundedOutcome o;
        {
            const nb::gil_scoped_release nogil;
            o = predict_bounded(machine_, *hot_, lists_, rows, enabled.data(), first, n_threads, out.data(),
                                used.data());
        }
        return {o.settled, o.panels, as_tuple(o.rest)};
    }
    // An empty `bounds` means that none are wanted.
    OutcomeTuple scores_into(const RowSource& rows, Scores& out, Scores& bounds, int precision, int n_threads) const {
        const auto n_scores = static_cast<std::size_t>(machine_.n_scores);
        require(static_cast<std::int64_t>(out.shape(0)) == rows.n_rows && out.shape(1) == n_scores,
                "out has a wrong shape");
        double* to_bounds = bounds.size() == 0 ? nullptr : bounds.data();
        require(to_bounds == nullptr || (bounds.shape(0) == out.shape(0) && bounds.shape(1) == n_scores),
                "bounds has a wrong shape");
        const Precision first = first_tier(precision);
        const nb::gil_scoped_release nogil;
        return as_tuple(compute_scores(machine_, *hot_, rows, first, n_threads, out.data(), to_bounds));
    }

    nb::dict fields_;
    Machine machine_;
    const HotTable* hot_ = nullptr;
    RowScaling scaling_;
    nb::dict list_fields_;
    PanelLists lists_;
};

// Kernel values that somebody else computed: LIBSVM's sums and votes over them.
void vote_values(const Matrix<double>& values, const Matrix<double>& dual_coef, const Vector<double>& intercept,
                 const Vector<std::int32_t>& class_start, int rule, int n_classes, bool break_ties, Labels labels,
                 Scores scores) {
    Machine m;
    m.kernel = KernelKind::linear;
    m.rule = static_cast<Rule>(rule);
    m.n_classes = n_classes;
    m.n_sv = static_cast<int>(dual_coef.shape(1));
    m.n_scores = static_cast<int>(intercept.shape(0));
    m.break_ties = break_ties;
    m.intercept = intercept.data();
    m.reference.dual_coef = dual_coef.data();
    if (class_start.shape(0) > 0) {
        require(static_cast<int>(class_start.shape(0)) == n_classes + 1 && class_start.data()[n_classes] == m.n_sv &&
                    static_cast<int>(dual_coef.shape(0)) == n_classes - 1 &&
                    2 * m.n_scores == n_classes * (n_classes - 1),
                "class_start and dual_coef disagree");
        m.reference.class_start = class_start.data();
    } else {
        require(static_cast<int>(dual_coef.shape(0)) == m.n_scores, "dual_coef and intercept disagree");
    }
    const std::size_t n = values.shape(0);
    require(values.shape(1) == dual_coef.shape(1), "values and dual_coef disagree");
    require(labels.shape(0) == n && scores.shape(0) == n && scores.shape(1) == intercept.shape(0),
            "wrong output shape");
    const nb::gil_scoped_release nogil;
    const PlainArithmetic plain;
    std::vector<double> votes(static_cast<std::size_t>(2 * n_classes + 2));
    for (std::size_t i = 0; i < n; ++i) {
        double* row = scores.data() + i * scores.shape(1);
        reference_scores(m, values.data() + i * values.shape(1), row);
        labels.data()[i] = label_of(m, row, votes.data());
    }
}

// `with PlainArithmetic():` for the NumPy code that packs a machine.
class PlainContext {
  public:
    void enter() { mode_.emplace(); }
    void exit(const nb::args&) { mode_.reset(); }

  private:
    std::optional<PlainArithmetic> mode_;
};

template <class T>
void exp2_level(const std::string& level, const Vector<T>& in,
                nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu> out) {
    const HotTable* hot = &level_table(level);
    require(in.shape(0) == out.shape(0), "in and out disagree in length");
    const nb::gil_scoped_release nogil;
    if constexpr (std::is_same_v<T, float>)
        hot->exp2_f32(in.data(), out.data(), in.shape(0));
    else
        hot->exp2_f64(in.data(), out.data(), in.shape(0));
}

}  // namespace

NB_MODULE(_core, m) {
    m.doc() = "Native core of svelto.";
#ifdef SVELTO_SANITIZED
    m.attr("SANITIZED") = true;
#else
    m.attr("SANITIZED") = false;
#endif
    m.attr("PANEL_WIDTH_F32") = kPanelWidth<float>;
    m.attr("PANEL_WIDTH_F64") = kPanelWidth<double>;
    m.attr("LIST_COUNTS") = static_cast<int>(kCounts);
    m.attr("DOUBLE_COST") = kDoubleCost;
    m.def("available_levels", &available_levels,
          "Instruction levels of this build that this CPU can run, slowest first.");
    m.def("exp2_f32", &exp2_level<float>, "level"_a, "values"_a.noconvert(), "out"_a.noconvert());
    m.def("exp2_f64", &exp2_level<double>, "level"_a, "values"_a.noconvert(), "out"_a.noconvert());
    m.def("vote_values", &vote_values, "values"_a.noconvert(), "dual_coef"_a.noconvert(), "intercept"_a.noconvert(),
          "class_start"_a.noconvert(), "rule"_a, "n_classes"_a, "break_ties"_a, "labels"_a.noconvert(),
          "scores"_a.noconvert());
    bind_cascade_parts(m);
    nb::class_<PlainContext>(m, "PlainArithmetic")
        .def(nb::init<>())
        .def("__enter__", &PlainContext::enter)
        .def("__exit__", &PlainContext::exit);
    nb::class_<Engine, WholeSum>(m, "Engine")
        .def(nb::init<nb::dict, const std::string&>(), "fields"_a, "level"_a)
        .def("predict_dense", &Engine::predict_dense, "X"_a.noconvert(), "out"_a.noconvert(), "precision"_a, "scale"_a,
             "n_threads"_a)
        .def("predict_csr", &Engine::predict_csr, "data"_a.noconvert(), "indices"_a.noconvert(),
             "row_start"_a.noconvert(), "out"_a.noconvert(), "precision"_a, "n_threads"_a)
        .def("set_lists", &Engine::set_lists, "fields"_a)
        .def("bounded_dense", &Engine::bounded_dense, "X"_a.noconvert(), "out"_a.noconvert(), "enabled"_a.noconvert(),
             "used"_a.noconvert(), "precision"_a, "scale"_a, "n_threads"_a)
        .def("bounded_csr", &Engine::bounded_csr, "data"_a.noconvert(), "indices"_a.noconvert(),
             "row_start"_a.noconvert(), "out"_a.noconvert(), "enabled"_a.noconvert(), "used"_a.noconvert(),
             "precision"_a, "n_threads"_a)
        .def("scores_dense", &Engine::scores_dense, "X"_a.noconvert(), "out"_a.noconvert(), "bounds"_a.noconvert(),
             "precision"_a, "scale"_a, "n_threads"_a)
        .def("scores_csr", &Engine::scores_csr, "data"_a.noconvert(), "indices"_a.noconvert(),
             "row_start"_a.noconvert(), "out"_a.noconvert(), "bounds"_a.noconvert(), "precision"_a, "n_threads"_a);
    bind_rows(m);
    bind_settled(m);
    bind_tree(m);
    bind_lists(m);
    bind_paths(m);
    bind_chains(m);
    bind_hinges(m);
    bind_training(m);
    bind_local_stage(m);
    bind_local(m);
    bind_neighbours(m);
    bind_guard(m);
    bind_cascade(m);
}
