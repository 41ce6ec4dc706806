#include "hull_subproblem.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace svelto {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// A row of which less than this share of its square lies outside the others' affine hull is taken as lying in it.
constexpr double kDependent = 1e-14;

std::size_t at(std::int64_t k) {
    return static_cast<std::size_t>(k);
}

}  // namespace

// Affinely independent rows are at most one more than features.
HullSubproblem::HullSubproblem(int capacity, int stride, int n_features)
    : gradient(at(capacity)),
      weight(at(capacity)),
      lower(at(capacity)),
      upper(at(capacity)),
      change(at(capacity)),
      stride_(stride),
      products_(std::make_unique_for_overwrite<double[]>(at(stride) * at(stride))),
      factor_(std::min(capacity, n_features + 1)),
      is_free_(at(capacity)),
      direction_(at(capacity) + 1),
      ones_(at(capacity)),
      column_(at(capacity)),
      slope_(at(capacity)) {}

double HullSubproblem::violation() const {
    double low = kInfinity, high = -kInfinity;
    for (std::size_t k = 0; k < at(size); ++k) {
        if (may_grow(k)) low = std::min(low, gradient[k]);
        if (may_fall(k)) high = std::max(high, gradient[k]);
    }
    return high - low;
}

void HullSubproblem::move(std::size_t k, double step) {
    weight[k] = std::clamp(weight[k] + step, lower[k], upper[k]);
    change[k] += step;
}

std::int64_t HullSubproblem::pair_steps(double tolerance, std::int64_t limit) {
    const std::size_t n = at(size);
    for (std::int64_t step = 0; step < limit; ++step) {
        double low = kInfinity, high = -kInfinity;
        std::size_t i = 0;
        for (std::size_t k = 0; k < n; ++k) {
            if (may_grow(k) && gradient[k] < low) {
                low = gradient[k];
                i = k;
            }
            if (may_fall(k)) high = std::max(high, gradient[k]);
        }
        if (!(high - low > tolerance)) return step;
        // The partner with which the objective falls most: (g_j - g_i)^2 / |x_i - x_j|^2, compared without dividing.
        const double* row = products(static_cast<std::int64_t>(i));
        double best_rise = 0.0, best_sq_dist = 1.0;
        std::size_t j = i;
        for (std::size_t k = 0; k < n; ++k) {
            const double rise = gradient[k] - low;
            if (!may_fall(k) || !(rise > 0.0)) continue;
            const double own = products(static_cast<std::int64_t>(k))[k];
            const double sq_dist = std::max(row[i] + own - 2.0 * row[k], std::numeric_limits<double>::min());
            if (rise * rise * best_sq_dist > best_rise * best_rise * sq_dist) {
                best_rise = rise;
                best_sq_dist = sq_dist;
                j = k;
            }
        }
        if (j == i) return step;
        // Algorithm 1 for two rows of one class, its eight cases in one: the sum stays, and neither leaves its bounds.
        const double room_above = upper[i] - weight[i], room_below = weight[j] - lower[j];
        const double amount = std::min({best_rise / best_sq_dist, room_above, room_below});
        move(i, amount);
        move(j, -amount);
        if (amount == room_above) weight[i] = upper[i];
        if (amount == room_below) weight[j] = lower[j];
        const double* other = products(static_cast<std::int64_t>(j));
        for (std::size_t k = 0; k < n; ++k) gradient[k] += amount * (row[k] - other[k]);
    }
    return limit;
}

void HullSubproblem::start_free() {
    // A constant added to all products changes nothing for steps that sum to 0, and makes the free rows' matrix
    // definite where the centre lies in their affine hull. The median square: a single far row must not drown the
    // others.
    const std::size_t n = at(size);
    for (std::size_t k = 0; k < n; ++k) slope_[k] = products(static_cast<std::int64_t>(k))[k];
    const auto middle = slope_.begin() + static_cast<std::ptrdiff_t>(n / 2);
    std::nth_element(slope_.begin(), middle, slope_.begin() + static_cast<std::ptrdiff_t>(n));
    shift_ = *middle > 0.0 ? *middle : 1.0;
    factor_.clear();
    free_.clear();
    std::fill(is_free_.begin(), is_free_.end(), 0);
    for (std::size_t k = 0; k < n; ++k)
        if (may_grow(k) && may_fall(k)) enter(k);
}

// False where row k is a combination of the free rows, up to rounding.
bool HullSubproblem::add_free(std::size_t k) {
    const double* row = products(static_cast<std::int64_t>(k));
    const double own = row[k] + shift_;
    for (std::size_t f = 0; f < free_.size(); ++f) column_[f] = row[free_[f]] + shift_;
    if (!factor_.add(column_.data(), own, kDependent * own)) return false;
    free_.push_back(k);
    is_free_[k] = 1;
    return true;
}

void HullSubproblem::remove_free(int position) {
    factor_.remove(position);
    is_free_[free_[at(position)]] = 0;
    free_.erase(free_.begin() + position);
}

// Makes the first elements of direction_, found without regard to their sum, sum to -rest, at the least cost. Twice:
// where free rows are almost dependent, elements cancel, and rounding would change the sum of the weights.
void HullSubproblem::balance_direction(double rest) {
    const std::size_t m = free_.size();
    std::fill_n(ones_.begin(), m, 1.0);
    factor_.solve(ones_.data());
    double total_ones = 0.0;
    for (std::size_t f = 0; f < m; ++f) total_ones += ones_[f];
    for (int round = 0; round < 2; ++round) {
        double total = rest;
        for (std::size_t f = 0; f < m; ++f) total += direction_[f];
        for (std::size_t f = 0; f < m; ++f) direction_[f] -= total / total_ones * ones_[f];
    }
}

