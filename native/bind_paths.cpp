// Trees of kernel values for Python: checks shapes once, lets the interpreter go, computes nothing.
#include <algorithm>
#include <cmath>

#include "binding.hpp"
#include "cascade_parts.hpp"
#include "path_columns.hpp"
#include "path_stage.hpp"

namespace svelto::binding {
namespace {

using Cube = nb::ndarray<double, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Values = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Order = nb::ndarray<std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void check_range(std::int64_t first, std::int64_t last, std::size_t n_rows, std::size_t n_sides) {
    require(first >= 0 && first <= last && last <= static_cast<std::int64_t>(n_rows), "rows are out of range");
    require(static_cast<std::int64_t>(n_sides) == last - first, "side and rows disagree in length");
}

void sums_of_columns(const Matrix<float>& values, std::int64_t first, std::int64_t last,
                     const Vector<std::uint8_t>& side, const Vector<double>& weight, const Matrix<double>& residuals,
                     Scores norms, Cube products, int n_threads) {
    check_range(first, last, values.shape(0), side.shape(0));
    const std::size_t n = side.shape(0), m = values.shape(1), p = residuals.shape(1);
    require(weight.shape(0) == n && residuals.shape(0) == n, "weight, residuals and rows disagree in length");
    require(p <= 1024, "there are too many residuals");
    require(norms.shape(0) == 2 && norms.shape(1) == m && products.shape(0) == 2 && products.shape(1) == p &&
                products.shape(2) == m,
            "norms or products has a wrong shape");
    ColumnRows rows;
    rows.values = values.data() + first * static_cast<std::int64_t>(m);
    rows.n_rows = last - first;
    rows.n_columns = static_cast<std::int64_t>(m);
    rows.side = side.data();
    rows.weight = weight.data();
    rows.residuals = residuals.data();
    rows.n_products = static_cast<int>(p);
    const nb::gil_scoped_release nogil;
    column_sums(rows, n_threads, norms.data(), products.data());
}

std::int64_t partition(Values values, Order order, std::int64_t first, std::int64_t last,
                       const Vector<std::uint8_t>& side) {
    check_range(first, last, values.shape(0), side.shape(0));
    require(order.shape(0) == values.shape(0), "rows_order and values disagree in length");
    const auto m = static_cast<std::int64_t>(values.shape(1));
    for (std::size_t i = 0; i < side.shape(0); ++i) require(side.data()[i] <= 1, "a side is neither 0 nor 1");
    const nb::gil_scoped_release nogil;
    return partition_rows(values.data() + first * m, order.data() + first, last - first, m, side.data());
}

// Children must lead to every node and leaf exactly once, and never back, and a test must look at a value that is
// there: a walk then always ends, in a leaf that exists, with at most `height` values.
void check_paths(const PathTree& tree, const std::int32_t* vector, const std::int32_t* test,
                 const std::int32_t* children) {
    std::vector<int> values(static_cast<std::size_t>(tree.n_nodes), -1);  // evaluated before the node; -1: not reached
    std::vector<char> leaf_seen(static_cast<std::size_t>(tree.n_leaves));
    values[0] = 0;
    for (std::int32_t node = 0; node < tree.n_nodes; ++node) {
        require(vector[node] >= -1 && vector[node] < tree.n_vectors, "a vector does not exist");
        int known = values[static_cast<std::size_t>(node)];
        require(known >= 0, "a node has no parent");
        known += vector[node] >= 0;
        require(known <= tree.height, "a path is longer than height");
        require(test[node] >= -1 && test[node] < known, "a tested value does not exist");
        const bool tested = test[node] >= 0;
        require(tested || children[2 * node] == children[2 * node + 1], "a node without a test has two children");
        for (int side = 0; side <= tested; ++side) {
            const std::int32_t child = children[2 * node + side];
            require(child > node || child < 0, "a child does not follow its parent");
            require(child < tree.n_nodes && ~child < tree.n_leaves, "a child does not exist");
            if (child >= 0) {
                require(values[static_cast<std::size_t>(child)] < 0, "a node has two parents");
                values[static_cast<std::size_t>(child)] = known;
            } else {
                require(leaf_seen[static_cast<std::size_t>(~child)] == 0, "a leaf has two parents");
                leaf_seen[static_cast<std::size_t>(~child)] = 1;
            }
        }
    }
    require(std::count(leaf_seen.begin(), leaf_seen.end(), 0) == 0, "a leaf has no parent");
}

void read_kernel(const nb::dict& fields, PathTree& tree) {
    const int kernel = get<int>(fields, "kernel");
    require(kernel >= 0 && kernel <= static_cast<int>(KernelKind::linear), "the kernel does not exist");
    tree.kernel = static_cast<KernelKind>(kernel);
    const double gamma = get<double>(fields, "gamma");
    const bool of_product = tree.kernel >= KernelKind::poly;
    require(of_product || gamma >= 0.0, "gamma must not be negative");
    constexpr double kLog2E = 1.442695040888963407;
    tree.scale = static_cast<float>(of_product ? gamma : -gamma * kLog2E);
    tree.coef0 = static_cast<float>(get<double>(fields, "coef0"));
    tree.degree = get<int>(fields, "degree");
    require(tree.kernel != KernelKind::poly || tree.degree >= 0, "degree must not be negative");
}

// `nodes` receives the nodes in the form that walks read.
PathStage read_paths(const nb::dict& fields, std::vector<PathNode>& nodes) {
    PathStage s;
    PathTree& tree = s.tree;
    tree.d = get<int>(fields, "d");
    tree.stride = get<int>(fields, "stride");
    tree.n_nodes = get<int>(fields, "n_nodes");
    tree.n_leaves = get<int>(fields, "n_leaves");
    tree.n_vectors = get<int>(fields, "n_vectors");
    tree.height = get<int>(fields, "height");
    require(tree.d >= 1 && tree.stride >= tree.d && tree.stride % kTreeLanes == 0, "stride and d disagree");
    require(tree.n_nodes >= 1 && tree.n_leaves >= 1, "the tree is empty");
    require(tree.n_leaves - 1 <= tree.n_nodes, "there are more leaves than nodes can have");
    require(tree.n_vectors >= 0 && tree.height >= 0, "a number is negative");
    read_kernel(fields, tree);
    s.stored = get<bool>(fields, "stored");
    s.shift = array<double>(fields, "shift", tree.d);
    if (s.stored || tree.kernel >= KernelKind::poly)
        for (int k = 0; k < tree.d; ++k) require(s.shift[k] == 0.0, "these rows are not shifted");
    const std::int64_t n_nodes = tree.n_nodes, leaves = tree.n_leaves;
    tree.vectors = aligned<float>(fields, "vectors", static_cast<std::int64_t>(tree.n_vectors) * tree.stride);
    const float* sq_norm = array<float>(fields, "vector_sq_norm", tree.n_vectors);
    const float* abs_sum = array<float>(fields, "vector_abs_sum", tree.n_vectors);
    const std::int32_t* vector = array<std::int32_t>(fields, "vector", n_nodes);
    const std::int32_t* test = array<std::int32_t>(fields, "test", n_nodes);
    const float* threshold = array<float>(fields, "threshold", n_nodes);
    const std::int32_t* children = array<std::int32_t>(fields, "children", 2 * n_nodes);
    check_paths(tree, vector, test, children);
    nodes.resize(static_cast<std::size_t>(n_nodes));
    for (std::int64_t i = 0; i < n_nodes; ++i) {
        PathNode& node = nodes[static_cast<std::size_t>(i)];
        node.vector = vector[i];
        node.test = std::max(test[i], 0);
        node.threshold = threshold[i];
        std::copy_n(children + 2 * i, 2, node.child);
        if (vector[i] < 0) continue;
        node.sq_norm = sq_norm[vector[i]];
        node.abs_sum = abs_sum[vector[i]];
    }
    tree.nodes = nodes.data();
    s.vote = read_vote(fields);
    PathLeaves& m = s.leaves;
    m.n_scores = s.vote.n_scores;
    m.padded = read_padded(fields, m.n_scores);
    const std::int64_t width = std::max(m.padded, 1);
    m.coef = aligned<float>(fields, "coef", leaves * tree.height * width);
    m.constant = aligned<float>(fields, "constant", leaves * width);
    if (get<bool>(fields, "has_slope"))
        m.slope = aligned<float>(fields, "slope", leaves * (m.padded > 0 ? tree.d * width : tree.stride));
    m.error = array<float>(fields, "error", leaves * width);
    m.low = array<float>(fields, "low", leaves * width);
    m.high = array<float>(fields, "high", leaves * width);
    s.reach = get<float>(fields, "reach");
    return s;
}

// A tree ready to answer. Holds pointers into the arrays of `fields`, and `fields` itself.
class Paths final : public LabelStage {
  public:
    Paths(nb::dict fields, const std::string& level)
        : fields_(std::move(fields)),
          stage_(read_paths(fields_, nodes_)),
          hot_(level_table(level)),
          scaling_(read_scaling(fields_, stage_.tree.d)) {}

