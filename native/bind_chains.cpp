// Chains of hyperplanes for Python: checks shapes once, lets the interpreter go, computes nothing.
#include <algorithm>
#include <cmath>
#include <limits>

#include "binding.hpp"
#include "chain_stage.hpp"

namespace svelto::binding {
namespace {

using Outcomes = nb::ndarray<std::int8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Nodes = nb::ndarray<std::int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Products = nb::ndarray<double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The smallest float at or above x, the largest at or below it: a float32 product is compared as with x itself.
float float_above(double x) {
    const float near = static_cast<float>(x);
    return static_cast<double>(near) < x ? std::nextafter(near, kInfinity) : near;
}
float float_below(double x) {
    const float near = static_cast<float>(x);
    return static_cast<double>(near) > x ? std::nextafter(near, -kInfinity) : near;
}

// What a stage points to besides the arrays of its fields.
struct ChainArrays {
    std::vector<ChainNode> nodes;
    std::vector<std::int32_t> turn;
    KnockoutArrays knockout;
};

void check_order(const Chains& chains) {
    std::vector<char> seen(static_cast<std::size_t>(chains.n_classes));
    for (int p = 0; p < chains.n_classes; ++p) {
        require(chains.order[p] >= 0 && chains.order[p] < chains.n_classes, "a class in order does not exist");
        char& here = seen[static_cast<std::size_t>(chains.order[p])];
        require(here == 0, "a class is twice in order");
        here = 1;
    }
}

// Every pair of classes, or every class, has exactly one chain.
void check_classes(const Chains& chains, std::vector<std::int32_t>& turn) {
    const std::int64_t n = chains.n_classes;
    const bool pairs = chains.rule == ChainRule::one_vs_one;
    require(chains.n_chains == (pairs ? n * (n - 1) / 2 : n), "chains and classes disagree in number");
    std::vector<std::int32_t> chain_of(static_cast<std::size_t>(chains.n_chains), -1);
    for (int chain = 0; chain < chains.n_chains; ++chain) {
        const std::int64_t minus = chains.classes[2 * chain], plus = chains.classes[2 * chain + 1];
        require(plus >= 0 && plus < n, "a class of a chain does not exist");
        require(pairs ? minus >= 0 && minus < n : minus == -1, "a class of a chain does not exist");
        require(minus != plus, "a chain has one class on both sides");
        const std::int64_t above = std::max(minus, plus);
        const std::int64_t at = pairs ? above * (above - 1) / 2 + std::min(minus, plus) : plus;
        require(chain_of[static_cast<std::size_t>(at)] < 0, "two chains are between the same classes");
        chain_of[static_cast<std::size_t>(at)] = chain;
    }
    if (pairs) return;
    for (int p = 0; p < n; ++p) turn.push_back(chain_of[static_cast<std::size_t>(chains.order[p])]);
}

ChainStage read_chains(const nb::dict& fields, ChainArrays& arrays) {
    ChainStage s;
    Chains& chains = s.chains;
    chains.d = get<int>(fields, "d");
    chains.stride = get<int>(fields, "stride");
    chains.n_nodes = get<int>(fields, "n_nodes");
    chains.n_chains = get<int>(fields, "n_chains");
    chains.n_classes = get<int>(fields, "n_classes");
    require(chains.d >= 1 && chains.stride >= chains.d && chains.stride % kTreeLanes == 0, "stride and d disagree");
    require(chains.n_nodes >= 0 && chains.n_chains >= 0, "a number is negative");
    require(chains.n_classes >= 1 && chains.n_classes <= std::numeric_limits<std::int16_t>::max(),
            "n_classes is out of range");
    // A node has two steps in the knock-out, a chain without nodes too, and twice a step's number must fit 32 bits.
    require(chains.n_nodes <= 1 << 27 && chains.n_chains <= 1 << 27, "there are too many nodes");
    const int rule = get<int>(fields, "rule");
    require(rule == 0 || rule == 1, "the rule does not exist");
    chains.rule = static_cast<ChainRule>(rule);
    const std::int64_t n_nodes = chains.n_nodes, n_chains = chains.n_chains;
    const std::int64_t n_weights = std::max<std::int64_t>(n_nodes, 1) * chains.stride;
    chains.planes = aligned<float>(fields, "planes", n_weights);
    require(std::all_of(chains.planes, chains.planes + n_weights, [](float w) { return std::isfinite(w); }),
            "a plane is not finite");
    const double *low = array<double>(fields, "low", n_nodes), *high = array<double>(fields, "high", n_nodes);
    s.unit = array<double>(fields, "unit", n_nodes);
    s.offset = array<double>(fields, "offset", n_nodes);
    for (std::int64_t h = 0; h < n_nodes; ++h) {
        require(low[h] <= high[h], "low is above high, or NaN");
        require(std::isfinite(s.unit[h]) && std::isfinite(s.offset[h]), "unit or offset is not finite");
        arrays.nodes.push_back({float_above(low[h]), float_below(high[h])});
    }
    chains.nodes = arrays.nodes.data();
    s.low = array<double>(fields, "own_low", n_nodes);
    s.high = array<double>(fields, "own_high", n_nodes);
    s.spread = array<double>(fields, "spread", n_nodes);
    s.clear = get<double>(fields, "clear_margin");
    require(s.clear > 0.0, "clear_margin is not positive");
    for (std::int64_t h = 0; h < n_nodes; ++h) require(s.spread[h] > 0.0, "a spread is not positive");
    chains.start = array<std::int32_t>(fields, "chain_start", n_chains + 1);
    require(chains.start[0] == 0 && chains.start[n_chains] == n_nodes, "chain_start does not cover the nodes");
    chains.end = array<std::int32_t>(fields, "end", n_chains);
    for (std::int64_t c = 0; c < n_chains; ++c) {
        require(chains.start[c] <= chains.start[c + 1], "chain_start decreases");
        require(chains.end[c] >= -1 && chains.end[c] <= 1, "an end is neither -1, 0 nor 1");
    }
    chains.classes = array<std::int32_t>(fields, "classes_of_chain", 2 * n_chains);
    chains.order = array<std::int32_t>(fields, "order", chains.n_classes);
    check_order(chains);
    check_classes(chains, arrays.turn);
    s.turn = arrays.turn.data();
    s.stored = get<bool>(fields, "stored");
    s.shift = array<double>(fields, "shift", chains.d);
    for (int k = 0; k < chains.d; ++k) {
        require(std::isfinite(s.shift[k]), "shift is not finite");
        require(!s.stored || s.shift[k] == 0.0, "these rows are not shifted");
    }
    if (chains.rule == ChainRule::one_vs_one && chains.n_classes > 2) s.game = make_knockout(chains, arrays.knockout);
    return s;
}

// Chains ready to answer. Holds pointers into the arrays of `fields`, and `fields` itself.
class ChainEngine {
  public:
    ChainEngine(nb::dict fields, const std::string& level)
        : fields_(std::move(fields)), stage_(read_chains(fields_, arrays_)), hot_(level_table(level)) {}
    ChainEngine(const ChainEngine&) = delete;
    ChainEngine& operator=(const ChainEngine&) = delete;

