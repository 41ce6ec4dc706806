// Hinging hyperplanes for Python: checks shapes once, lets the interpreter go, computes nothing.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "binding.hpp"
#include "cascade_parts.hpp"
#include "hinge_stage.hpp"

namespace svelto::binding {
namespace {

using Doubles = nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// One score a class, settled by the distance of the best to the second: a rule of this stage only.
constexpr int kDistilledRule = 4;

// Sizes beyond it cannot be meant, and products of them must fit.
constexpr int kMostColumns = 1 << 20;

// What a stage points to besides the arrays of its fields.
struct OwnArrays {
    std::array<AlignedBuffer<float>, kMostHingeLayers + 1> floors;
    AlignedBuffer<float> paired;
};

// Sizes and floors of a layer with so many hinges, without its arrays.
HingeLayer make_layer(int n_inputs, int n_scores, int n_hinges, AlignedBuffer<float>& floor) {
    HingeLayer layer;
    layer.n_inputs = n_inputs;
    layer.n_columns = n_scores + n_hinges;
    layer.width = padded_to_lanes(layer.n_columns);
    floor.reserve(static_cast<std::size_t>(layer.width));
    std::fill_n(floor.get(), layer.width, 0.0f);
    std::fill_n(floor.get(), n_scores, -std::numeric_limits<float>::infinity());
    layer.floor = floor.get();
    return layer;
}

const float* read_weights(const nb::dict& fields, const std::string& name, const HingeLayer& layer) {
    const std::int64_t n = static_cast<std::int64_t>(layer.n_inputs) * layer.width;
    const float* weights = aligned<float>(fields, name, n);
    require_finite(weights, n, "a weight is not finite");
    return weights;
}

// The weights of a few scores, two inputs beside each other; null where there are too many scores.
const float* pair_weights(const HingeLayer& last, int n_scores, AlignedBuffer<float>& paired) {
    if (n_scores > kPairedScores) return nullptr;
    const int n_pairs = (last.n_inputs + 1) / 2;
    paired.reserve(static_cast<std::size_t>(n_pairs) * kTreeLanes);
    std::fill_n(paired.get(), n_pairs * kTreeLanes, 0.0f);
    for (int k = 0; k < last.n_inputs; ++k)
        for (int p = 0; p < n_scores; ++p)
            paired.get()[k / 2 * kTreeLanes + 2 * p + k % 2] = last.weights[k * last.width + p];
    return paired.get();
}

Hinges read_hinges(const nb::dict& fields, int n_scores, OwnArrays& own) {
    Hinges hinges;
    hinges.d = get<int>(fields, "d");
    hinges.n_scores = n_scores;
    hinges.n_layers = get<int>(fields, "n_layers");
    require(hinges.d >= 1 && hinges.d <= kMostColumns && n_scores <= kMostColumns, "d or n_scores is out of range");
    require(hinges.n_layers >= 1 && hinges.n_layers <= kMostHingeLayers, "there must be one or two layers");
    const std::int32_t* n_hinges = array<std::int32_t>(fields, "n_hinges", hinges.n_layers);
    int n_inputs = hinges.d;
    for (int l = 0; l < hinges.n_layers; ++l) {
        require(n_hinges[l] >= 0 && n_hinges[l] <= kMostColumns, "n_hinges is out of range");
        HingeLayer& layer = hinges.layers[l];
        layer = make_layer(n_inputs, n_scores, n_hinges[l], own.floors[static_cast<std::size_t>(l)]);
        const std::string number = std::to_string(l);
        layer.weights = read_weights(fields, "weights_" + number, layer);
        layer.bias = aligned<float>(fields, "bias_" + number, layer.width);
        require_finite(layer.bias, layer.width, "a bias is not finite");
        n_inputs = n_hinges[l];
    }
    if (n_scores == 1) {
        const HingeLayer& layer = hinges.layers[hinges.n_layers - 1];
        hinges.mix = aligned<float>(fields, "mix", layer.width);
        require_finite(hinges.mix, layer.width, "a weight of mix is not finite");
        require(hinges.mix[0] == 1.0f, "mix must start with 1, the weight of the score itself");
        require(std::all_of(hinges.mix + layer.n_columns, hinges.mix + layer.width, [](float v) { return v == 0.0f; }),
                "mix must end with zeros, where there are no hinges");
        return hinges;
    }
    HingeLayer& last = hinges.last;
    last = make_layer(n_inputs, n_scores, 0, own.floors.back());
    last.weights = read_weights(fields, "mix", last);
    hinges.paired = pair_weights(last, n_scores, own.paired);
    hinges.padded = last.width;
    return hinges;
}

// One layer of bumps, without columns for scores.
Hinges read_bumps(const nb::dict& fields, int n_scores, OwnArrays& own) {
    Hinges bumps;
    bumps.bumps = true;
    bumps.d = get<int>(fields, "d");
    bumps.n_scores = n_scores;
    bumps.n_layers = 1;
    const int n_bumps = get<int>(fields, "n_bumps");
    require(bumps.d >= 1 && bumps.d <= kMostColumns && n_scores <= kMostColumns, "d or n_scores is out of range");
    require(n_bumps >= 1 && n_bumps <= kMostColumns, "n_bumps is out of range");
    bumps.row_weight = static_cast<float>(get<double>(fields, "row_weight"));
    require(bumps.row_weight >= 0.0f && std::isfinite(bumps.row_weight), "row_weight is negative or not finite");
    HingeLayer& layer = bumps.layers[0];
    layer = make_layer(bumps.d, 0, n_bumps, own.floors[0]);
    layer.weights = read_weights(fields, "weights_0", layer);
    layer.bias = aligned<float>(fields, "bias_0", layer.width);
    require_finite(layer.bias, layer.width, "a bias is not finite");
    bumps.padded = n_scores == 1 ? 1 : padded_to_lanes(n_scores);
    const float* intercept = aligned<float>(fields, "intercept", bumps.padded);
    require_finite(intercept, bumps.padded, "an intercept is not finite");
    if (n_scores == 1) {
        bumps.mix = aligned<float>(fields, "mix", layer.width);
        require_finite(bumps.mix, layer.width, "a weight of mix is not finite");
        require(std::all_of(bumps.mix + n_bumps, bumps.mix + layer.width, [](float v) { return v == 0.0f; }),
                "mix must end with zeros, where there are no bumps");
        bumps.intercept = intercept[0];
        return bumps;
    }
    bumps.last = make_layer(n_bumps, n_scores, 0, own.floors.back());
    bumps.last.weights = read_weights(fields, "mix", bumps.last);
    bumps.last.bias = intercept;
    bumps.paired = pair_weights(bumps.last, n_scores, own.paired);
    return bumps;
}

HingeStage read_stage(const nb::dict& fields, OwnArrays& own, AlignedBuffer<float>& zeros,
                      std::vector<std::int32_t>& far) {
    HingeStage s;
    s.distilled = get<int>(fields, "rule") == kDistilledRule;
    nb::dict vote_fields;
    for (const char* name : {"n_scores", "n_classes", "break_ties"}) vote_fields[name] = get<nb::object>(fields, name);
    vote_fields["rule"] = s.distilled ? static_cast<int>(Rule::argmax) : get<int>(fields, "rule");
    s.vote = read_vote(vote_fields);
    require(!s.distilled || s.vote.n_classes >= 2, "a distilled stage has at least two classes");
    if (fields.contains("n_bumps")) {
        s.hinges = read_bumps(fields, s.vote.n_scores, own);
    } else {
        s.hinges = read_hinges(fields, s.vote.n_scores, own);
        // The bias of the scores is in the first layer.
        zeros.reserve(static_cast<std::size_t>(s.hinges.padded));
        std::fill_n(zeros.get(), s.hinges.padded, 0.0f);
        s.hinges.last.bias = zeros.get();
    }
    s.shift = array<double>(fields, "shift", s.hinges.d);
    for (int k = 0; k < s.hinges.d; ++k) {
        require(std::isfinite(s.shift[k]), "shift is not finite");
        s.shifted = s.shifted || s.shift[k] != 0.0;
    }
    s.error = array<double>(fields, "error", s.vote.n_scores);
    for (int p = 0; p < s.vote.n_scores; ++p)
        require(s.error[p] >= 0.0 && std::isfinite(s.error[p]), "an error is negative or not finite");
    s.guarded = fields.contains("guard");
    if (s.guarded) {
        s.guard = read_guard(get<nb::dict>(fields, "guard"), s.hinges.d, s.hinges.d, far);
        if (fields.contains("rim_factor")) s.rim_factor = get<double>(fields, "rim_factor");
        require(s.rim_factor >= 1.0 && std::isfinite(s.rim_factor), "rim_factor is below 1 or not finite");
    }
    return s;
}

// Hinges ready to answer. Holds pointers into the arrays of `fields`, and `fields` itself.
class HingeEngine final : public LabelStage {
  public:
    HingeEngine(nb::dict fields, const std::string& level, nb::object errors)
        : fields_(std::move(fields)),
          errors_(std::move(errors)),
          stage_(read_stage(fields_, own_, zeros_, far_)),
          hot_(level_table(level)),
          scaling_(read_scaling(fields_, stage_.hinges.d)) {
        if (errors_.is_none()) return;
        stage_.map = &nb::cast<const ErrorMap&>(errors_);
        require(stage_.map->width() == width() && stage_.map->n_scores() == 1, "the map of errors does not fit");
        // Ties are broken by sums of scores, which a factor changes.
        require(!stage_.vote.break_ties && !stage_.distilled, "a map of errors stands beside a plain vote");
    }

