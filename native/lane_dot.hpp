// Products of vectors in float64, summed in a fixed order that the compiler can put into vector registers.
#pragma once

#include <cstddef>

namespace svelto {

constexpr std::size_t kDotLanes = 8;

namespace detail {
inline double add_lanes(const double* lane) {
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}
}  // namespace detail

// sum of a_k b_k
inline double lane_dot(const double* a, const double* b, std::size_t n) {
    double lane[kDotLanes] = {};
    std::size_t k = 0;
    for (; k + kDotLanes <= n; k += kDotLanes)
        for (std::size_t l = 0; l < kDotLanes; ++l) lane[l] += a[k + l] * b[k + l];
    for (std::size_t l = 0; k + l < n; ++l) lane[l] += a[k + l] * b[k + l];
    return detail::add_lanes(lane);
}

// sum of w_k (a_k - b_k): exact differences of rows that lie close together and far from the origin.
inline double lane_dot_difference(const double* a, const double* b, const double* w, std::size_t n) {
    double lane[kDotLanes] = {};
    std::size_t k = 0;
    for (; k + kDotLanes <= n; k += kDotLanes)
        for (std::size_t l = 0; l < kDotLanes; ++l) lane[l] += w[k + l] * (a[k + l] - b[k + l]);
    for (std::size_t l = 0; k + l < n; ++l) lane[l] += w[k + l] * (a[k + l] - b[k + l]);
    return detail::add_lanes(lane);
}

// sum of (a_k - b_k)^2
inline double lane_square_distance(const double* a, const double* b, std::size_t n) {
    double lane[kDotLanes] = {};
    const auto add = [&](std::size_t k, std::size_t l) {
        const double difference = a[k + l] - b[k + l];
        lane[l] += difference * difference;
    };
    std::size_t k = 0;
    for (; k + kDotLanes <= n; k += kDotLanes)
        for (std::size_t l = 0; l < kDotLanes; ++l) add(k, l);
    for (std::size_t l = 0; k + l < n; ++l) add(k, l);
    return detail::add_lanes(lane);
}

}  // namespace svelto
