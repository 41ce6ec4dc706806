// Where the rows that are packed as floats are: in the core of the guard, on its rim, or outside.
//
// Three sums decide: the squared distance to the box (infinite where a value is off its grid), bias + sum of x (x - 2c)
// for every ball, and the dot products with the directions. All run over the features in their order, and a zero
// changes none unless it leaves the box: rows that bring their stored features only get the verdict of the same rows
// with their zeros.
//
// Most dense rows need only the last, a small matrix product. With features as lanes it takes a fraction of the time to
// see that no feature is far from its interval and that the first ball holds the row, by more than rounding in any
// order could change.
#pragma once

#include "hinge_tile.hpp"
#include "packed_guard.hpp"
#include "simd.hpp"

namespace svelto::SVELTO_NAMESPACE {
namespace {

// Sums of all balls: a vector of eight floats, or two of four. Wider ones would be half empty and cost as much.
constexpr int kBallBytes = SVELTO_LEVEL > 0 ? 32 : 16;
constexpr int kBallParts = kGuardLanes * static_cast<int>(sizeof(float)) / kBallBytes;
typedef float BallPart __attribute__((vector_size(kBallBytes), may_alias));
typedef std::int32_t BallMask __attribute__((vector_size(kBallBytes), may_alias));
struct Balls {
    BallPart part[kBallParts];
};
// The edges of a feature's interval, and room for two more.
typedef float Edges __attribute__((vector_size(16), may_alias));
// Rows that add up side by side, so that none waits for its last addition.
constexpr int kBallRows = SVELTO_LEVEL == 2 ? 8 : 4;

// a * b + c, with one rounding where the level's fmadd has one.
[[gnu::always_inline]] inline BallPart fused(BallPart a, BallPart b, BallPart c) {
#if SVELTO_LEVEL > 0
    return reinterpret_cast<BallPart>(
        _mm256_fmadd_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b), reinterpret_cast<__m256>(c)));
#else
    return a * b + c;
#endif
}

[[gnu::always_inline]] inline Balls load_balls(const float* from) {
    Balls balls;
    for (int p = 0; p < kBallParts; ++p) balls.part[p] = reinterpret_cast<const BallPart*>(from)[p];
    return balls;
}

// One feature's share of the sums.
[[gnu::always_inline]] inline void add_feature(Balls& sum, BallPart x, const Balls& column) {
    for (int p = 0; p < kBallParts; ++p) sum.part[p] = fused(x, x + column.part[p], sum.part[p]);
}

[[gnu::always_inline]] inline bool any_at_most(const Balls& sum, const Balls& limit) {
    BallMask inside = sum.part[0] <= limit.part[0];
    for (int p = 1; p < kBallParts; ++p) inside |= sum.part[p] <= limit.part[p];
#if SVELTO_LEVEL > 0
    return _mm256_movemask_ps(reinterpret_cast<__m256>(inside)) != 0;
#else
    return any_lane(inside);
#endif
}

// Where sums put a row; a sum that is no number is outside.
[[gnu::always_inline]] inline Place place_by_balls(const PackedGuard& guard, const Balls& sum) {
    if (any_at_most(sum, Balls{})) return kInCore;
    return any_at_most(sum, load_balls(guard.slack)) ? kOnRim : kOutside;
}

[[gnu::always_inline]] inline Place place_by(float sum, float limit, float outer) {
    return sum <= limit ? kInCore : sum <= outer ? kOnRim : kOutside;
}

[[gnu::always_inline]] inline Place farther(Place a, Place b) {
    return a > b ? a : b;
}

// -- directions -------------------------------------------------------------------------------------------------------

[[gnu::always_inline]] inline Balls start_along(const PackedGuard& guard) {
    Balls along = load_balls(guard.offset);
    for (int p = 0; p < kBallParts; ++p) along.part[p] = -along.part[p];
    return along;
}

[[gnu::always_inline]] inline void step_along(Balls& along, BallPart x, const Balls& column) {
    for (int p = 0; p < kBallParts; ++p) along.part[p] = fused(x, column.part[p], along.part[p]);
}