    int width() const noexcept override { return stage_.hinges.d; }
    StageOutcome settle(const RowSource& rows, double caution, int n_threads, std::int32_t* labels) const override {
        return hinge_labels(stage_, hot_, rows, caution, n_threads, labels);
    }

    StageTuple labels_dense(const AnyMatrix& X, Labels out, double caution, bool scale, int n_threads) const {
        return labels(dense(X, scale), out, caution, n_threads);
    }
    StageTuple labels_csr(const AnyVector& data, const AnyVector& indices, const AnyVector& row_start, Labels out,
                          double caution, int n_threads) const {
        return labels(csr_source(data, indices, row_start, stage_.hinges.d), out, caution, n_threads);
    }
    StageTuple scores_dense(const AnyMatrix& X, Scores scores, Scores errors, bool scale, int n_threads) const {
        return scores_of(dense(X, scale), scores, errors, n_threads);
    }
    StageTuple scores_csr(const AnyVector& data, const AnyVector& indices, const AnyVector& row_start, Scores scores,
                          Scores errors, int n_threads) const {
        return scores_of(csr_source(data, indices, row_start, stage_.hinges.d), scores, errors, n_threads);
    }
    StageTuple caution_dense(const AnyMatrix& X, Labels out, Doubles caution, bool scale, int n_threads) const {
        return cautions(dense(X, scale), out, caution, n_threads);
    }
    StageTuple caution_csr(const AnyVector& data, const AnyVector& indices, const AnyVector& row_start, Labels out,
                           Doubles caution, int n_threads) const {
        return cautions(csr_source(data, indices, row_start, stage_.hinges.d), out, caution, n_threads);
    }

