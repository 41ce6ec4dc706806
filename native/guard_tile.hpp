// The guard of a cascade: box and balls, one pass over a row, then grids, if there are any, and the directions of a few
// rows side by side.
//
// Two differences and two multiply-adds a feature for a row that the first ball holds; a multiply-add for each further
// ball that is asked, and one for each direction. No fused operations: which rows are outside does not depend on the
// instruction level.
#pragma once

#include "guard.hpp"
#include "pack_tile.hpp"
#include "simd.hpp"

namespace svelto::SVELTO_NAMESPACE {
namespace {

constexpr int kGuardParts = kGuardLanes / kLanes<double>;

struct GuardGroup {
    VecD part[kGuardParts];
};

[[gnu::always_inline]] inline GuardGroup guard_constants(const double* from) {
    GuardGroup group;
    for (int p = 0; p < kGuardParts; ++p) group.part[p] = load(from + p * kLanes<double>);
    return group;
}

// n values, zeros behind them.
template <class T>
[[gnu::always_inline]] inline GuardGroup guard_values(const T* from, std::ptrdiff_t stride, int n) {
    GuardGroup group;
    if (n == kGuardLanes && stride == 1) {
        for (int p = 0; p < kGuardParts; ++p) group.part[p] = read_doubles(from + p * kLanes<double>);
        return group;
    }
    alignas(64) double values[kGuardLanes] = {};
    for (int i = 0; i < n; ++i) values[i] = static_cast<double>(from[i * stride]);
    return guard_constants(values);
}

// One feature group of a row as the machine sees it; lanes behind n are zero.
[[gnu::always_inline]] inline void scale_group(const Guard& guard, int k, int n, GuardGroup& x) {
    alignas(64) static constexpr std::int64_t kMask[2 * kGuardLanes] = {-1, -1, -1, -1, -1, -1, -1, -1};
    for (int p = 0; p < kGuardParts; ++p) {
        const int at = k + p * kLanes<double>;
        VecD z = (x.part[p] - load(guard.before + at)) * load(guard.factor + at) + load(guard.after + at);
        z = z < guard.clip_low ? broadcast(guard.clip_low) : z;  // NaN stays NaN
        z = z > guard.clip_high ? broadcast(guard.clip_high) : z;
        VecL mask;
        __builtin_memcpy(&mask, kMask + kGuardLanes - n + p * kLanes<double>, sizeof mask);
        x.part[p] = reinterpret_cast<VecD>(reinterpret_cast<VecL>(z) & mask);
    }
}

[[gnu::always_inline]] inline double guard_sum(const GuardGroup& sums) {
    alignas(64) double lane[kGuardLanes];
    __builtin_memcpy(lane, &sums, sizeof lane);
    for (int width = kGuardLanes / 2; width > 0; width /= 2)
        for (int i = 0; i < width; ++i) lane[i] += lane[i + width];
    return lane[0];
}

template <bool kScaled, class T>
[[gnu::always_inline]] inline double ball_distance(const Guard& guard, const double* centre, const T* row,
                                                   std::ptrdiff_t stride) {
    GuardGroup sums = {};
    for (int k = 0; k < guard.d; k += kGuardLanes) {
        const int n = guard.d - k < kGuardLanes ? guard.d - k : kGuardLanes;
        GuardGroup x = guard_values(row + k * stride, stride, n);
        if constexpr (kScaled) scale_group(guard, k, n, x);
        for (int p = 0; p < kGuardParts; ++p) {
            const VecD difference = x.part[p] - load(centre + k + p * kLanes<double>);
            sums.part[p] += difference * difference;
        }
    }
    return guard_sum(sums);
}

// Whether a feature of a row that is near the box is between two points of its grid.
template <bool kScaled, class T>
[[gnu::always_inline]] inline bool off_grid(const Guard& guard, const T* row, std::ptrdiff_t stride) {
    VecD most = {};
    for (int k = 0; k < guard.d; k += kGuardLanes) {
        const int n = guard.d - k < kGuardLanes ? guard.d - k : kGuardLanes;
        GuardGroup x = guard_values(row + k * stride, stride, n);
        if constexpr (kScaled) scale_group(guard, k, n, x);
        for (int p = 0; p < kGuardParts; ++p) {
            const int at = k + p * kLanes<double>;
            const VecD place = (x.part[p] - load(guard.grid_origin + at)) * load(guard.grid_scale + at);
            most = vmax(most, vabs(place - vround(place)));
        }
    }
    for (int i = 0; i < kLanes<double>; ++i)
        if (!(most[i] <= guard.grid_tolerance)) return true;
    return false;
}

template <bool kScaled, class T>
[[gnu::always_inline]] inline bool dense_outside(const Guard& guard, const T* row, std::ptrdiff_t stride) {
    GuardGroup sums = {}, gaps = {};
    VecL bits = {};
    for (int k = 0; k < guard.d; k += kGuardLanes) {
        const int n = guard.d - k < kGuardLanes ? guard.d - k : kGuardLanes;
        GuardGroup x = guard_values(row + k * stride, stride, n);
        if constexpr (kScaled) {
            // An infinity may be clipped to a number; x - x is 0 for finite x alone, and only 0 has no bit set.
            for (int p = 0; p < kGuardParts; ++p) bits |= reinterpret_cast<VecL>(x.part[p] - x.part[p]);
            scale_group(guard, k, n, x);
        }
        for (int p = 0; p < kGuardParts; ++p) {
            const int at = k + p * kLanes<double>;
            const VecD difference = x.part[p] - load(guard.centres + at);
            const VecD gap = vmax(VecD{}, vmax(load(guard.low + at) - x.part[p], x.part[p] - load(guard.high + at)));
            sums.part[p] += difference * difference;
            gaps.part[p] += gap * gap;  // NaN stays NaN
        }
    }
    std::int64_t bit = 0;
    for (int i = 0; i < kLanes<double>; ++i) bit |= bits[i];
    if (!(guard_sum(gaps) <= guard.box_limit) || bit != 0) return true;
    if (guard.gridded && off_grid<kScaled>(guard, row, stride)) return true;
    if (guard_sum(sums) <= guard.limit[0]) return false;
    for (int c = 1; c < guard.n_balls; ++c) {
        const double* centre = guard.centres + static_cast<std::ptrdiff_t>(c) * guard.padded;
        if (ball_distance<kScaled>(guard, centre, row, stride) <= guard.limit[c]) return false;
    }
    return true;
}

// One feature's share of the dot products with all directions.
[[gnu::always_inline]] inline void step_along(const Guard& guard, std::int64_t feature, double x, GuardGroup& along) {
    for (int p = 0; p < kGuardParts; ++p)
        along.part[p] += x * load(guard.directions + feature * kGuardLanes + p * kLanes<double>);
}

[[gnu::always_inline]] inline GuardGroup start_along(const Guard& guard) {
    GuardGroup along = guard_constants(guard.offset);
    for (int p = 0; p < kGuardParts; ++p) along.part[p] = -along.part[p];
    return along;
}

[[gnu::always_inline]] inline bool far_along(const Guard& guard, GuardGroup along) {
    for (int p = 0; p < kGuardParts; ++p) along.part[p] *= along.part[p];
    return !(guard_sum(along) <= guard.direction_limit);
}

// Rows that add up side by side, so that none waits for its last addition.
constexpr int kAlongRows = 4;

// The directions for n rows, at most kAlongRows.
template <bool kScaled, class T>
[[gnu::always_inline]] inline void mark_along(const Guard& guard, const T* rows, std::ptrdiff_t row_stride,
                                              std::ptrdiff_t stride, int n, std::uint8_t* outside) {
    const T* row[kAlongRows];
    GuardGroup along[kAlongRows];
    for (int r = 0; r < kAlongRows; ++r) {
        row[r] = rows + (r < n ? r : 0) * row_stride;
        along[r] = start_along(guard);
    }
    for (int k = 0; k < guard.d; k += kGuardLanes) {
        const int group = guard.d - k < kGuardLanes ? guard.d - k : kGuardLanes;
        alignas(64) double x[kAlongRows][kGuardLanes];
        for (int r = 0; r < kAlongRows; ++r) {
            GuardGroup values = guard_values(row[r] + k * stride, stride, group);
            if constexpr (kScaled) scale_group(guard, k, group, values);
            __builtin_memcpy(x[r], &values, sizeof values);
        }
        for (int i = 0; i < group; ++i)
            for (int r = 0; r < kAlongRows; ++r) step_along(guard, k + i, x[r][i], along[r]);
    }
    for (int r = 0; r < n; ++r) outside[r] |= static_cast<std::uint8_t>(far_along(guard, along[r]));
}

template <bool kScaled, class T>
[[gnu::always_inline]] inline void mark_strided(const Guard& guard, const T* row, std::ptrdiff_t row_stride,
                                                std::ptrdiff_t stride, int n, std::uint8_t* outside) {
    for (int i = 0; i < n; ++i) outside[i] = dense_outside<kScaled>(guard, row + i * row_stride, stride);
    if (!guard.directed) return;
    for (int i = 0; i < n; i += kAlongRows) {
        const int few = n - i < kAlongRows ? n - i : kAlongRows;
        mark_along<kScaled>(guard, row + i * row_stride, row_stride, stride, few, outside + i);
    }
}

template <bool kScaled, class T>
inline void mark_dense(const Guard& guard, const RowSource& rows, std::int64_t first, int n, std::uint8_t* outside) {
    const T* row = static_cast<const T*>(rows.data) + static_cast<std::ptrdiff_t>(first) * rows.row_stride;
    if (rows.col_stride == 1) return mark_strided<kScaled>(guard, row, rows.row_stride, 1, n, outside);
    mark_strided<kScaled>(guard, row, rows.row_stride, rows.col_stride, n, outside);
}

[[gnu::always_inline]] inline double square_gap(const Guard& guard, std::int64_t feature, double x) {
    const double below = guard.low[feature] - x, above = x - guard.high[feature];
    const double gap = below > above ? below : above;  // NaN stays NaN
    if (guard.gridded) {
        constexpr double kMagic = 6755399441055744.0;  // as in vround
        const double place = (x - guard.grid_origin[feature]) * guard.grid_scale[feature];
        const double off = place - ((place + kMagic) - kMagic);
        if (off > guard.grid_tolerance || -off > guard.grid_tolerance) return __builtin_inf();
    }
    return gap <= 0.0 ? 0.0 : gap * gap;
}

// Columns must be in order and inside the row, or the row cannot be read and is outside.
template <class T, class Index>
[[gnu::always_inline]] inline bool stored_outside(const Guard& guard, const T* values, const Index* columns,
                                                  std::int64_t n) {
    GuardGroup products = {}, along = {};
    if (guard.directed) along = start_along(guard);
    double sq_norm = 0.0, box = 0.0;
    std::int64_t previous = -1;
    const std::int32_t* far = guard.far;  // absent features whose zero leaves the box count as well
    for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t column = columns[i];
        if (column <= previous || column >= guard.d) return true;
        previous = column;
        const double x = static_cast<double>(values[i]);
        for (; *far < column; ++far) box += square_gap(guard, *far, 0.0);
        far += *far == column;
        box += square_gap(guard, column, x);
        sq_norm += x * x;
        for (int p = 0; p < kGuardParts; ++p)
            products.part[p] += x * load(guard.columns + column * kGuardLanes + p * kLanes<double>);
        if (guard.directed) step_along(guard, column, x, along);
    }
    for (; *far < guard.d; ++far) box += square_gap(guard, *far, 0.0);
    if (!(box <= guard.box_limit) || (guard.directed && far_along(guard, along))) return true;
    alignas(64) double product[kGuardLanes];
    __builtin_memcpy(product, &products, sizeof product);
    for (int c = 0; c < guard.n_balls; ++c)
        if (sq_norm - 2.0 * product[c] <= guard.shifted_limit[c]) return false;
    return true;
}

template <class T, class Index>
inline void mark_stored(const Guard& guard, const RowSource& rows, std::int64_t first, int n, std::uint8_t* outside) {
    const Index* start = static_cast<const Index*>(rows.row_start) + first;
    for (int i = 0; i < n; ++i) {
        const std::int64_t from = start[i], to = start[i + 1];
        outside[i] = from < 0 || to < from || to > rows.n_stored ||
                     stored_outside(guard, static_cast<const T*>(rows.data) + from,
                                    static_cast<const Index*>(rows.indices) + from, to - from);
    }
}

template <class T>
inline void mark_typed(const Guard& guard, const RowSource& rows, std::int64_t first, int n, std::uint8_t* outside) {
    if (rows.is_csr) {
        if (rows.wide_indices) return mark_stored<T, std::int64_t>(guard, rows, first, n, outside);
        return mark_stored<T, std::int32_t>(guard, rows, first, n, outside);
    }
    if (rows.scaling.form == ScalingForm::none) return mark_dense<false, T>(guard, rows, first, n, outside);
    mark_dense<true, T>(guard, rows, first, n, outside);
}

void mark_outside(const Guard& guard, const RowSource& rows, std::int64_t first, int n,
                  std::uint8_t* outside) noexcept {
    if (rows.type == ElementType::float32) return mark_typed<float>(guard, rows, first, n, outside);
    mark_typed<double>(guard, rows, first, n, outside);
}

}  // namespace
}  // namespace svelto::SVELTO_NAMESPACE