[[gnu::always_inline]] inline Place place_along(const PackedGuard& guard, const Balls& along) {
#if SVELTO_LEVEL > 0
    const auto squares = reinterpret_cast<__m256>(along.part[0] * along.part[0]);
    const __m256 pairs = _mm256_hadd_ps(squares, squares), fours = _mm256_hadd_ps(pairs, pairs);  // as in far_bits
    const float sum = _mm256_cvtss_f32(fours) + _mm_cvtss_f32(_mm256_extractf128_ps(fours, 1));
#else
    const BallPart squares = along.part[0] * along.part[0] + along.part[1] * along.part[1];
    const float sum = (squares[0] + squares[2]) + (squares[1] + squares[3]);
#endif
    return place_by(sum, guard.direction_limit, guard.outer_direction_limit);
}

// Rows that add up side by side: as many sums as a vector unit works on at a time, or as there are registers for.
constexpr int kFarRows = SVELTO_LEVEL > 0 ? 8 : 4;

#if SVELTO_LEVEL > 0
// A bit for each of eight rows whose sum of lanes is not at most a limit; a sum that is no number is not.
[[gnu::always_inline]] inline unsigned beyond_bits(const BallPart (&lanes)[kFarRows], float limit) {
    static_assert(kFarRows == 8 && kBallParts == 1);
    const auto pair = [&lanes](int r) __attribute__((always_inline)) {
        return _mm256_hadd_ps(reinterpret_cast<__m256>(lanes[r]), reinterpret_cast<__m256>(lanes[r + 1]));
    };
    const __m256 four = _mm256_hadd_ps(pair(0), pair(2)), next = _mm256_hadd_ps(pair(4), pair(6));
    const __m256 sums = _mm256_add_ps(_mm256_permute2f128_ps(four, next, 0x20),  // lower and upper halves
                                      _mm256_permute2f128_ps(four, next, 0x31));
    return static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(sums, _mm256_set1_ps(limit), _CMP_NLE_UQ)));
}
#endif

// A bit for each of the rows that are not in the core.
[[gnu::always_inline]] inline unsigned far_bits(const PackedGuard& guard, const Balls (&along)[kFarRows]) {
#if SVELTO_LEVEL > 0
    BallPart squares[kFarRows];
    for (int r = 0; r < kFarRows; ++r) squares[r] = along[r].part[0] * along[r].part[0];
    return beyond_bits(squares, guard.direction_limit);
#else
    unsigned bits = 0;
    for (int r = 0; r < kFarRows; ++r) bits |= static_cast<unsigned>(place_along(guard, along[r]) != kInCore) << r;
    return bits;
#endif
}

// The sums that decide, of a few rows side by side.
[[gnu::always_inline]] inline void sum_along(const PackedGuard& guard, const float* const (&row)[kFarRows],
                                             Balls (&along)[kFarRows]) {
    for (int r = 0; r < kFarRows; ++r) along[r] = start_along(guard);
    for (int k = 0; k < guard.d; ++k) {
        const Balls column = load_balls(guard.directions + static_cast<std::ptrdiff_t>(k) * kGuardLanes);
#pragma GCC unroll 8
        for (int r = 0; r < kFarRows; ++r) step_along(along[r], row[r][k] - BallPart{}, column);
    }
}

#if SVELTO_LEVEL == 2
// A bit for each of the rows that might not be in the core. Two features share a vector, lane by lane, which takes half
// the time of the sums that decide and rounds in another order.
[[gnu::always_inline]] inline unsigned doubtful_bits(const PackedGuard& guard, const float* const (&row)[kFarRows]) {
    const __m512i beside = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    const auto spread = [&](__m512 two) { return _mm512_maskz_permutexvar_ps(0xffff, beside, two); };
    VecF along[kFarRows];
    const VecF start = reinterpret_cast<VecF>(spread(_mm512_maskz_loadu_ps(0x00ff, guard.offset)));
    for (int r = 0; r < kFarRows; ++r) along[r] = -start;
    int k = 0;
    for (; k + 1 < guard.d; k += 2) {
        const float* const columns = guard.directions + static_cast<std::ptrdiff_t>(k) * kGuardLanes;
        const VecF column = reinterpret_cast<VecF>(spread(_mm512_loadu_ps(columns)));
#pragma GCC unroll 8
        for (int r = 0; r < kFarRows; ++r) {
            double two;
            __builtin_memcpy(&two, row[r] + k, sizeof two);
            along[r] = fmadd(reinterpret_cast<VecF>(_mm512_set1_pd(two)), column, along[r]);
        }
    }
    if (k < guard.d) {
        const float* const columns = guard.directions + static_cast<std::ptrdiff_t>(k) * kGuardLanes;
        const VecF column = reinterpret_cast<VecF>(spread(_mm512_maskz_loadu_ps(0x00ff, columns)));
        for (int r = 0; r < kFarRows; ++r) along[r] = fmadd(broadcast(row[r][k]), column, along[r]);
    }
    BallPart squares[kFarRows];  // of each direction twice
#pragma GCC unroll 8
    for (int r = 0; r < kFarRows; ++r) {
        const auto sums = reinterpret_cast<__m512>(along[r]);
        const VecF both = along[r] + reinterpret_cast<VecF>(_mm512_maskz_permute_ps(0xffff, sums, 0xb1));
        const auto sq = reinterpret_cast<__m512>(both * both);
        squares[r] = reinterpret_cast<BallPart>(
            _mm256_add_ps(_mm512_maskz_extractf32x8_ps(0xff, sq, 0), _mm512_maskz_extractf32x8_ps(0xff, sq, 1)));
    }
    return beyond_bits(squares, 2.0f * guard.sure_direction_limit);
}
#endif