  private:
    RowSource dense(const AnyMatrix& X, bool scale) const {
        RowSource rows = dense_source(X);
        require(rows.d == stage_.hinges.d, "rows and hinges disagree in width");
        if (scale) rows.scaling = scaling_;
        return rows;
    }
    StageTuple labels(const RowSource& rows, Labels& out, double caution, int n_threads) const {
        require(static_cast<std::int64_t>(out.shape(0)) == rows.n_rows, "out and rows disagree in length");
        require(caution >= 0.0, "caution must not be negative");
        const nb::gil_scoped_release nogil;
        return as_tuple(settle(rows, caution, n_threads, out.data()));
    }
    StageTuple scores_of(const RowSource& rows, Scores& scores, Scores& errors, int n_threads) const {
        const auto n = static_cast<std::size_t>(rows.n_rows), p = static_cast<std::size_t>(stage_.vote.n_scores);
        require(scores.shape(0) == n && errors.shape(0) == n && scores.shape(1) == p && errors.shape(1) == p,
                "scores or errors has a wrong shape");
        const nb::gil_scoped_release nogil;
        return as_tuple(hinge_scores(stage_, hot_, rows, n_threads, scores.data(), errors.data()));
    }
    StageTuple cautions(const RowSource& rows, Labels& out, Doubles& caution, int n_threads) const {
        const auto n = static_cast<std::size_t>(rows.n_rows);
        require(out.shape(0) == n && caution.shape(0) == n, "out, caution and rows disagree in length");
        require(stage_.map == nullptr, "cautions know no map of errors; ask for scores");
        require(has_cautions(stage_), "votes of pairs and values have no caution of their own; ask for scores");
        const nb::gil_scoped_release nogil;
        return as_tuple(hinge_cautions(stage_, hot_, rows, n_threads, out.data(), caution.data()));
    }

    nb::dict fields_;
    nb::object errors_;
    OwnArrays own_;
    AlignedBuffer<float> zeros_;
    std::vector<std::int32_t> far_;
    HingeStage stage_;
    const HotTable& hot_;
    RowScaling scaling_;
};

}  // namespace

void bind_hinges(nb::module_& m) {
    m.attr("DISTILLED_RULE") = kDistilledRule;
    m.attr("GUARD_COLUMNS") = kGuardColumns;
    nb::class_<HingeEngine, LabelStage>(m, "HingeStage")
        .def(nb::init<nb::dict, const std::string&, nb::object>(), "fields"_a, "level"_a, "errors"_a = nb::none())
        .def("labels_dense", &HingeEngine::labels_dense, "X"_a.noconvert(), "out"_a.noconvert(), "caution"_a, "scale"_a,
             "n_threads"_a)
        .def("labels_csr", &HingeEngine::labels_csr, "data"_a.noconvert(), "indices"_a.noconvert(),
             "row_start"_a.noconvert(), "out"_a.noconvert(), "caution"_a, "n_threads"_a)
        .def("scores_dense", &HingeEngine::scores_dense, "X"_a.noconvert(), "scores"_a.noconvert(),
             "errors"_a.noconvert(), "scale"_a, "n_threads"_a)
        .def("scores_csr", &HingeEngine::scores_csr, "data"_a.noconvert(), "indices"_a.noconvert(),
             "row_start"_a.noconvert(), "scores"_a.noconvert(), "errors"_a.noconvert(), "n_threads"_a)
        .def("caution_dense", &HingeEngine::caution_dense, "X"_a.noconvert(), "out"_a.noconvert(),
             "caution"_a.noconvert(), "scale"_a, "n_threads"_a)
        .def("caution_csr", &HingeEngine::caution_csr, "data"_a.noconvert(), "indices"_a.noconvert(),
             "row_start"_a.noconvert(), "out"_a.noconvert(), "caution"_a.noconvert(), "n_threads"_a);
}

}  // namespace svelto::binding
