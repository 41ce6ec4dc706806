// Cascades in one piece for Python: checks that the parts fit once, lets the interpreter go, computes nothing.
#include <cmath>
#include <memory>
#include <vector>

#include "binding.hpp"
#include "cascade.hpp"
#include "reduced_stage.hpp"

namespace svelto::binding {
namespace {

using Counts = nb::ndarray<std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
// First row that cannot be read or -1, and its fault.
using BadRow = std::tuple<std::int64_t, int>;

Precision read_tier(int precision) {
    require(precision >= 0 && precision <= 2, "precision must be 0, 1 or 2");
    return static_cast<Precision>(precision);
}

// The parts are Python's objects, and kept by reference.
template <class Part>
const Part* part_of(const nb::handle& object) {
    return object.is_none() ? nullptr : &nb::cast<const Part&>(object);
}

class ReducedObject final : public LabelStage {
  public:
    ReducedObject(nb::object sum, nb::object map, nb::dict fields)
        : sum_(std::move(sum)), map_(std::move(map)), fields_(std::move(fields)) {
        stage_.sum = part_of<WholeSum>(sum_);
        stage_.map = part_of<ErrorMap>(map_);
        stage_.vote = read_vote(fields_);
        stage_.precision = read_tier(get<int>(fields_, "precision"));
        stage_.rows_per_thread = get<double>(fields_, "rows_per_thread");
        require(stage_.rows_per_thread > 0.0, "rows_per_thread must be positive");
        require(stage_.sum != nullptr && stage_.sum->n_scores() == stage_.vote.n_scores, "sum and vote disagree");
        require(stage_.map == nullptr || (stage_.map->width() == width() && stage_.map->n_scores() == 1),
                "the map of errors does not fit the sum");
        stage_.unit = array<double>(fields_, "unit", stage_.vote.n_scores);
        for (int p = 0; p < stage_.vote.n_scores; ++p)
            require(stage_.unit[p] >= 0.0 && std::isfinite(stage_.unit[p]), "a unit is negative or not finite");
    }

    int width() const noexcept override { return stage_.sum->width(); }
    StageOutcome settle(const RowSource& rows, double caution, int n_threads, std::int32_t* labels) const override {
        return reduced_labels(stage_, rows, caution, n_threads, labels);
    }

    StageTuple labels_dense(const AnyMatrix& X, Labels out, double caution, bool scale, int n_threads) const {
        RowSource rows = dense_source(X);
        require(rows.d == width(), "rows and vectors disagree in width");
        if (scale) rows.scaling = stage_.sum->scaling();
        return labels(rows, out, caution, n_threads);
    }
    StageTuple labels_csr(const AnyVector& data, const AnyVector& indices, const AnyVector& row_start, Labels out,
                          double caution, int n_threads) const {
        return labels(csr_source(data, indices, row_start, width()), out, caution, n_threads);
    }

  private:
    StageTuple labels(const RowSource& rows, Labels& out, double caution, int n_threads) const {
        require(static_cast<std::int64_t>(out.shape(0)) == rows.n_rows, "out and rows disagree in length");
        require(caution >= 0.0, "caution must not be negative");
        const nb::gil_scoped_release nogil;
        return as_tuple(settle(rows, caution, n_threads, out.data()));
    }

    nb::object sum_, map_;
    nb::dict fields_;
    ReducedSum stage_;
};

class CascadeObject {
  public:
    CascadeObject(nb::list stages, const std::vector<double>& cautions, const std::vector<bool>& guards_itself,
                  nb::object guard, nb::object exact, int precision, double rows_per_thread, double rows_per_call)
        : stages_(std::move(stages)), guard_(std::move(guard)), exact_(std::move(exact)) {
        cascade_.exact = part_of<WholeSum>(exact_);
        cascade_.guard = part_of<RowMarker>(guard_);
        cascade_.first = read_tier(precision);
        require(cascade_.exact != nullptr, "a cascade ends with a sum");
        const int d = cascade_.exact->width();
        require(cascade_.guard == nullptr || cascade_.guard->width() == d, "guard and machine disagree in width");
        require(cautions.size() == stages_.size() && guards_itself.size() == stages_.size(),
                "stages, cautions and guards_itself disagree in length");
        for (std::size_t i = 0; i < stages_.size(); ++i) {
            const auto* stage = part_of<LabelStage>(stages_[i]);
            require(stage != nullptr && stage->width() == d, "stage and machine disagree in width");
            require(cautions[i] >= 0.0, "caution must not be negative");
            cascade_.stages.push_back({stage, cautions[i], guards_itself[i]});
        }
        require(rows_per_thread > 0.0 && rows_per_call >= 1.0, "there must be rows for a thread, and for a call");
        cascade_.exact_rows_per_thread = rows_per_thread;
        exact_rows_ = static_cast<std::int64_t>(std::min(rows_per_call, 1e15));
    }

    BadRow labels_dense(const AnyMatrix& X, Labels out, Counts settled, bool scale, int n_threads) const {
        return labels(dense(X, scale), out, settled, n_threads);
    }
    BadRow labels_csr(const AnyVector& data, const AnyVector& indices, const AnyVector& row_start, Labels out,
                      Counts settled, int n_threads) const {
        return labels(csr_source(data, indices, row_start, cascade_.exact->width()), out, settled, n_threads);
    }

