// Metric trees for Python: checks shapes once, lets the interpreter go, computes nothing.
#include <algorithm>
#include <cstring>

#include "binding.hpp"
#include "cascade_parts.hpp"
#include "certified.hpp"
#include "metric_tree.hpp"
#include "tree_stage.hpp"
#include "workspace.hpp"

namespace svelto::binding {
namespace {

using Floats = nb::ndarray<nb::numpy, float>;
using Ints = nb::ndarray<nb::numpy, std::int32_t>;

// A NumPy array that owns the vector's memory.
template <class T>
nb::ndarray<nb::numpy, T> give(std::vector<T>&& values, std::initializer_list<std::size_t> shape) {
    auto* kept = new std::vector<T>(std::move(values));
    nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return nb::ndarray<nb::numpy, T>(kept->data(), shape, owner);
}

nb::dict build_tree(const Matrix<float>& rows, int leaf_size, int max_leaves, int max_depth, int exact_pairs,
                    double least_share, std::uint64_t seed, int n_threads, const std::string& level) {
    const HotTable& hot = level_table(level);
    require(rows.shape(0) >= 1 && rows.shape(0) < (1u << 30), "the number of rows is out of range");
    require(rows.shape(1) >= 1 && rows.shape(1) % kTreeLanes == 0, "rows must be padded");
    require(reinterpret_cast<std::uintptr_t>(rows.data()) % 64 == 0, "rows are not 64-byte aligned");
    require(leaf_size >= 1 && max_leaves >= 0 && max_depth >= 0 && exact_pairs >= 0, "limits must not be negative");
    require(least_share >= 0.0 && least_share <= 0.5, "least_share must be between 0 and 0.5");
    const TreeLimits limits{leaf_size, max_leaves, max_depth, exact_pairs, least_share, seed, n_threads};
    MetricTree tree;
    {
        const nb::gil_scoped_release nogil;
        tree = build_metric_tree(hot, rows.data(), static_cast<std::int32_t>(rows.shape(0)),
                                 static_cast<int>(rows.shape(1)), limits);
    }
    nb::dict out;
    const std::size_t n_inner = tree.offsets.size();
    out["normals"] = give(std::move(tree.normals), {n_inner, rows.shape(1)});
    out["offsets"] = give(std::move(tree.offsets), {n_inner});
    out["children"] = give(std::move(tree.children), {n_inner, 2});
    const std::size_t n = tree.order.size(), n_starts = tree.leaf_start.size();
    out["order"] = give(std::move(tree.order), {n});
    out["leaf_start"] = give(std::move(tree.leaf_start), {n_starts});
    return out;
}

// Children must lead to every node exactly once, and never back: a walk then always ends in a leaf that exists.
void check_children(const Tree& tree, const std::int32_t* children) {
    require(tree.n_leaves == tree.n_inner + 1, "a tree has one leaf more than inner nodes");
    std::vector<char> leaf_seen(static_cast<std::size_t>(tree.n_leaves)), node_seen(leaf_seen.size());
    for (std::int32_t node = 0; node < tree.n_inner; ++node) {
        for (int side = 0; side < 2; ++side) {
            const std::int32_t child = children[2 * node + side];
            require(child > node || child < 0, "a child does not follow its parent");
            require(child < tree.n_inner && ~child < tree.n_leaves, "a child does not exist");
            char& seen =
                child < 0 ? leaf_seen[static_cast<std::size_t>(~child)] : node_seen[static_cast<std::size_t>(child)];
            require(seen == 0, "a node has two parents");
            seen = 1;
        }
    }
}

// `nodes` receives the nodes in the form that walks read.
TreeStage read_stage(const nb::dict& fields, std::vector<TreeNode>& nodes, std::vector<std::int32_t>& far) {
    TreeStage s;
    Tree& tree = s.tree;
    tree.d = get<int>(fields, "d");
    tree.stride = get<int>(fields, "stride");
    tree.n_inner = get<int>(fields, "n_inner");
    tree.n_leaves = get<int>(fields, "n_leaves");
    require(tree.d >= 1 && tree.stride >= tree.d && tree.stride % kTreeLanes == 0, "stride and d disagree");
    require(tree.n_inner >= 0 && tree.n_leaves >= 1, "the tree is empty");
    const std::int64_t inner = tree.n_inner, leaves = tree.n_leaves;
    tree.normals = aligned<float>(fields, "normals", inner * tree.stride);
    const float* offsets = array<float>(fields, "offsets", inner);
    const std::int32_t* children = array<std::int32_t>(fields, "children", 2 * inner);
    check_children(tree, children);
    nodes.resize(static_cast<std::size_t>(inner));
    for (std::size_t i = 0; i < nodes.size(); ++i) nodes[i] = {offsets[i], {children[2 * i], children[2 * i + 1]}, 0};
    tree.nodes = nodes.data();
    s.vote = read_vote(fields);
    LeafModels& m = s.leaves;
    m.n_scores = s.vote.n_scores;
    m.padded = read_padded(fields, s.vote.n_scores);
    const std::int64_t width = std::max(m.padded, 1);
    m.centres = aligned<float>(fields, "centres", leaves * tree.stride);
    m.weights = aligned<float>(fields, "weights", leaves * (m.padded > 0 ? tree.d * width : tree.stride));
    m.values = aligned<float>(fields, "values", leaves * width);
    m.base = aligned<float>(fields, "base", leaves * width);
    m.growth = aligned<float>(fields, "growth", leaves * width);
    m.reach = array<float>(fields, "reach", leaves);
    s.shift = array<double>(fields, "shift", tree.d);
    s.stored = get<bool>(fields, "stored");
    if (s.stored) {
        m.bias = aligned<float>(fields, "bias", leaves * width);
        m.centre_sq_norm = array<float>(fields, "centre_sq_norm", leaves);
        for (int k = 0; k < tree.d; ++k) require(s.shift[k] == 0.0, "stored rows are not shifted");
    }
    s.guarded = fields.contains("guard");
    if (s.guarded) s.guard = read_guard(get<nb::dict>(fields, "guard"), tree.d, tree.stride, far);
    return s;
}

CertifiedLeaves read_certified(const nb::dict& fields, const TreeStage& stage) {
    CertifiedLeaves c;
    const std::int64_t leaves = stage.tree.n_leaves, cells = leaves * stage.vote.n_scores, d = stage.tree.d;
    c.gamma = get<double>(fields, "certified_gamma");
    c.intercept = array<double>(fields, "certified_intercept", stage.vote.n_scores);
    c.centres = array<double>(fields, "certified_centres", leaves * d);
    c.sq_radius = array<double>(fields, "certified_sq_radius", leaves);
    c.value = array<double>(fields, "certified_value", cells);
    c.slope = array<double>(fields, "certified_slope", cells * d);
    c.low = array<double>(fields, "certified_low", cells);
    c.high = array<double>(fields, "certified_high", cells);
    c.cubic = array<double>(fields, "certified_cubic", cells);
    c.slack = array<double>(fields, "certified_slack", cells);
    return c;
}

using Doubles = nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

class Stage final : public ErrorMap {
  public:
    Stage(nb::dict fields, const std::string& level)
        : fields_(std::move(fields)),
          stage_(read_stage(fields_, nodes_, far_)),
          hot_(level_table(level)),
          scaling_(read_scaling(fields_, stage_.tree.d)) {
        if (fields_.contains("certified_slope")) certified_ = read_certified(fields_, stage_);
    }

