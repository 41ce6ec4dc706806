// Lists of panels in the order in which a region's rows should sum them, with bounds on what is left (paper S3, in
// blocks): rows of a region walk its list together, and stop as soon as the rest of the sum cannot change the label.
#pragma once

#include <cstdint>
#include <vector>

#include "runner.hpp"

namespace svelto {

// Regions are the cells of `centres`: float32 values in the units of the machine's float32 packing, exact by
// definition. Chunk c of a list is panels [chunk_start[c], chunk_start[c + 1]) of its order, ascending in each chunk;
// before chunk c, a row at distance at most reach[list][level] from the centre has scores within
//   partial score + [rest[list][c][level][0][score], rest[list][c][level][1][score]].
struct PanelLists {
    int n_lists = 0;
    int n_chunks = 0;
    int n_levels = 0;
    int n_centre_panels = 0;
    double check_cost = 0.0;                    // of looking for a row's label, in float32 panels
    const float* centres = nullptr;             // [n_lists][d]
    const float* centre_panels = nullptr;       // [n_centre_panels][d][panel width]
    const float* centre_const = nullptr;        // [n_centre_panels * panel width], |c|^2 / 2; padding: infinite
    const std::int32_t* chunk_start = nullptr;  // [n_chunks + 1]
    const std::int32_t* order = nullptr;        // [n_lists][chunk_start[n_chunks]]
    const double* reach = nullptr;              // [n_lists][n_levels], ascending
    const float* exponent = nullptr;            // [n_lists][n_chunks][n_levels], largest exponent of 2 in a chunk
    const float* rest = nullptr;                // [n_lists][n_chunks + 1][n_levels][2][n_scores]
};

// What is counted for a list: rows that walked it, rows it settled, panels they summed in float32 and in float64, rows
// that walked in float64, and how often a row's label was looked for.
enum Count : int { kRows, kSettled, kPanelsSingle, kPanelsDouble, kRowsDouble, kChecks, kCounts };

// A float64 panel costs about this many float32 ones of the same vectors.
constexpr double kDoubleCost = 3.0;

// What became of the rows, beside the outcome of the exact tiers for those that were left.
struct BoundedOutcome {
    Outcome rest;
    std::int64_t settled = 0;  // by a bound
    std::int64_t panels = 0;   // row times panel, summed in lists; a panel of 32 vectors in either precision
};

// How a list is walked.
constexpr std::uint8_t kNotWalked = 0;  // its rows go to the exact tiers at once
constexpr std::uint8_t kInSingle = 1;   // in float32, what rounding leaves open again in float64
constexpr std::uint8_t kInDouble = 2;   // in float64 at once

// Labels of all rows. `enabled[list]`: one of the above.
// `used`, where given, is added to, [n_lists][kCounts].
BoundedOutcome predict_bounded(const Machine& machine, const HotTable& hot, const PanelLists& lists,
                               const RowSource& rows, const std::uint8_t* enabled, Precision first, int n_threads,
                               std::int32_t* labels, std::int64_t* used);

}  // namespace svelto
