// What the binding files share: array types, checked access to the fields of a model, query rows.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "dispatch.hpp"
#include "machine.hpp"
#include "packed_guard.hpp"
#include "row_packer.hpp"
#include "rows.hpp"

namespace svelto::binding {

namespace nb = nanobind;
using namespace nb::literals;

template <class T>
using Vector = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Matrix = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using AnyMatrix = nb::ndarray<nb::ro, nb::ndim<2>, nb::device::cpu>;
using AnyVector = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Labels = nb::ndarray<std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Scores = nb::ndarray<double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

inline void require(bool condition, const char* message) {
    if (!condition) throw nb::value_error(message);
}

// Lets the interpreter go while it lives, for work that is worth it. Threads that share a predictor hand the lock to
// each other whenever one lets it go, which takes tens of microseconds: calls as short as that do better to keep it.
class Unlocked {
  public:
    explicit Unlocked(bool worth) { open(worth); }
    void open(bool worth) {
        if (worth && !nogil_) nogil_.emplace();
    }

  private:
    std::optional<nb::gil_scoped_release> nogil_;
};
// Multiply-adds of the whole sum, and numbers of rows that stages read, of calls that are worth it.
constexpr double kWorthOperations = 1e6;
constexpr std::int64_t kWorthNumbers = 1 << 14;

// A value of the `fields` dict, as T.
template <class T>
T get(const nb::dict& fields, const char* name) {
    if (!fields.contains(name)) throw nb::key_error(name);
    return nb::cast<T>(fields[name]);
}

// An array of the `fields` dict: checked length and alignment, kept alive by the dict's owner.
template <class T>
const T* array(const nb::dict& fields, const std::string& name, std::int64_t size) {
    if (!fields.contains(name.c_str())) throw nb::key_error(name.c_str());
    nb::ndarray<const T, nb::c_contig, nb::device::cpu> values;
    // No conversion: a converted copy would be gone before native code reads it.
    if (!nb::try_cast(fields[name.c_str()], values, false))
        throw nb::type_error((name + " is no contiguous array of the expected type").c_str());
    if (static_cast<std::int64_t>(values.size()) != size)
        throw nb::value_error(
            (name + " has " + std::to_string(values.size()) + " elements; expected " + std::to_string(size)).c_str());
    return values.data();
}

template <class T>
const T* aligned(const nb::dict& fields, const std::string& name, std::int64_t size) {
    const T* data = array<T>(fields, name, size);
    if (size > 0 && reinterpret_cast<std::uintptr_t>(data) % 64 != 0)
        throw nb::value_error((name + " is not 64-byte aligned").c_str());
    return data;
}

inline RowSource dense_source(const AnyMatrix& X) {
    RowSource rows;
    if (X.dtype() == nb::dtype<float>())
        rows.type = ElementType::float32;
    else
        require(X.dtype() == nb::dtype<double>(), "rows must be float32 or float64");
    rows.data = X.data();
    rows.row_stride = X.stride(0);
    rows.col_stride = X.stride(1);
    rows.n_rows = static_cast<std::int64_t>(X.shape(0));
    rows.d = static_cast<int>(X.shape(1));
    return rows;
}

inline RowSource csr_source(const AnyVector& data, const AnyVector& indices, const AnyVector& row_start, int d) {
    RowSource rows;
    rows.is_csr = true;
    if (data.dtype() == nb::dtype<float>())
        rows.type = ElementType::float32;
    else
        require(data.dtype() == nb::dtype<double>(), "CSR values must be float32 or float64");
    rows.wide_indices = indices.dtype() == nb::dtype<std::int64_t>();
    require(rows.wide_indices || indices.dtype() == nb::dtype<std::int32_t>(), "CSR indices must be int32 or int64");
    require(indices.dtype() == row_start.dtype(), "CSR indices and indptr must have one dtype");
    require(row_start.shape(0) >= 1 && indices.shape(0) == data.shape(0), "CSR arrays disagree in length");
    rows.data = data.data();
    rows.indices = indices.data();
    rows.row_start = row_start.data();
    rows.n_rows = static_cast<std::int64_t>(row_start.shape(0)) - 1;
    rows.n_stored = static_cast<std::int64_t>(data.shape(0));
    rows.d = d;
    return rows;
}

// The scaler of a model's fields; arrays of d numbers.
inline RowScaling read_scaling(const nb::dict& fields, int d) {
    RowScaling scaling;
    const int form = get<int>(fields, "scaling_form");
    if (form == 0) return scaling;
    scaling.form = static_cast<ScalingForm>(form);
    scaling.shift = array<double>(fields, "scaling_shift", d);
    scaling.factor = array<double>(fields, "scaling_factor", d);
    scaling.low = get<double>(fields, "scaling_low");
    scaling.high = get<double>(fields, "scaling_high");
    return scaling;
}

// Scores and classes must fit the rule: votes are counted into an array of classes.
inline void check_rule(const Machine& vote) {
    const int rule = static_cast<int>(vote.rule);
    require(rule >= 0 && rule <= 3, "the rule does not exist");
    if (vote.rule == Rule::pairs)
        require(2 * vote.n_scores == vote.n_classes * (vote.n_classes - 1), "scores and classes disagree");
    if (vote.rule == Rule::argmax) require(vote.n_scores == vote.n_classes, "scores and classes disagree");
    if (vote.rule == Rule::sign) require(vote.n_scores == 1, "a sign needs one score");
}

inline int padded_to_lanes(int n) {
    return (n + kTreeLanes - 1) / kTreeLanes * kTreeLanes;
}

inline void require_finite(const float* values, std::int64_t n, const char* message) {
    require(std::all_of(values, values + n, [](float x) { return std::isfinite(x); }), message);
}

// What decides a label: rule, n_scores, n_classes, break_ties.
inline Machine read_vote(const nb::dict& fields) {
    Machine vote;
    vote.rule = static_cast<Rule>(get<int>(fields, "rule"));
    vote.n_scores = get<int>(fields, "n_scores");
    vote.n_classes = get<int>(fields, "n_classes");
    vote.break_ties = get<bool>(fields, "break_ties");
    require(vote.n_scores >= 1 && vote.n_classes >= 0, "a machine has at least one score");
    check_rule(vote);
    return vote;
}

// Scores of a leaf rounded up to whole lanes, 0 with a single score.
inline int read_padded(const nb::dict& fields, int n_scores) {
    const int padded = get<int>(fields, "padded");
    require(n_scores == 1 ? padded == 0 : padded >= n_scores && padded % kTreeLanes == 0,
            "padded and n_scores disagree");
    return padded;
}

// The guard of a stage whose rows are packed `stride` apart. `far` receives what it points to.
PackedGuard read_guard(const nb::dict& fields, int d, int stride, std::vector<std::int32_t>& far);

// Rows settled, first bad row or -1, its fault.
using StageTuple = std::tuple<std::int64_t, std::int64_t, int>;
inline StageTuple as_tuple(const StageOutcome& o) {
    return {o.settled, o.bad_row, static_cast<int>(o.fault)};
}

inline const HotTable& level_table(const std::string& level) {
    const HotTable* hot = find_level(level);
    if (hot == nullptr) throw nb::value_error(("instruction level '" + level + "' is not available here").c_str());
    return *hot;
}

void bind_rows(nb::module_& m);
void bind_settled(nb::module_& m);
void bind_tree(nb::module_& m);
void bind_lists(nb::module_& m);
void bind_paths(nb::module_& m);
void bind_chains(nb::module_& m);
void bind_hinges(nb::module_& m);
void bind_training(nb::module_& m);
void bind_local_stage(nb::module_& m);
void bind_local(nb::module_& m);
void bind_neighbours(nb::module_& m);
void bind_guard(nb::module_& m);
void bind_cascade_parts(nb::module_& m);
void bind_cascade(nb::module_& m);

}  // namespace svelto::binding