    int width() const noexcept override { return stage_.tree.d; }
    int n_scores() const noexcept override { return stage_.vote.n_scores; }
    // A tree with proven leaves settles by their intervals; caution has no meaning there.
    StageOutcome settle(const RowSource& rows, double caution, int n_threads, std::int32_t* labels) const override {
        if (certified_.slope != nullptr)
            return certified_labels(stage_, certified_, hot_, rows, n_threads, labels, nullptr, nullptr);
        return stage_labels(stage_, hot_, rows, caution, n_threads, labels);
    }
    StageOutcome errors(const RowSource& rows, int n_threads, double* errors) const override {
        StageTrace out;
        out.errors = errors;
        return stage_scores(stage_, hot_, rows, n_threads, out);
    }

    StageTuple labels_dense(const AnyMatrix& X, Labels out, double caution, bool scale, int n_threads) const {
        return labels(prepared(dense_source(X), scale), out, caution, n_threads);
    }
    StageTuple labels_csr(const AnyVector& data, const AnyVector& indices, const AnyVector& row_start, Labels out,
                          double caution, int n_threads) const {
        return labels(csr_source(data, indices, row_start, stage_.tree.d), out, caution, n_threads);
    }
    StageTuple scores_dense(const AnyMatrix& X, Scores scores, Scores errors, Doubles sq_dist, Labels leaf,
                            Labels depth, bool scale, int n_threads) const {
        return scores_of(prepared(dense_source(X), scale), scores, errors, sq_dist, leaf, depth, n_threads);
    }
    StageTuple scores_csr(const AnyVector& data, const AnyVector& indices, const AnyVector& row_start, Scores scores,
                          Scores errors, Doubles sq_dist, Labels leaf, Labels depth, int n_threads) const {
        return scores_of(csr_source(data, indices, row_start, stage_.tree.d), scores, errors, sq_dist, leaf, depth,
                         n_threads);
    }

    // Empty scores and bounds: only labels are wanted.
    StageTuple certified_dense(const AnyMatrix& X, Labels out, Scores scores, Scores bounds, bool scale,
                               int n_threads) const {
        return certified(prepared(dense_source(X), scale), out, scores, bounds, n_threads);
    }
    StageTuple certified_csr(const AnyVector& data, const AnyVector& indices, const AnyVector& row_start, Labels out,
                             Scores scores, Scores bounds, int n_threads) const {
        return certified(csr_source(data, indices, row_start, stage_.tree.d), out, scores, bounds, n_threads);
    }