// Places of dense rows that are far out along the directions.
inline void mark_far_rows(const PackedGuard& guard, const TreeRows& rows, std::uint8_t* places) {
    for (int first = 0; first < rows.n; first += kFarRows) {
        const int n = rows.n - first < kFarRows ? rows.n - first : kFarRows;
        const float* row[kFarRows];
        for (int r = 0; r < kFarRows; ++r)
            row[r] = rows.dense + static_cast<std::ptrdiff_t>(first + (r < n ? r : 0)) * guard.stride;
#if SVELTO_LEVEL == 2
        if (guard.sure_direction_limit >= 0.0f && doubtful_bits(guard, row) == 0) continue;
#endif
        Balls along[kFarRows];
        sum_along(guard, row, along);
        if (far_bits(guard, along) == 0) continue;
        for (int r = 0; r < n; ++r)
            places[first + r] = farther(static_cast<Place>(places[first + r]), place_along(guard, along[r]));
    }
}

// -- the box ----------------------------------------------------------------------------------------------------------

// What a feature adds to the squared distance to the box.
[[gnu::always_inline]] inline float square_gap(const PackedGuard& guard, std::int32_t feature, float x) {
    const float below = guard.low[feature] - x, above = x - guard.high[feature];
    const float gap = below > above ? below : above;
    if (guard.gridded) {
        constexpr float kMagic = 12582912.0f;  // as in vround
        const float place = x * guard.grid_scale[feature] + guard.grid_start[feature];
        const float off = place - ((place + kMagic) - kMagic);
        if (off > guard.grid_tolerance || -off > guard.grid_tolerance) return __builtin_inff();
    }
    return gap <= 0.0f ? 0.0f : gap * gap;  // NaN stays NaN
}

inline Place place_by_box(const PackedGuard& guard, const float* row) {
    float sum = 0.0f;
    for (int k = 0; k < guard.d; ++k) sum += square_gap(guard, k, row[k]);
    return place_by(sum, guard.box_limit, guard.outer_box_limit);
}

// The same for stored features; absent ones count where zero leaves their interval.
inline Place place_by_box(const PackedGuard& guard, const StoredFeature* x, const StoredFeature* last) {
    float sum = 0.0f;
    const std::int32_t* far = guard.far;
    for (; x < last; ++x) {
        if (x->value == 0.0f) continue;  // as if absent; padding too
        for (; *far < x->feature; ++far) sum += square_gap(guard, *far, 0.0f);
        far += *far == x->feature;
        sum += square_gap(guard, x->feature, x->value);
    }
    for (; *far < guard.d; ++far) sum += square_gap(guard, *far, 0.0f);
    return place_by(sum, guard.box_limit, guard.outer_box_limit);
}

// -- dense rows -------------------------------------------------------------------------------------------------------

// What all rows are compared with, in registers where the features fill no more vectors than that.
constexpr int kMostHeld = SVELTO_LEVEL == 2 ? 4 : SVELTO_LEVEL == 1 ? 3 : 1;
template <int kVectors, bool kGridded>
struct SureBounds {
    VecF low[kVectors], high[kVectors], first[kVectors];
    VecF scale[kVectors], start[kVectors];  // of grids

