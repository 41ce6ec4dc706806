// Labels and rungs from scores and errors that Python holds.
#include "binding.hpp"
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

}  // namespace

void bind_settled(nb::module_& m) {
    m.def("settle", &settle, "scores"_a.noconvert(), "bounds"_a.noconvert(), "rule"_a, "n_classes"_a, "break_ties"_a,
          "out"_a.noconvert());
    m.def("last_rungs", &last_rungs, "scores"_a.noconvert(), "errors"_a.noconvert(), "rungs"_a.noconvert(), "rule"_a,
          "n_classes"_a, "break_ties"_a, "n_threads"_a, "out"_a.noconvert());
}

}  // namespace svelto::binding