  private:
    StageTuple certified(const RowSource& rows, Labels& out, Scores& scores, Scores& bounds, int n_threads) const {
        require(certified_.slope != nullptr, "the tree has no certified leaves");
        require(static_cast<std::int64_t>(out.shape(0)) == rows.n_rows, "out and rows disagree in length");
        const auto fits = [&](const Scores& a) {
            return a.size() == 0 || (static_cast<std::int64_t>(a.shape(0)) == rows.n_rows &&
                                     static_cast<int>(a.shape(1)) == stage_.vote.n_scores);
        };
        require(fits(scores) && fits(bounds), "scores or bounds has a wrong shape");
        double* to_scores = scores.size() == 0 ? nullptr : scores.data();
        double* to_bounds = bounds.size() == 0 ? nullptr : bounds.data();
        const nb::gil_scoped_release nogil;
        return as_tuple(certified_labels(stage_, certified_, hot_, rows, n_threads, out.data(), to_scores, to_bounds));
    }
    RowSource prepared(RowSource rows, bool scale) const {
        require(rows.d == stage_.tree.d, "rows and tree disagree in width");
        if (scale) rows.scaling = scaling_;
        return rows;
    }
    StageTuple labels(const RowSource& rows, Labels& out, double caution, int n_threads) const {
        require(static_cast<std::int64_t>(out.shape(0)) == rows.n_rows, "out and rows disagree in length");
        require(caution >= 0.0, "caution must not be negative");
        const nb::gil_scoped_release nogil;
        return as_tuple(stage_labels(stage_, hot_, rows, caution, n_threads, out.data()));
    }
    StageTuple scores_of(const RowSource& rows, Scores& scores, Scores& errors, Doubles& sq_dist, Labels& leaf,
                         Labels& depth, int n_threads) const {
        const auto n = static_cast<std::size_t>(rows.n_rows), p = static_cast<std::size_t>(stage_.vote.n_scores);
        require(scores.shape(0) == n && errors.shape(0) == n && scores.shape(1) == p && errors.shape(1) == p &&
                    sq_dist.shape(0) == n && leaf.shape(0) == n && depth.shape(0) == n,
                "an output has a wrong shape");
        const StageTrace out{scores.data(), errors.data(), sq_dist.data(), leaf.data(), depth.data()};
        const nb::gil_scoped_release nogil;
        return as_tuple(stage_scores(stage_, hot_, rows, n_threads, out));
    }

    nb::dict fields_;
    std::vector<TreeNode> nodes_;
    std::vector<std::int32_t> far_;
    TreeStage stage_;
    const HotTable& hot_;
    RowScaling scaling_;
    CertifiedLeaves certified_;
};

}  // namespace

void bind_tree(nb::module_& m) {
    m.attr("TREE_LANES") = kTreeLanes;
    m.def("build_tree", &build_tree, "rows"_a.noconvert(), "leaf_size"_a, "max_leaves"_a, "max_depth"_a,
          "exact_pairs"_a, "least_share"_a, "seed"_a, "n_threads"_a, "level"_a);
    nb::class_<Stage, ErrorMap>(m, "TreeStage")
        .def(nb::init<nb::dict, const std::string&>(), "fields"_a, "level"_a)
        .def("labels_dense", &Stage::labels_dense, "X"_a.noconvert(), "out"_a.noconvert(), "caution"_a, "scale"_a,
             "n_threads"_a)
        .def("labels_csr", &Stage::labels_csr, "data"_a.noconvert(), "indices"_a.noconvert(), "row_start"_a.noconvert(),
             "out"_a.noconvert(), "caution"_a, "n_threads"_a)
        .def("scores_dense", &Stage::scores_dense, "X"_a.noconvert(), "scores"_a.noconvert(), "errors"_a.noconvert(),
             "sq_dist"_a.noconvert(), "leaf"_a.noconvert(), "depth"_a.noconvert(), "scale"_a, "n_threads"_a)
        .def("scores_csr", &Stage::scores_csr, "data"_a.noconvert(), "indices"_a.noconvert(), "row_start"_a.noconvert(),
             "scores"_a.noconvert(), "errors"_a.noconvert(), "sq_dist"_a.noconvert(), "leaf"_a.noconvert(),
             "depth"_a.noconvert(), "n_threads"_a)
        .def("certified_dense", &Stage::certified_dense, "X"_a.noconvert(), "out"_a.noconvert(), "scores"_a.noconvert(),
             "bounds"_a.noconvert(), "scale"_a, "n_threads"_a)
        .def("certified_csr", &Stage::certified_csr, "data"_a.noconvert(), "indices"_a.noconvert(),
             "row_start"_a.noconvert(), "out"_a.noconvert(), "scores"_a.noconvert(), "bounds"_a.noconvert(),
             "n_threads"_a);
}

}  // namespace svelto::binding