// The step of the free weights after which their gradients are equal: argmin of g.p + 1/2 p'K p with sum p = 0.
void HullSubproblem::find_direction() {
    moving_ = free_;
    for (std::size_t f = 0; f < free_.size(); ++f) direction_[f] = gradient[free_[0]] - gradient[free_[f]];
    factor_.solve(direction_.data());
    balance_direction(0.0);
}

// Row k, a combination of the free rows, is exchanged with them: w hardly changes, and the objective does not rise.
void HullSubproblem::find_exchange(std::size_t k) {
    const std::size_t m = free_.size();
    moving_ = free_;
    moving_.push_back(k);
    for (std::size_t f = 0; f < m; ++f) direction_[f] = -column_[f];
    factor_.solve(direction_.data());
    balance_direction(1.0);
    direction_[m] = 1.0;
    double slope = 0.0;
    for (std::size_t f = 0; f <= m; ++f) slope += direction_[f] * gradient[moving_[f]];
    if (slope > 0.0 || (slope == 0.0 && !may_grow(k)))
        for (std::size_t f = 0; f <= m; ++f) direction_[f] = -direction_[f];
}

// Goes along direction_ until the objective is smallest or a weight is at a bound; that weight's position, or -1.
int HullSubproblem::apply_direction() {
    const std::size_t n = at(size);
    std::fill_n(slope_.begin(), n, 0.0);
    for (std::size_t f = 0; f < moving_.size(); ++f) {
        const double* row = products(static_cast<std::int64_t>(moving_[f]));
        for (std::size_t k = 0; k < n; ++k) slope_[k] += direction_[f] * row[k];
    }
    double fall = 0.0, curvature = 0.0;
    for (std::size_t f = 0; f < moving_.size(); ++f) {
        fall -= direction_[f] * gradient[moving_[f]];
        curvature += direction_[f] * slope_[moving_[f]];
    }
    double length = curvature > 0.0 ? std::max(fall, 0.0) / curvature : kInfinity;
    int blocking = -1;
    for (std::size_t f = 0; f < moving_.size(); ++f) {
        const std::size_t k = moving_[f];
        const double p = direction_[f], room = p > 0.0 ? upper[k] - weight[k] : weight[k] - lower[k];
        if (p != 0.0 && room < length * std::abs(p)) {
            length = room / std::abs(p);
            blocking = static_cast<int>(f);
        }
    }
    if (length == kInfinity) return -1;  // no direction at all
    for (std::size_t f = 0; f < moving_.size(); ++f) move(moving_[f], length * direction_[f]);
    for (std::size_t k = 0; k < n; ++k) gradient[k] += length * slope_[k];
    if (blocking >= 0) {
        const std::size_t k = moving_[at(blocking)];
        weight[k] = direction_[at(blocking)] > 0.0 ? upper[k] : lower[k];
    }
    return blocking;
}

// Makes row k one of the free rows. Where it is a combination of these, weight is exchanged until one of them has come
// to a bound and leaves, or k itself has, which then stays outside.
void HullSubproblem::enter(std::size_t k) {
    while (!add_free(k)) {
        find_exchange(k);
        const int blocking = apply_direction();
        if (blocking < 0 || at(blocking) == free_.size()) return;
        remove_free(blocking);
    }
}

// The free weights' common gradient, and how far from common it is.
double HullSubproblem::free_level(double& spread) const {
    double low = kInfinity, high = -kInfinity;
    for (const std::size_t k : free_) {
        low = std::min(low, gradient[k]);
        high = std::max(high, gradient[k]);
    }
    spread = free_.empty() ? 0.0 : high - low;
    if (free_.empty())
        for (std::size_t k = 0; k < at(size); ++k) {
            if (may_grow(k)) low = std::min(low, gradient[k]);
            if (may_fall(k)) high = std::max(high, gradient[k]);
        }
    return low + 0.5 * (high - low);
}

// The other weight that gains most by a step, or -1.
std::ptrdiff_t HullSubproblem::find_entering(double level, double tolerance) const {
    double most = tolerance;
    std::ptrdiff_t entering = -1;
    for (std::size_t k = 0; k < at(size); ++k) {
        if (is_free_[k]) continue;
        const double rise = gradient[k] - level;
        if ((may_grow(k) && -rise > most) || (may_fall(k) && rise > most)) {
            most = std::abs(rise);
            entering = static_cast<std::ptrdiff_t>(k);
        }
    }
    return entering;
}

std::int64_t HullSubproblem::active_set_steps(double tolerance, std::int64_t limit) {
    start_free();
    double last_spread = kInfinity;
    for (std::int64_t step = 0; step < limit; ++step) {
        if (!free_.empty()) {
            find_direction();
            const int blocking = apply_direction();
            if (blocking >= 0) {
                remove_free(blocking);
                last_spread = kInfinity;
                continue;
            }
        }
        double spread = 0.0;
        const double level = free_level(spread);
        if (spread > 0.5 * tolerance && spread < 0.5 * last_spread) {  // rounding in the factor: once more
            last_spread = spread;
            continue;
        }
        last_spread = kInfinity;
        const std::ptrdiff_t entering = find_entering(level, 0.5 * tolerance);
        if (entering < 0) return step;
        enter(at(entering));
    }
    return limit;
}

}  // namespace svelto