    StageTuple labels_dense(const AnyMatrix& X, Labels out, bool vote, int n_threads) const {
        return labels(dense(X), vote, out, nullptr, n_threads);
    }
    StageTuple labels_csr(const AnyVector& data, const AnyVector& indices, const AnyVector& row_start, Labels out,
                          bool vote, int n_threads) const {
        return labels(csr_source(data, indices, row_start, stage_.chains.d), vote, out, nullptr, n_threads);
    }
    StageTuple scores_dense(const AnyMatrix& X, Products out, int n_threads) const {
        return scores(dense(X), out, n_threads);
    }
    StageTuple scores_csr(const AnyVector& data, const AnyVector& indices, const AnyVector& row_start, Products out,
                          int n_threads) const {
        return scores(csr_source(data, indices, row_start, stage_.chains.d), out, n_threads);
    }
    StageTuple work_dense(const AnyMatrix& X, Labels out, Labels work, int n_threads) const {
        return labels(dense(X), false, out, &work, n_threads);
    }
    StageTuple work_csr(const AnyVector& data, const AnyVector& indices, const AnyVector& row_start, Labels out,
                        Labels work, int n_threads) const {
        return labels(csr_source(data, indices, row_start, stage_.chains.d), false, out, &work, n_threads);
    }
    StageTuple trace_dense(const AnyMatrix& X, Outcomes outcome, Nodes node, Products score, int n_threads) const {
        return trace(dense(X), outcome, node, score, n_threads);
    }
    StageTuple trace_csr(const AnyVector& data, const AnyVector& indices, const AnyVector& row_start, Outcomes outcome,
                         Nodes node, Products score, int n_threads) const {
        return trace(csr_source(data, indices, row_start, stage_.chains.d), outcome, node, score, n_threads);
    }

