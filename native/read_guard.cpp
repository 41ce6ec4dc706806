// The guard of a stage, read from the arrays that Python made of it.
#include <algorithm>
#include <cmath>
#include <limits>

#include "binding.hpp"
#include "packed_guard.hpp"

namespace svelto::binding {
namespace {

float read_float(const nb::dict& fields, const char* name) {
    const double value = get<double>(fields, name);
    require(std::isfinite(value) && static_cast<double>(static_cast<float>(value)) == value, "a limit is no float");
    return static_cast<float>(value);
}

// A dot product of d + 1 terms is off by at most about d + 1 units of rounding times the sum of their sizes, in any
// order; twice that lies between two orders, and as much again is left free.
float sure_direction_limit(const PackedGuard& g) {
    constexpr double kUnit = 0.5 * std::numeric_limits<float>::epsilon();
    const double beyond = 1.001 * std::sqrt(std::max(static_cast<double>(g.outer_box_limit), 0.0));
    double sq_slack = 0.0;
    for (int j = 0; j < kGuardLanes; ++j) {
        double size = std::abs(static_cast<double>(g.offset[j]));
        for (int k = 0; k < g.d; ++k) {
            const double edge =
                std::max(std::abs(static_cast<double>(g.low[k])), std::abs(static_cast<double>(g.high[k])));
            size += (edge + beyond) * std::abs(static_cast<double>(g.directions[k * kGuardLanes + j]));
        }
        sq_slack += size * size;
    }
    const double sure =
        std::sqrt(static_cast<double>(g.direction_limit)) - 4.0 * kUnit * (g.d + 2) * std::sqrt(sq_slack);
    return sure > 0.0 ? static_cast<float>(0.9999 * sure * sure) : -1.0f;
}

void read_directions(const nb::dict& fields, PackedGuard& g) {
    g.direction_limit = read_float(fields, "direction_limit");
    g.outer_direction_limit = read_float(fields, "outer_direction_limit");
    require(g.direction_limit <= g.outer_direction_limit, "the core of the guard is not inside it");
    g.directed = g.direction_limit < std::numeric_limits<float>::max();
    if (!g.directed) return;
    g.directions = aligned<float>(fields, "directions", std::int64_t{g.d} * kGuardLanes);
    g.offset = aligned<float>(fields, "offset", kGuardLanes);
    require_finite(g.directions, std::int64_t{g.d} * kGuardLanes, "a direction of the guard is not finite");
    require_finite(g.offset, kGuardLanes, "an offset of the guard is not finite");
    g.sure_direction_limit = sure_direction_limit(g);
}

void read_grids(const nb::dict& fields, int padded, PackedGuard& g) {
    g.grid_tolerance = read_float(fields, "grid_tolerance");
    g.sure_tolerance = read_float(fields, "sure_tolerance");
    require(g.sure_tolerance <= g.grid_tolerance, "the guard's tolerances are out of order");
    g.gridded = g.grid_tolerance < 0.5f;  // nothing is farther from a whole number
    if (!g.gridded) return;
    g.grid_scale = aligned<float>(fields, "grid_scale", padded);
    g.grid_start = aligned<float>(fields, "grid_start", padded);
    for (const float* values : {g.grid_scale, g.grid_start}) {
        require_finite(values, padded, "a grid of the guard is not finite");
        require(std::all_of(values + g.d, values + padded, [](float x) { return x == 0.0f; }),
                "the padding of the guard is not zero");
    }
    for (int k = 0; k < g.d; ++k) {
        const float* at = g.columns + std::int64_t{k} * kGuardColumns + kGuardLanes;
        require(at[2] == g.grid_start[k] && at[4] == -1.0f && at[5] == 1.0f && at[6] == g.grid_scale[k],
                "the guard's columns and grids disagree");
    }
}

bool zero_is_off(const PackedGuard& g, int k) {
    return g.gridded && !(std::abs(g.grid_start[k] - std::nearbyint(g.grid_start[k])) <= g.grid_tolerance);
}

}  // namespace

PackedGuard read_guard(const nb::dict& fields, int d, int stride, std::vector<std::int32_t>& far) {
    PackedGuard g;
    const int padded = padded_to_lanes(d);
    g.d = d;
    g.stride = stride;
    g.low = aligned<float>(fields, "low", padded);
    g.high = aligned<float>(fields, "high", padded);
    g.first = aligned<float>(fields, "first", padded);
    g.sure_low = aligned<float>(fields, "sure_low", padded);
    g.sure_high = aligned<float>(fields, "sure_high", padded);
    g.columns = aligned<float>(fields, "columns", std::int64_t{d} * kGuardColumns);
    g.bias = aligned<float>(fields, "bias", kGuardLanes);
    g.slack = aligned<float>(fields, "outer_slack", kGuardLanes);
    require_finite(g.slack, kGuardLanes, "a ball of the guard is not finite");
    require(std::all_of(g.slack, g.slack + kGuardLanes, [](float x) { return x >= 0.0f; }),
            "the core of the guard is not inside it");
    for (const float* values : {g.low, g.high, g.first, g.sure_low, g.sure_high}) {
        require_finite(values, padded, "the guard's box or ball is not finite");
        require(std::all_of(values + d, values + padded, [](float x) { return x == 0.0f; }),
                "the padding of the guard is not zero");
    }
    require_finite(g.columns, std::int64_t{d} * kGuardColumns, "a column of the guard is not finite");
    read_grids(fields, padded, g);
    for (int k = 0; k < d; ++k) {
        const float* edges = g.columns + std::int64_t{k} * kGuardColumns + kGuardLanes;
        require(edges[0] == g.sure_low[k] && edges[1] == -g.sure_high[k], "the guard's columns and box disagree");
        if (!(g.low[k] <= 0.0f && g.high[k] >= 0.0f) || zero_is_off(g, k)) far.push_back(k);
    }
    far.push_back(d);
    g.far = far.data();
    g.box_limit = read_float(fields, "box_limit");
    g.outer_box_limit = read_float(fields, "outer_box_limit");
    require(g.box_limit <= g.outer_box_limit, "the core of the guard is not inside it");
    g.first_limit = read_float(fields, "first_limit");
    read_directions(fields, g);
    return g;
}

}  // namespace svelto::binding
