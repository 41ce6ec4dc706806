// The guard of a cascade for rows that are already packed as floats: which of them the stage may answer.
//
// Box, grids, balls and directions are those of the guard (guard.hpp), moved by the stage's shift and drawn in by more
// than rounding to floats can move a row: what is inside here is inside there. Limits are those of the guard's core,
// where ordinary rows are; the guard's own, `outer`, are wider, and rows between the two are on the rim.
#pragma once

#include <cstdint>

#include "guard.hpp"
#include "tree.hpp"

namespace svelto {

// Where a row is.
enum Place : std::uint8_t { kInCore = 0, kOnRim = 1, kOutside = 2 };

// Places of a feature in `columns`: a ball each, the two edges of the box and the place of zero on the grid, and what a
// value is multiplied by before these are added: -1, 1, and the grid's scale.
constexpr int kGuardColumns = 16;
static_assert(kGuardLanes + 8 <= kGuardColumns);

// Arrays by feature have d places rounded up to kTreeLanes; the padding is 0.
struct PackedGuard {
    int d = 0;
    int stride = 0;  // distance of two dense rows
    // A row is near the box where the sum of max(low - x, x - high, 0)^2 is at most box_limit, and in a ball where its
    // bias + sum of x (x - 2c) is at most 0, or the ball's slack for the outer one.
    const float* low = nullptr;
    const float* high = nullptr;
    float box_limit = 0.0f;
    float outer_box_limit = 0.0f;
    const float* columns = nullptr;     // [d][kGuardColumns]: -2c by ball, sure_low, -sure_high, grid_start, 0, ...
    const float* bias = nullptr;        // [kGuardLanes], infinite where there is no ball
    const float* slack = nullptr;       // [kGuardLanes]
    const std::int32_t* far = nullptr;  // features whose interval or grid does not hold zero, then d
    // A feature is on its grid where u = x grid_scale + grid_start is no farther than grid_tolerance from a whole
    // number; no order of these operations finds it off where u is as near as sure_tolerance. A scale of 0 asks
    // nothing.
    const float* grid_scale = nullptr;
    const float* grid_start = nullptr;
    float grid_tolerance = 0.0f;
    float sure_tolerance = 0.0f;
    bool gridded = false;
    // No order of those sums calls a row outside the core that has all its features between these edges and is as near
    // as this to the centre of the first ball, which holds most rows.
    const float* sure_low = nullptr;
    const float* sure_high = nullptr;
    const float* first = nullptr;
    float first_limit = 0.0f;
    // The sum of (direction.x - offset)^2 is at most direction_limit; the largest float asks about none.
    const float* directions = nullptr;  // [d][kGuardLanes], zeros where there are fewer
    const float* offset = nullptr;      // [kGuardLanes]
    float direction_limit = 0.0f;
    float outer_direction_limit = 0.0f;
    bool directed = false;
    // Where any order of that sum is at most this, no order of it is beyond direction_limit, for rows that are not
    // outside; negative where rounding leaves no room.
    float sure_direction_limit = -1.0f;
};

}  // namespace svelto