    int width() const noexcept override { return stage_.tree.d; }
    StageOutcome settle(const RowSource& rows, double caution, int n_threads, std::int32_t* labels) const override {
        return path_labels(stage_, hot_, rows, caution, n_threads, labels);
    }

    StageTuple labels_dense(const AnyMatrix& X, Labels out, double caution, bool scale, int n_threads) const {
        return labels(prepared(dense_source(X), scale), out, caution, n_threads);
    }
    StageTuple labels_csr(const AnyVector& data, const AnyVector& indices, const AnyVector& row_start, Labels out,
                          double caution, int n_threads) const {
        return labels(csr_source(data, indices, row_start, stage_.tree.d), out, caution, n_threads);
    }
    StageTuple scores_dense(const AnyMatrix& X, Scores scores, Scores errors, Labels leaf, Labels evaluations,
                            bool scale, int n_threads) const {
        return scores_of(prepared(dense_source(X), scale), scores, errors, leaf, evaluations, n_threads);
    }
    StageTuple scores_csr(const AnyVector& data, const AnyVector& indices, const AnyVector& row_start, Scores scores,
                          Scores errors, Labels leaf, Labels evaluations, int n_threads) const {
        return scores_of(csr_source(data, indices, row_start, stage_.tree.d), scores, errors, leaf, evaluations,
                         n_threads);
    }

