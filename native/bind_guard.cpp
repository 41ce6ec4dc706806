// The guard of a cascade, for Python: checks shapes once, lets the interpreter go, computes nothing.
#include <cmath>
#include <vector>

#include "binding.hpp"
#include "cascade_parts.hpp"
#include "guard.hpp"

namespace svelto::binding {
namespace {

using Marks = nb::ndarray<bool, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void read_grids(const nb::dict& fields, Guard& g) {
    g.grid_tolerance = get<double>(fields, "grid_tolerance");
    require(g.grid_tolerance >= 0.0, "grid_tolerance is negative or no number");
    g.gridded = g.grid_tolerance < 0.5;  // nothing is farther from a whole number
    if (!g.gridded) return;
    g.grid_scale = aligned<double>(fields, "grid_scale", g.padded);
    g.grid_origin = aligned<double>(fields, "grid_origin", g.padded);
    for (int k = 0; k < g.padded; ++k) {
        require(std::isfinite(g.grid_scale[k]) && std::isfinite(g.grid_origin[k]), "a grid is not finite");
        require(k < g.d || (g.grid_scale[k] == 0.0 && g.grid_origin[k] == 0.0), "the padding of the grids is not zero");
    }
}

bool zero_is_off(const Guard& g, int k) {
    if (!g.gridded) return false;
    const double place = (0.0 - g.grid_origin[k]) * g.grid_scale[k];
    return !(std::abs(place - std::nearbyint(place)) <= g.grid_tolerance);
}

// `far` is what the guard points to besides the arrays of its fields.
Guard read_guard(const nb::dict& fields, std::vector<std::int32_t>& far) {
    Guard g;
    g.d = get<int>(fields, "d");
    g.n_balls = get<int>(fields, "n_balls");
    g.box_limit = get<double>(fields, "box_limit");
    require(g.d >= 1 && g.d < (1 << 30), "d is out of range");
    require(g.box_limit >= 0.0 && std::isfinite(g.box_limit), "box_limit is negative or not finite");
    require(g.n_balls >= 1 && g.n_balls <= kGuardLanes, "the number of balls is out of range");
    g.padded = (g.d + kGuardLanes - 1) / kGuardLanes * kGuardLanes;
    g.low = aligned<double>(fields, "low", g.padded);
    g.high = aligned<double>(fields, "high", g.padded);
    read_grids(fields, g);
    far.clear();
    for (int k = 0; k < g.padded; ++k) {
        if (k < g.d) {
            require(std::isfinite(g.low[k]) && std::isfinite(g.high[k]), "the box is not finite");
            if (!(g.low[k] <= 0.0 && g.high[k] >= 0.0) || zero_is_off(g, k)) far.push_back(k);
        } else {
            require(g.low[k] == -INFINITY && g.high[k] == INFINITY, "the padding of the box is bounded");
        }
    }
    far.push_back(g.d);
    g.far = far.data();
    g.centres = aligned<double>(fields, "centres", std::int64_t{g.n_balls} * g.padded);
    g.limit = array<double>(fields, "limit", g.n_balls);
    g.columns = aligned<double>(fields, "columns", std::int64_t{g.d} * kGuardLanes);
    g.shifted_limit = array<double>(fields, "shifted_limit", kGuardLanes);
    g.direction_limit = get<double>(fields, "direction_limit");
    require(g.direction_limit >= 0.0, "direction_limit is negative or no number");
    g.directed = std::isfinite(g.direction_limit);
    if (g.directed) {
        g.directions = aligned<double>(fields, "directions", std::int64_t{g.d} * kGuardLanes);
        g.offset = aligned<double>(fields, "offset", kGuardLanes);
    }
    if (get<int>(fields, "scaling_form") == 0) return g;
    g.before = aligned<double>(fields, "before", g.padded);
    g.factor = aligned<double>(fields, "factor", g.padded);
    g.after = aligned<double>(fields, "after", g.padded);
    g.clip_low = get<double>(fields, "scaling_low");
    g.clip_high = get<double>(fields, "scaling_high");
    return g;
}

class GuardObject final : public RowMarker {
  public:
    GuardObject(nb::dict fields, const std::string& level)
        : fields_(std::move(fields)),
          guard_(read_guard(fields_, far_)),
          hot_(level_table(level)),
          scaling_(read_scaling(fields_, guard_.d)) {}

    int width() const noexcept override { return guard_.d; }
    StageOutcome mark(const RowSource& rows, int n_threads, std::uint8_t* outside) const override {
        return mark_rows(guard_, hot_, rows, n_threads, outside);
    }

    StageTuple mark_dense(const AnyMatrix& X, Marks out, bool scale, int n_threads) const {
        return mark_into(prepared(dense_source(X), scale), out, n_threads);
    }
    StageTuple mark_csr(const AnyVector& data, const AnyVector& indices, const AnyVector& row_start, Marks out,
                        int n_threads) const {
        return mark_into(csr_source(data, indices, row_start, guard_.d), out, n_threads);
    }

  private:
    RowSource prepared(RowSource rows, bool scale) const {
        require(rows.d == guard_.d, "rows and guard disagree in width");
        if (scale) rows.scaling = scaling_;
        return rows;
    }
    StageTuple mark_into(const RowSource& rows, Marks& out, int n_threads) const {
        require(static_cast<std::int64_t>(out.shape(0)) == rows.n_rows, "out and rows disagree in length");
        static_assert(sizeof(bool) == sizeof(std::uint8_t));
        auto* marks = reinterpret_cast<std::uint8_t*>(out.data());
        const nb::gil_scoped_release nogil;
        return as_tuple(mark(rows, n_threads, marks));
    }

    nb::dict fields_;
    std::vector<std::int32_t> far_;
    Guard guard_;
    const HotTable& hot_;
    RowScaling scaling_;
};

}  // namespace

void bind_guard(nb::module_& m) {
    m.attr("GUARD_LANES") = kGuardLanes;
    nb::class_<GuardObject, RowMarker>(m, "Guard")
        .def(nb::init<nb::dict, const std::string&>(), "fields"_a, "level"_a)
        .def("mark_dense", &GuardObject::mark_dense, "X"_a.noconvert(), "out"_a.noconvert(), "scale"_a, "n_threads"_a)
        .def("mark_csr", &GuardObject::mark_csr, "data"_a.noconvert(), "indices"_a.noconvert(),
             "row_start"_a.noconvert(), "out"_a.noconvert(), "n_threads"_a);
}

}  // namespace svelto::binding
