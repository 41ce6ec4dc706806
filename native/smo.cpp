#include "smo.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace svelto {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// LIBSVM's limit where none is given.
constexpr std::int64_t kMostSteps = 10'000'000;
constexpr std::int64_t kStepsPerRow = 100;
// Bounds beyond it are none; sums of weights stay finite.
constexpr double kLargestBound = 1e300;
// Variables are set aside where at most this share is left active. It is looked at whenever there were as many steps as
// a share of the variables, not at once: the first steps bring most variables to where they stay.
constexpr double kActiveShare = 0.7;
constexpr double kCheckShare = 0.5;
// Fewer are not worth it: a step costs more than its passes over them.
constexpr int kLeastShrunk = 64;

std::size_t at(int k) {
    return static_cast<std::size_t>(k);
}

}  // namespace

void Variables::resize(int n, int n_padded) {
    const auto padded = at(n_padded);
    weight.assign(at(n), 0.0);
    low.resize(at(n));
    high.resize(at(n));
    for (AlignedBuffer<double>* buffer : {&slope, &rise, &fall}) buffer->reserve(padded);
    falling.reserve(padded);
    state = {slope.get(), rise.get(), fall.get(), falling.get(), n_padded};
    for (int k = n; k < n_padded; ++k) {
        state.slope[k] = 0.0;
        state.rise[k] = state.fall[k] = -kInfinity;
        state.falling[k] = -std::numeric_limits<float>::infinity();
    }
}

void Variables::mark(int i) {
    state.rise[i] = weight[at(i)] < high[at(i)] ? 0.0 : -kInfinity;
    state.fall[i] = weight[at(i)] > low[at(i)] ? 0.0 : -kInfinity;
}

void Variables::find_extremes() {
    extremes = {-kInfinity, -kInfinity, 0};
    for (int k = 0; k < size(); ++k) {
        const double rising = state.rise[k] + state.slope[k], down = state.fall[k] - state.slope[k];
        state.falling[k] = static_cast<float>(down);
        extremes.falling = std::max(extremes.falling, down);
        if (rising > extremes.rising) {
            extremes.rising = rising;
            extremes.first = k;
        }
    }
}

int Variables::steepest_fall() const {
    int found = 0;
    for (int k = 1; k < size(); ++k)
        if (state.fall[k] - state.slope[k] > state.fall[found] - state.slope[found]) found = k;
    return found;
}

// All weights 0: slopes are the classes.
void SmoSolver::start(const SubGram& gram, int n_positive, const double* bounds) {
    factor_ = gram.factor();
    n_positive_ = n_positive;
    is_shrunk_ = met_bound_ = false;
    all_.resize(gram.size(), gram.n_padded());
    for (int i = 0; i < gram.size(); ++i) {
        // The matrix is divided by the factor, so weights are multiplied with it.
        const double bound = std::clamp(bounds[i] * factor_, std::numeric_limits<double>::min(), kLargestBound);
        const bool positive = i < n_positive;
        all_.low[at(i)] = positive ? 0.0 : -bound;
        all_.high[at(i)] = positive ? bound : 0.0;
        all_.state.slope[i] = positive ? 1.0 : -1.0;
        all_.mark(i);
    }
    all_.find_extremes();
}

void SmoSolver::step(SubGram& gram, Variables& v) {
    const float* diagonal = gram.diagonal();
    const int i = v.extremes.first;
    const float* row_i = gram.row(i);
    int j = hot_->best_partner(v.state, row_i, diagonal, i, v.state.slope[i]);
    // Slopes of 1e8 and more have no digits left in float32: then the first-order choice.
    if (j < 0 || !(v.state.slope[i] > v.state.slope[j])) j = v.steepest_fall();
    const float* row_j = gram.row(j);
    const double curvature =
        static_cast<double>(diagonal[i]) + static_cast<double>(diagonal[j]) - 2.0 * static_cast<double>(row_i[j]);
    const double best = (v.state.slope[i] - v.state.slope[j]) / (curvature > 0.0 ? curvature : kLeastCurvature);
    double &up = v.weight[at(i)], &down = v.weight[at(j)];
    const double room_i = v.high[at(i)] - up, room_j = down - v.low[at(j)];
    const double amount = std::min(best, std::min(room_i, room_j));
    up = amount == room_i ? v.high[at(i)] : std::min(up + amount, v.high[at(i)]);
    down = amount == room_j ? v.low[at(j)] : std::max(down - amount, v.low[at(j)]);
    // The other end of a weight's range is 0, whatever C is.
    met_bound_ = met_bound_ || (up != 0.0 && up == v.high[at(i)]) || (down != 0.0 && down == v.low[at(j)]);
    v.mark(i);
    v.mark(j);
    v.extremes = hot_->move_pair(v.state, row_i, row_j, amount);
}