  private:
    RowSource prepared(RowSource rows, bool scale) const {
        require(rows.d == stage_.tree.d, "rows and tree disagree in width");
        if (scale) rows.scaling = scaling_;
        return rows;
    }
    StageTuple labels(const RowSource& rows, Labels& out, double caution, int n_threads) const {
        require(static_cast<std::int64_t>(out.shape(0)) == rows.n_rows, "out and rows disagree in length");
        require(caution >= 0.0, "caution must not be negative");
        const nb::gil_scoped_release nogil;
        return as_tuple(settle(rows, caution, n_threads, out.data()));
    }
    StageTuple scores_of(const RowSource& rows, Scores& scores, Scores& errors, Labels& leaf, Labels& evaluations,
                         int n_threads) const {
        const auto n = static_cast<std::size_t>(rows.n_rows), p = static_cast<std::size_t>(stage_.vote.n_scores);
        require(scores.shape(0) == n && errors.shape(0) == n && scores.shape(1) == p && errors.shape(1) == p &&
                    leaf.shape(0) == n && evaluations.shape(0) == n,
                "an output has a wrong shape");
        const PathTrace out{scores.data(), errors.data(), leaf.data(), evaluations.data()};
        const nb::gil_scoped_release nogil;
        return as_tuple(path_scores(stage_, hot_, rows, n_threads, out));
    }

    nb::dict fields_;
    std::vector<PathNode> nodes_;
    PathStage stage_;
    const HotTable& hot_;
    RowScaling scaling_;
};

}  // namespace

void bind_paths(nb::module_& m) {
    m.def("column_sums", &sums_of_columns, "values"_a.noconvert(), "first"_a, "last"_a, "side"_a.noconvert(),
          "weight"_a.noconvert(), "residuals"_a.noconvert(), "norms"_a.noconvert(), "products"_a.noconvert(),
          "n_threads"_a);
    m.def("partition_rows", &partition, "values"_a.noconvert(), "rows_order"_a.noconvert(), "first"_a, "last"_a,
          "side"_a.noconvert());
    nb::class_<Paths, LabelStage>(m, "PathStage")
        .def(nb::init<nb::dict, const std::string&>(), "fields"_a, "level"_a)
        .def("labels_dense", &Paths::labels_dense, "X"_a.noconvert(), "out"_a.noconvert(), "caution"_a, "scale"_a,
             "n_threads"_a)
        .def("labels_csr", &Paths::labels_csr, "data"_a.noconvert(), "indices"_a.noconvert(), "row_start"_a.noconvert(),
             "out"_a.noconvert(), "caution"_a, "n_threads"_a)
        .def("scores_dense", &Paths::scores_dense, "X"_a.noconvert(), "scores"_a.noconvert(), "errors"_a.noconvert(),
             "leaf"_a.noconvert(), "evaluations"_a.noconvert(), "scale"_a, "n_threads"_a)
        .def("scores_csr", &Paths::scores_csr, "data"_a.noconvert(), "indices"_a.noconvert(), "row_start"_a.noconvert(),
             "scores"_a.noconvert(), "errors"_a.noconvert(), "leaf"_a.noconvert(), "evaluations"_a.noconvert(),
             "n_threads"_a);
}

}  // namespace svelto::binding