    explicit SureBounds(const PackedGuard& guard) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
            low[v] = load(guard.sure_low + v * kLanes<float>);
            high[v] = load(guard.sure_high + v * kLanes<float>);
            first[v] = load(guard.first + v * kLanes<float>);
            if constexpr (!kGridded) continue;
            scale[v] = load(guard.grid_scale + v * kLanes<float>);
            start[v] = load(guard.grid_start + v * kLanes<float>);
        }
    }
};

// What is known about a row without the sums that decide.
struct SureSums {
    VecF over = {}, sq_dist = {};

    [[gnu::always_inline]] void add(VecF x, VecF low, VecF high, VecF first) {
        const VecF difference = x - first;
        over = vmax(over, vmax(low - x, x - high));
        sq_dist = fmadd(difference, difference, sq_dist);
    }
    [[gnu::always_inline]] void add_grid(VecF x, VecF scale, VecF start, float tolerance) {
        const VecF place = fmadd(x, scale, start);
        over = vmax(over, vabs(place - vround(place)) - tolerance);
    }
    // Whether a feature is far from its interval or off its grid.
    [[gnu::always_inline]] bool is_off_box() const { return any_lane(over > 0.0f); }
};

template <int kVectors, bool kGridded>
[[gnu::always_inline]] inline SureSums sure_sums(const PackedGuard& guard, const SureBounds<kVectors, kGridded>& bounds,
                                                 const float* row) {
    constexpr int kLast = (kVectors - 1) * kLanes<float>;
    SureSums sums;
    const auto add = [&](VecF x, int v) __attribute__((always_inline)) {
        sums.add(x, bounds.low[v], bounds.high[v], bounds.first[v]);
        if constexpr (kGridded) sums.add_grid(x, bounds.scale[v], bounds.start[v], guard.sure_tolerance);
    };
#pragma GCC unroll 4
    for (int v = 0; v + 1 < kVectors; ++v) add(load_any(row + v * kLanes<float>), v);
    add(load_first(row + kLast, guard.d - kLast), kVectors - 1);
    return sums;
}

template <bool kGridded>
[[gnu::always_inline]] inline SureSums sure_sums(const PackedGuard& guard, const float* row) {
    SureSums sums;
    const auto add = [&](VecF x, int k) __attribute__((always_inline)) {
        sums.add(x, load(guard.sure_low + k), load(guard.sure_high + k), load(guard.first + k));
        if constexpr (kGridded)
            sums.add_grid(x, load(guard.grid_scale + k), load(guard.grid_start + k), guard.sure_tolerance);
    };
    int k = 0;
    for (; k + kLanes<float> <= guard.d; k += kLanes<float>) add(load_any(row + k), k);
    if (k < guard.d) add(load_few(row + k, guard.d - k), k);
    return sums;
}

// Rows that are not surely in the core, each as twice its number, and one more where it is surely in the box.
class OpenRows {
  public:
    static constexpr int kAtOnce = 8;

    // Adds those of the rows [first, first + kAtOnce) whose bits are set. Without a branch: nobody can predict which.
    [[gnu::always_inline]] void add(int first, unsigned open, unsigned off_box) {
#if SVELTO_LEVEL == 2
        const __m256i number =
            _mm256_add_epi32(_mm256_set1_epi32(2 * first), _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14));
        const __m256i sure = _mm256_maskz_set1_epi32(static_cast<__mmask8>(~off_box), 1);
        const __m256i codes = _mm256_maskz_compress_epi32(static_cast<__mmask8>(open), _mm256_or_si256(number, sure));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(code_ + n_), codes);
        n_ += __builtin_popcount(open);
#else
        for (int r = 0; r < kAtOnce; ++r) {
            code_[n_] = 2 * (first + r) + static_cast<int>((off_box >> r & 1u) == 0);
            n_ += static_cast<int>(open >> r & 1u);
        }