  private:
    RowSource dense(const AnyMatrix& X) const {
        const RowSource rows = dense_source(X);
        require(rows.d == stage_.chains.d, "rows and chains disagree in width");
        return rows;
    }
    StageTuple labels(const RowSource& rows, bool vote, Labels& out, Labels* work, int n_threads) const {
        const auto n = static_cast<std::size_t>(rows.n_rows);
        require(out.shape(0) == n, "out and rows disagree in length");
        require(work == nullptr || work->shape(0) == n, "work and rows disagree in length");
        std::int32_t* counts = work == nullptr ? nullptr : work->data();
        const nb::gil_scoped_release nogil;
        return as_tuple(chain_labels(stage_, hot_, rows, n_threads, vote, out.data(), counts));
    }
    StageTuple scores(const RowSource& rows, Products& out, int n_threads) const {
        require(out.shape(0) == static_cast<std::size_t>(rows.n_rows) &&
                    out.shape(1) == static_cast<std::size_t>(score_width(stage_.chains)),
                "out has a wrong shape");
        const nb::gil_scoped_release nogil;
        return as_tuple(chain_scores(stage_, hot_, rows, n_threads, out.data()));
    }
    StageTuple trace(const RowSource& rows, Outcomes& outcome, Nodes& node, Products& score, int n_threads) const {
        const auto n = static_cast<std::size_t>(rows.n_rows), p = static_cast<std::size_t>(stage_.chains.n_chains);
        require(outcome.shape(0) == n && outcome.shape(1) == p && node.shape(0) == n && node.shape(1) == p &&
                    score.shape(0) == n && score.shape(1) == p,
                "an output has a wrong shape");
        const nb::gil_scoped_release nogil;
        return as_tuple(chain_trace(stage_, hot_, rows, n_threads, {outcome.data(), node.data(), score.data()}));
    }

    nb::dict fields_;
    ChainArrays arrays_;
    ChainStage stage_;
    const HotTable& hot_;
};

}  // namespace

void bind_chains(nb::module_& m) {
    nb::class_<ChainEngine>(m, "ChainStage")
        .def(nb::init<nb::dict, const std::string&>(), "fields"_a, "level"_a)
        .def("labels_dense", &ChainEngine::labels_dense, "X"_a.noconvert(), "out"_a.noconvert(), "vote"_a,
             "n_threads"_a)
        .def("labels_csr", &ChainEngine::labels_csr, "data"_a.noconvert(), "indices"_a.noconvert(),
             "row_start"_a.noconvert(), "out"_a.noconvert(), "vote"_a, "n_threads"_a)
        .def("scores_dense", &ChainEngine::scores_dense, "X"_a.noconvert(), "out"_a.noconvert(), "n_threads"_a)
        .def("scores_csr", &ChainEngine::scores_csr, "data"_a.noconvert(), "indices"_a.noconvert(),
             "row_start"_a.noconvert(), "out"_a.noconvert(), "n_threads"_a)
        .def("work_dense", &ChainEngine::work_dense, "X"_a.noconvert(), "out"_a.noconvert(), "work"_a.noconvert(),
             "n_threads"_a)
        .def("work_csr", &ChainEngine::work_csr, "data"_a.noconvert(), "indices"_a.noconvert(),
             "row_start"_a.noconvert(), "out"_a.noconvert(), "work"_a.noconvert(), "n_threads"_a)
        .def("trace_dense", &ChainEngine::trace_dense, "X"_a.noconvert(), "outcome"_a.noconvert(), "node"_a.noconvert(),
             "score"_a.noconvert(), "n_threads"_a)
        .def("trace_csr", &ChainEngine::trace_csr, "data"_a.noconvert(), "indices"_a.noconvert(),
             "row_start"_a.noconvert(), "outcome"_a.noconvert(), "node"_a.noconvert(), "score"_a.noconvert(),
             "n_threads"_a);
}

}  // namespace svelto::binding