// Leaves variables alone that are at a bound and want to stay there, as far as can be told by now.
void SmoSolver::set_aside(SubGram& gram) {
    const Variables& from = is_shrunk_ ? active_ : all_;
    if (from.size() < kLeastShrunk) return;
    smaller_ids_.clear();
    for (int k = 0; k < from.size(); ++k) {
        const bool rises = from.state.rise[k] == 0.0, falls = from.state.fall[k] == 0.0;
        const double slope = from.state.slope[k];
        const bool stays = rises ? !falls && -slope > from.extremes.falling : slope > from.extremes.rising;
        if (!stays) smaller_ids_.push_back(k);
    }
    if (static_cast<double>(smaller_ids_.size()) > kActiveShare * from.size()) return;
    const int n = static_cast<int>(smaller_ids_.size());
    smaller_.resize(n, (n + kLocalBlock - 1) / kLocalBlock * kLocalBlock);
    for (int k = 0; k < n; ++k) {
        const int id = smaller_ids_[at(k)];
        smaller_.weight[at(k)] = from.weight[at(id)];
        smaller_.low[at(k)] = from.low[at(id)];
        smaller_.high[at(k)] = from.high[at(id)];
        smaller_.state.slope[k] = from.state.slope[id];
        smaller_.mark(k);
    }
    smaller_.find_extremes();
    if (is_shrunk_) {
        for (std::size_t k = 0; k < ids_.size(); ++k) all_.weight[at(ids_[k])] = active_.weight[k];
        for (int& id : smaller_ids_) id = ids_[at(id)];
    }
    std::swap(active_, smaller_);
    std::swap(ids_, smaller_ids_);
    positions_.clear();
    for (const int id : ids_) positions_.push_back(gram.position(id));
    active_gram_.select(gram.full(), positions_);
    is_shrunk_ = true;
}

// All variables again, with slopes computed from their weights.
void SmoSolver::take_back(SubGram& gram) {
    for (std::size_t k = 0; k < ids_.size(); ++k) all_.weight[at(ids_[k])] = active_.weight[k];
    for (int i = 0; i < all_.size(); ++i) all_.state.slope[i] = i < n_positive_ ? 1.0 : -1.0;
    for (int i = 0; i < all_.size(); ++i) {
        if (all_.weight[at(i)] != 0.0)
            hot_->subtract_row(all_.state.slope, gram.row(i), all_.weight[at(i)], all_.state.n_padded);
        all_.mark(i);
    }
    all_.find_extremes();
    is_shrunk_ = false;
}

// The mean slope of the rows between their bounds; the middle of what the others allow where there are none.
double SmoSolver::intercept() const {
    double sum = 0.0, highest = -kInfinity, lowest = kInfinity;
    int n_free = 0;
    for (int k = 0; k < all_.size(); ++k) {
        const bool rises = all_.state.rise[k] == 0.0, falls = all_.state.fall[k] == 0.0;
        const double slope = all_.state.slope[k];
        if (rises && falls) {
            sum += slope;
            ++n_free;
        } else if (rises) {
            highest = std::max(highest, slope);
        } else {
            lowest = std::min(lowest, slope);
        }
    }
    return n_free > 0 ? sum / n_free : 0.5 * (highest + lowest);
}

SmoReport SmoSolver::solve(SubGram& gram, int n_positive, const double* bounds, double tol, std::int64_t max_steps,
                           const HotTable& hot) {
    hot_ = &hot;
    start(gram, n_positive, bounds);
    if (max_steps < 0) max_steps = std::max(kMostSteps, kStepsPerRow * gram.size());
    const auto interval = static_cast<std::int64_t>(kCheckShare * gram.size()) + 1;
    SmoReport report;
    std::int64_t next_check = interval;
    for (;; ++report.n_steps) {
        const Extremes& now = is_shrunk_ ? active_.extremes : all_.extremes;
        const bool is_optimal = now.rising + now.falling < tol;
        const bool is_last = report.n_steps >= max_steps;
        if (is_shrunk_ && (is_optimal || is_last)) take_back(gram);
        report.converged = all_.extremes.rising + all_.extremes.falling < tol;
        if (is_last || (!is_shrunk_ && report.converged)) break;
        if (report.n_steps >= next_check) {
            set_aside(gram);
            next_check += interval;
        }
        step(is_shrunk_ ? active_gram_ : gram, is_shrunk_ ? active_ : all_);
    }
    report.intercept = intercept();
    report.met_bound = met_bound_;
    return report;
}

}  // namespace svelto