    // Labels of rows on this thread, without hearing Ctrl-C; false where one cannot be read.
    bool answer_block(const AnyMatrix& X, Labels out) const {
        const RowSource rows = dense(X, true);
        require(static_cast<std::int64_t>(out.shape(0)) == rows.n_rows, "out and rows disagree in length");
        return answer_few(rows, out.data());
    }
    // The same for one row, without an array to write to; -1 where it cannot be read.
    int answer_row(const AnyMatrix& X) const {
        const RowSource rows = dense(X, true);
        require(rows.n_rows == 1, "X must have one row");
        std::int32_t label = -1;
        return answer_few(rows, &label) ? label : -1;
    }

  private:
    // Whether the whole sum over all rows would be worth letting the interpreter go: half of what is worth a thread.
    bool is_worth(const RowSource& rows) const noexcept {
        return 2.0 * static_cast<double>(rows.n_rows) >= cascade_.exact_rows_per_thread;
    }
    bool answer_few(const RowSource& rows, std::int32_t* labels) const {
        CascadeRun run(cascade_, rows, 1, labels);
        // A stage takes a few rows no longer than letting the interpreter go and getting it back does.
        Unlocked unlocked(rows.n_rows * rows.d >= kWorthNumbers);
        if (run.has_stage() && !run.ask_stage()) return false;
        if (run.is_done()) return true;
        unlocked.open(is_worth(rows));
        return run.ask_stages() && run.ask_exact(rows.n_rows);
    }
    RowSource dense(const AnyMatrix& X, bool scale) const {
        RowSource rows = dense_source(X);
        require(rows.d == cascade_.exact->width(), "rows and machine disagree in width");
        if (scale) rows.scaling = cascade_.exact->scaling();
        return rows;
    }
    BadRow labels(const RowSource& rows, Labels& out, Counts& settled, int n_threads) const {
        require(static_cast<std::int64_t>(out.shape(0)) == rows.n_rows, "out and rows disagree in length");
        require(settled.shape(0) == cascade_.stages.size() + 1, "settled has a wrong length");
        Unlocked unlocked(n_threads > 1 || rows.n_rows * rows.d >= kWorthNumbers);
        CascadeRun run(cascade_, rows, n_threads, out.data());
        bool readable = run.ask_stages();
        unlocked.open(!run.is_done() && is_worth(rows));
        while (readable && !run.is_done()) {
            readable = run.ask_exact(exact_rows_);
            if (run.is_done()) break;
            const nb::gil_scoped_acquire gil;  // the sum may take long: Ctrl-C is heard
            if (PyErr_CheckSignals() != 0) throw nb::python_error();
        }
        for (std::size_t i = 0; i < settled.shape(0); ++i) settled.data()[i] += run.settled()[i];
        return {run.bad_row, static_cast<int>(run.fault)};
    }

    nb::list stages_;
    nb::object guard_, exact_;
    Cascade cascade_;
    std::int64_t exact_rows_ = 1;
};

}  // namespace

void bind_cascade_parts(nb::module_& m) {
    m.attr("STAGE_ROWS_PER_THREAD") = kStageRowsPerThread;
    m.attr("GUARD_ROWS_PER_THREAD") = kGuardRowsPerThread;
    nb::class_<LabelStage>(m, "LabelStage");
    nb::class_<ErrorMap, LabelStage>(m, "ErrorMap");
    nb::class_<RowMarker>(m, "RowMarker");
    nb::class_<WholeSum>(m, "WholeSum");
}

void bind_cascade(nb::module_& m) {
    nb::class_<ReducedObject, LabelStage>(m, "ReducedStage")
        .def(nb::init<nb::object, nb::object, nb::dict>(), "whole"_a, "errors"_a.none(), "fields"_a)
        .def("labels_dense", &ReducedObject::labels_dense, "X"_a.noconvert(), "out"_a.noconvert(), "caution"_a,
             "scale"_a, "n_threads"_a)
        .def("labels_csr", &ReducedObject::labels_csr, "data"_a.noconvert(), "indices"_a.noconvert(),
             "row_start"_a.noconvert(), "out"_a.noconvert(), "caution"_a, "n_threads"_a);
    nb::class_<CascadeObject>(m, "Cascade")
        .def(nb::init<nb::list, const std::vector<double>&, const std::vector<bool>&, nb::object, nb::object, int,
                      double, double>(),
             "stages"_a, "cautions"_a, "guards_itself"_a, "guard"_a.none(), "exact"_a, "precision"_a,
             "rows_per_thread"_a, "rows_per_call"_a)
        .def("labels_dense", &CascadeObject::labels_dense, "X"_a.noconvert(), "out"_a.noconvert(),
             "settled"_a.noconvert(), "scale"_a, "n_threads"_a)
        .def("labels_csr", &CascadeObject::labels_csr, "data"_a.noconvert(), "indices"_a.noconvert(),
             "row_start"_a.noconvert(), "out"_a.noconvert(), "settled"_a.noconvert(), "n_threads"_a)
        .def("answer_block", &CascadeObject::answer_block, "X"_a.noconvert(), "out"_a.noconvert())
        .def("answer_row", &CascadeObject::answer_row, "X"_a.noconvert());
}

}  // namespace svelto::binding