#endif
    }
    bool is_full() const { return n_ > kRoom - kAtOnce; }

    // All of them by the sums that decide.
    void decide(const PackedGuard& guard, const TreeRows& rows, std::uint8_t* places) {
        for (int at = 0; at < n_; at += kBallRows) decide_few(guard, rows, at, places);
        n_ = 0;
    }

  private:
    static constexpr int kRoom = 64;

    void decide_few(const PackedGuard& guard, const TreeRows& rows, int at, std::uint8_t* places) const {
        const int n = n_ - at < kBallRows ? n_ - at : kBallRows;
        const float* row[kBallRows];
        Balls sum[kBallRows];
        for (int r = 0; r < kBallRows; ++r) {
            row[r] = rows.dense + static_cast<std::ptrdiff_t>(code_[at + (r < n ? r : 0)] >> 1) * guard.stride;
            sum[r] = load_balls(guard.bias);
        }
        for (int k = 0; k < guard.d; ++k) {
            const Balls column = load_balls(guard.columns + static_cast<std::ptrdiff_t>(k) * kGuardColumns);
#pragma GCC unroll 8
            for (int r = 0; r < kBallRows; ++r) add_feature(sum[r], row[r][k] - BallPart{}, column);
        }
        for (int r = 0; r < n; ++r) {
            const Place by_balls = place_by_balls(guard, sum[r]);
            // Where nobody is near the box, not even its own rows are.
            const bool is_known = ((code_[at + r] & 1) != 0 && guard.box_limit >= 0.0f) || by_balls == kOutside;
            places[code_[at + r] >> 1] = is_known ? by_balls : farther(by_balls, place_by_box(guard, row[r]));
        }
    }

    std::int32_t code_[kRoom];
    int n_ = 0;
};

// A bit for each row whose lanes may add up to more than a limit, or to no number.
[[gnu::always_inline]] inline unsigned bits_beyond(const VecF (&lanes)[OpenRows::kAtOnce], float limit) {
#if SVELTO_LEVEL > 0
    BallPart part[kFarRows];
#pragma GCC unroll 8
    for (int r = 0; r < kFarRows; ++r) {
#if SVELTO_LEVEL == 2
        const auto whole = reinterpret_cast<__m512>(lanes[r]);
        part[r] = reinterpret_cast<BallPart>(
            _mm256_add_ps(_mm512_maskz_extractf32x8_ps(0xff, whole, 0), _mm512_maskz_extractf32x8_ps(0xff, whole, 1)));
#else
        part[r] = reinterpret_cast<BallPart>(lanes[r]);
#endif
    }
    return beyond_bits(part, limit);
#else
    unsigned bits = 0;
    for (int r = 0; r < OpenRows::kAtOnce; ++r) {
        const VecF sum = lanes[r];
        bits |= static_cast<unsigned>(!((sum[0] + sum[2]) + (sum[1] + sum[3]) <= limit)) << r;
    }
    return bits;
#endif
}

// ask(row): its sums.
template <class Ask>
inline void mark_rows_by(const PackedGuard& guard, const TreeRows& rows, std::uint8_t* places, Ask ask) {
    constexpr int kAtOnce = OpenRows::kAtOnce;
    OpenRows open;
    for (int first = 0; first < rows.n; first += kAtOnce) {
        const int n = rows.n - first < kAtOnce ? rows.n - first : kAtOnce;
        VecF sq_dist[kAtOnce];
        unsigned off_box = 0;
#pragma GCC unroll 8
        for (int r = 0; r < kAtOnce; ++r) {
            const SureSums sums = ask(rows.dense + static_cast<std::ptrdiff_t>(first + (r < n ? r : 0)) * guard.stride);
            sq_dist[r] = sums.sq_dist;
            off_box |= static_cast<unsigned>(sums.is_off_box()) << r;
        }
        const unsigned asked = (1u << n) - 1u;
        for (int r = 0; r < n; ++r) places[first + r] = kInCore;
        open.add(first, (off_box | bits_beyond(sq_dist, guard.first_limit)) & asked, off_box);
        if (open.is_full()) open.decide(guard, rows, places);
    }
    open.decide(guard, rows, places);
}

template <int kVectors, bool kGridded>
inline void mark_dense_rows(const PackedGuard& guard, const TreeRows& rows, std::uint8_t* places) {
    if constexpr (kVectors > kMostHeld) {
        mark_rows_by(guard, rows, places,
                     [&](const float* row) __attribute__((always_inline)) { return sure_sums<kGridded>(guard, row); });
    } else {
        if (guard.d > kVectors * kLanes<float>) return mark_dense_rows<kVectors + 1, kGridded>(guard, rows, places);
        const SureBounds<kVectors, kGridded> bounds(guard);
        mark_rows_by(guard, rows, places, [&](const float* row) __attribute__((always_inline)) {
            return sure_sums<kVectors, kGridded>(guard, bounds, row);
        });
    }
}

// -- stored features --------------------------------------------------------------------------------------------------

