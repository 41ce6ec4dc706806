// The guard of a cascade: marks rows unlike those that the cascade was calibrated on.
#pragma once

#include <cstdint>

#include "rows.hpp"

namespace svelto {

// Features are read in groups of this many, whatever the level's vectors hold, so that sums have one order.
constexpr int kGuardLanes = 8;

// A row is inside if its squared distance to the box, the sum of max(low - x, x - high, 0)^2, is at most `box_limit`,
// no feature is off its grid, one of the balls holds it, and the sum of (direction.x - offset)^2 is at most
// `direction_limit`. Arrays by feature have `padded` places, d rounded up to whole groups; box, centres and directions
// are those of scaled rows.
struct Guard {
    int d = 0;
    int padded = 0;
    int n_balls = 0;  // at most kGuardLanes
    double box_limit = 0.0;
    const double* low = nullptr;      // [padded], the padding is (-inf, inf)
    const double* high = nullptr;     // [padded]
    const double* centres = nullptr;  // [n_balls][padded], the padding is 0
    const double* limit = nullptr;    // [n_balls], squared radius
    // For CSR rows: |x - c|^2 <= limit as |x|^2 - 2 x.c <= limit - |c|^2, for all balls at once.
    const double* columns = nullptr;        // [d][kGuardLanes], the centres
    const double* shifted_limit = nullptr;  // [kGuardLanes], -inf behind n_balls
    // [n_far + 1], features whose interval or grid does not hold zero, then d
    const std::int32_t* far = nullptr;
    // A feature is on its grid where u = (x - grid_origin) * grid_scale is no farther than grid_tolerance from a whole
    // number; a scale of 0 asks nothing. Rows that are near the box have places below 2^20.
    const double* grid_scale = nullptr;   // [padded], the padding is 0
    const double* grid_origin = nullptr;  // [padded]
    double grid_tolerance = 0.0;
    bool gridded = false;
    // At most kGuardLanes directions side by side, zeros where there are fewer; an infinite limit asks about none.
    const double* directions = nullptr;  // [d][kGuardLanes]
    const double* offset = nullptr;      // [kGuardLanes]
    double direction_limit = 0.0;
    bool directed = false;
    // A scaled feature is (x - before) * factor + after, clipped; [padded].
    const double* before = nullptr;
    const double* factor = nullptr;
    const double* after = nullptr;
    double clip_low = 0.0;
    double clip_high = 0.0;
};

struct HotTable;
struct StageOutcome;

// outside[row] = 1 where the guard does not know the row, 0 elsewhere. `settled` of the outcome counts the ones; rows
// that cannot be read are outside, and the first of them is named.
StageOutcome mark_rows(const Guard& guard, const HotTable& hot, const RowSource& rows, int n_threads,
                       std::uint8_t* outside);

}  // namespace svelto
