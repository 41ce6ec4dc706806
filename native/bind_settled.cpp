// Labels and rungs from scores and errors that Python holds.
#include "binding.hpp"
#include "dispatch.hpp"
#include "settled_scores.hpp"

namespace svelto::binding {
namespace {

Machine vote_of(const Matrix<double>& scores, int rule, int n_classes, bool break_ties) {
    Machine vote;
    vote.rule = static_cast<Rule>(rule);
    vote.n_scores = static_cast<int>(scores.shape(1));
    vote.n_classes = n_classes;
    vote.break_ties = break_ties;
    check_rule(vote);
    return vote;
}

void settle(const Matrix<double>& scores, const Matrix<double>& bounds, int rule, int n_classes, bool break_ties,
            Labels out) {
    require(scores.shape(0) == bounds.shape(0) && scores.shape(1) == bounds.shape(1) && out.shape(0) == scores.shape(0),
            "scores, bounds and out disagree in shape");
    const Machine vote = vote_of(scores, rule, n_classes, break_ties);
    const nb::gil_scoped_release nogil;
    settle_scores(vote, scores.data(), bounds.data(), static_cast<std::int64_t>(scores.shape(0)), out.data());
}

void last_rungs(const Matrix<double>& scores, const Matrix<double>& errors, const Vector<double>& rungs, int rule,
                int n_classes, bool break_ties, int n_threads, Labels out) {
    require(scores.shape(0) == errors.shape(0) && scores.shape(1) == errors.shape(1) && out.shape(0) == scores.shape(0),
            "scores, errors and out disagree in shape");
    require(rungs.shape(0) >= 1, "there are no rungs");
    const Machine vote = vote_of(scores, rule, n_classes, break_ties);
    const nb::gil_scoped_release nogil;
    last_settled_rungs(vote, scores.data(), errors.data(), static_cast<std::int64_t>(scores.shape(0)), rungs.data(),
                       static_cast<int>(rungs.shape(0)), n_threads, out.data());
}

// out[i] = table[index[i]], for numbers of eight bytes of any kind. NumPy lets the interpreter go for this, which takes
// threads that share a predictor longer than the work (`Unlocked`).
void take(const Vector<std::int64_t>& table, const Vector<std::int32_t>& index,
          nb::ndarray<std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> out, const std::string& level) {
    require(out.shape(0) == index.shape(0), "index and out disagree in length");
    const HotTable* hot = find_level(level);
    require(hot != nullptr, "this CPU and build do not offer the level");
    require(
        hot->look_up(table.data(), static_cast<std::int64_t>(table.shape(0)), index.data(), index.shape(0), out.data()),
        "an index is outside the table");
}

}  // namespace

void bind_settled(nb::module_& m) {
    m.def("take", &take, "table"_a.noconvert(), "index"_a.noconvert(), "out"_a.noconvert(), "level"_a);
    m.def("settle", &settle, "scores"_a.noconvert(), "bounds"_a.noconvert(), "rule"_a, "n_classes"_a, "break_ties"_a,
          "out"_a.noconvert());
    m.def("last_rungs", &last_rungs, "scores"_a.noconvert(), "errors"_a.noconvert(), "rungs"_a.noconvert(), "rule"_a,
          "n_classes"_a, "break_ties"_a, "n_threads"_a, "out"_a.noconvert());
}

}  // namespace svelto::binding