// The larger of `over` and how far x is below low and above high.
[[gnu::always_inline]] inline Edges larger_gap(Edges over, BallPart x, const float* edges) {
#if SVELTO_LEVEL > 0
    const __m128 gap =
        _mm_fmadd_ps(_mm256_castps256_ps128(reinterpret_cast<__m256>(x)), _mm_setr_ps(-1, 1, 0, 0), _mm_load_ps(edges));
    return reinterpret_cast<Edges>(_mm_max_ps(reinterpret_cast<__m128>(over), gap));
#else
    return vmax(over, x * Edges{-1.0f, 1.0f, 0.0f, 0.0f} + *reinterpret_cast<const Edges*>(edges));
#endif
}

// The larger of `over` and how far the place of x on its grid, the third lane, is beyond the tolerance.
[[gnu::always_inline]] inline Edges larger_grid_gap(Edges over, BallPart x, const float* edges, float tolerance) {
#if SVELTO_LEVEL > 0
    constexpr float kMagic = 12582912.0f;  // as in vround
    const Edges place = reinterpret_cast<Edges>(
        _mm_fmadd_ps(_mm256_castps256_ps128(reinterpret_cast<__m256>(x)), _mm_load_ps(edges + 4), _mm_load_ps(edges)));
    const Edges off = place - ((place + kMagic) - kMagic);
    const __m128 size = _mm_andnot_ps(_mm_set1_ps(-0.0f), reinterpret_cast<__m128>(off));
    return reinterpret_cast<Edges>(
        _mm_max_ps(reinterpret_cast<__m128>(over), _mm_sub_ps(size, _mm_set1_ps(tolerance))));
#else
    const Edges place = x * *reinterpret_cast<const Edges*>(edges + 4) + *reinterpret_cast<const Edges*>(edges);
    return vmax(over, vabs(place - vround(place)) - tolerance);
#endif
}

// How far a row is from the box needs to be known only where a feature is far from its interval or off its grid.
template <bool kDirected, bool kGridded>
inline void mark_stored_rows(const PackedGuard& guard, const TreeRows& rows, std::uint8_t* places) {
    const bool zero_leaves = *guard.far < guard.d;
    for (int i = 0; i < rows.n; ++i) {
        Balls sum = load_balls(guard.bias), along = {};
        if constexpr (kDirected) along = start_along(guard);
        Edges over = {}, off_grid = {};
        const StoredFeature *const begin = rows.stored + rows.start[i], *const last = rows.stored + rows.start[i + 1];
        for (const StoredFeature* feature = begin; feature < last; ++feature) {
            const float* column = guard.columns + static_cast<std::ptrdiff_t>(feature->feature) * kGuardColumns;
            const BallPart x = feature->value - BallPart{};
            add_feature(sum, x, load_balls(column));
            over = larger_gap(over, x, column + kGuardLanes);
            if constexpr (kGridded) off_grid = larger_grid_gap(off_grid, x, column + kGuardLanes, guard.sure_tolerance);
            if constexpr (kDirected) {
                const auto at = static_cast<std::ptrdiff_t>(feature->feature) * kGuardLanes;
                step_along(along, x, load_balls(guard.directions + at));
            }
        }
        bool far = over[0] > 0.0f || over[1] > 0.0f || zero_leaves;
        if constexpr (kGridded) far = far || off_grid[2] > 0.0f;
        const Place by_box =
            far ? place_by_box(guard, begin, last) : place_by(0.0f, guard.box_limit, guard.outer_box_limit);
        Place place = farther(by_box, place_by_balls(guard, sum));
        if constexpr (kDirected) place = farther(place, place_along(guard, along));
        places[i] = place;
    }
}

void place_rows(const PackedGuard& guard, const TreeRows& rows, std::uint8_t* places) noexcept {
    if (rows.stored == nullptr) {
        (guard.gridded ? mark_dense_rows<1, true> : mark_dense_rows<1, false>)(guard, rows, places);
        if (guard.directed) mark_far_rows(guard, rows, places);
    } else if (guard.directed) {
        (guard.gridded ? mark_stored_rows<true, true> : mark_stored_rows<true, false>)(guard, rows, places);
    } else {
        (guard.gridded ? mark_stored_rows<false, true> : mark_stored_rows<false, false>)(guard, rows, places);
    }
}

}  // namespace
}  // namespace svelto::SVELTO_NAMESPACE
