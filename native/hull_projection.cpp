#include "hull_projection.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <limits>
#include <stdexcept>

#include "lane_dot.hpp"
#include "parallel.hpp"
#include "plain_arithmetic.hpp"

namespace svelto {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
// A target is known up to its own rounding, more so where it is a mean of many rows: a smaller |w| is zero, too.
constexpr double kTargetRounding = 64.0 * kEpsilon;
// Rows a thread takes at a time; also the rows whose share of w is summed together.
constexpr std::int64_t kBlockRows = 1024;
// Weight that may move before w is computed from all weights again. What w then has lost is some ten roundings of a
// row; near the end next to nothing moves, and w keeps the digits that the weights themselves cannot hold.
constexpr double kMoveLimit = 10.0;
// Rows of a subproblem: all that are between their bounds, as far as they fit, and this many from either bound. With
// half or twice as many the time changes little.
constexpr int kCapacity = 1024;
constexpr int kSideRows = 128;
// Rows and columns of products that are computed together, in registers; products below which threads cost more.
constexpr int kTile = 4;
constexpr std::int64_t kThreadProducts = 1'000'000;
// A subproblem is solved until its violation has fallen by this factor, or to this share of what ends it all.
constexpr double kInnerFall = 1e-3;
constexpr double kInnerShare = 0.2;
// Pair steps for every row of a subproblem before the active-set method goes on. On well-conditioned rows they suffice;
// on others (features that differ by 1e3 in scale) they would take millions.
constexpr std::int64_t kPairSteps = 2;
// A sweep looks at this many rows from either end, from so many violators on, and must gain this share of the gap.
constexpr std::size_t kSweepRows = 4096;
constexpr std::size_t kSweepFrom = 256;
constexpr double kSweepGain = 0.05;
// Passes in which the gap must halve or the norm fall visibly.
constexpr std::int64_t kPatience = 40;
constexpr double kVisibleFall = 1e-9;

std::size_t at(std::int64_t k) {
    return static_cast<std::size_t>(k);
}

// The rows with the smallest keys, in no particular order.
template <class Key>
void keep_first(std::vector<std::int64_t>& rows, std::size_t most, Key key) {
    if (rows.size() <= most) return;
    const auto before = [&](std::int64_t i, std::int64_t j) {
        const double a = key(i), b = key(j);
        return a != b ? a < b : i < j;
    };
    std::nth_element(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(most), rows.end(), before);
    rows.resize(most);
}

// Calls work(i) for every row.
template <class Work>
void for_rows(std::int64_t n_rows, int n_threads, Work work) {
    for_blocks((n_rows + kBlockRows - 1) / kBlockRows, n_threads, [&](int, std::int64_t block) {
        const PlainArithmetic plain;
        for (std::int64_t i = block * kBlockRows; i < std::min((block + 1) * kBlockRows, n_rows); ++i) work(i);
    });
}

}  // namespace

HullProjector::HullProjector(const HullProblem& problem, double* weights, bool has_start, int n_threads)
    : problem_(problem),
      weights_(weights),
      w_(at(problem.n_features)),
      centre_(at(problem.n_features)),
      gradient_(at(problem.n_rows)),
      order_(at(problem.n_rows)),
      capacity_(static_cast<int>(std::min<std::int64_t>(problem.n_rows, kCapacity))),
      stride_((capacity_ + 2 * kTile - 1) / kTile * kTile),
      subproblem_(capacity_, static_cast<int>(stride_), static_cast<int>(problem.n_features)),
      columns_(at(problem.n_features * stride_)),
      checked_gap_(kInfinity),
      checked_norm_(kInfinity) {
    const PlainArithmetic plain;
    measure_rows(n_threads);
    // The nearest row; with upper bounds, as many of the nearest as are needed.
    if (!has_start) fill_smallest(gradient_, weights_);
    compute_w(n_threads);
    // Products about a point of the hull: about a far target they would lose the digits of the rows' differences.
    for (std::size_t k = 0; k < w_.size(); ++k) centre_[k] = problem_.target[k] + w_[k];
}

// gradient_ = squared distances from the target.
void HullProjector::measure_rows(int n_threads) {
    const std::int64_t d = problem_.n_features;
    for_rows(problem_.n_rows, n_threads, [&](std::int64_t i) {
        gradient_[at(i)] = lane_square_distance(problem_.points + i * d, problem_.target, at(d));
    });
    // Products about another point of the hull are up to four times as large.
    if (!(*std::max_element(gradient_.begin(), gradient_.end()) < 0.1 * std::numeric_limits<double>::max()))
        throw std::overflow_error("squared distances overflow");
    std::vector<double> sorted = gradient_;
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    const double target_norm = std::sqrt(lane_dot(problem_.target, problem_.target, at(d)));
    zero_below_ = std::max(problem_.zero_tol * std::sqrt(*middle), kTargetRounding * target_norm);
}

// The feasible weights that minimise their product with `values`: the smallest are filled first. Returns the product;
// weights may be null.
double HullProjector::fill_smallest(const std::vector<double>& values, double* weights) {
    const std::size_t n = at(problem_.n_rows);
    double rest = 1.0, product = 0.0;
    for (std::size_t i = 0; i < n; ++i) {
        rest -= problem_.lower[i];
        product += problem_.lower[i] * values[i];
        order_[i] = static_cast<std::int64_t>(i);
        if (weights != nullptr) weights[i] = problem_.lower[i];
    }
    const auto room = [&](std::int64_t i) { return problem_.upper[i] - problem_.lower[i]; };
    const auto fill = [&](std::int64_t i, double amount) {
        product += amount * values[at(i)];
        if (weights != nullptr) weights[i] = amount == room(i) ? problem_.upper[i] : problem_.lower[i] + amount;
    };
    const auto before = [&](std::int64_t a, std::int64_t b) {
        return values[at(a)] != values[at(b)] ? values[at(a)] < values[at(b)] : a < b;
    };
    // Halves the range in which the filling ends, and fills what comes before it. The first row is looked at alone:
    // without upper bounds it takes everything.
    auto first = order_.begin(), last = order_.end();
    std::iter_swap(first, std::min_element(first, last, before));
    for (auto middle = first + 1; last - first > 1; middle = first + (last - first) / 2) {
        if (middle != order_.begin() + 1) std::nth_element(first, middle, last, before);
        double inside = 0.0;
        for (auto i = first; i != middle; ++i) inside += room(*i);
        if (inside >= rest) {
            last = middle;
        } else {
            for (auto i = first; i != middle; ++i) fill(*i, room(*i));
            rest -= inside;
            first = middle;
        }
    }
    fill(*first, std::clamp(rest, 0.0, room(*first)));
    return product;
}

void HullProjector::compute_w(int n_threads) {
    const std::int64_t n = problem_.n_rows, d = problem_.n_features, n_blocks = (n + kBlockRows - 1) / kBlockRows;
    std::vector<double> parts(at(n_blocks * d));
    for_rows(n, n_threads, [&](std::int64_t i) {
        if (weights_[i] == 0.0) return;
        double* part = parts.data() + i / kBlockRows * d;
        const double* x = problem_.points + i * d;
        for (std::int64_t k = 0; k < d; ++k) part[k] += weights_[i] * (x[k] - problem_.target[k]);
    });
    std::fill(w_.begin(), w_.end(), 0.0);
    for (std::int64_t block = 0; block < n_blocks; ++block)
        for (std::int64_t k = 0; k < d; ++k) w_[at(k)] += parts[at(block * d + k)];
    moved_ = 0.0;
}

void HullProjector::compute_gradient(int n_threads) {
    const std::int64_t d = problem_.n_features;
    for_rows(problem_.n_rows, n_threads, [&](std::int64_t i) {
        gradient_[at(i)] = lane_dot_difference(problem_.points + i * d, problem_.target, w_.data(), at(d));
    });
}

void HullProjector::find_violators() {
    const double* g = gradient_.data();
    double low = kInfinity, high = -kInfinity;
    for (std::int64_t i = 0; i < problem_.n_rows; ++i) {
        if (weights_[i] < problem_.upper[i]) low = std::min(low, g[i]);
        if (weights_[i] > problem_.lower[i]) high = std::max(high, g[i]);
    }
    level_ = low + 0.5 * (high - low);
    grow_.clear();
    fall_.clear();
    between_.clear();
    for (std::int64_t i = 0; i < problem_.n_rows; ++i) {
        const bool grows = weights_[i]<problem_.upper[i], falls = weights_[i]> problem_.lower[i];
        if (grows && falls)
            between_.push_back(i);
        else if (grows && g[i] < high)
            grow_.push_back(i);
        else if (falls && g[i] > low)
            fall_.push_back(i);
    }
}

// Moves weight from rows of large gradient to rows of small gradient in bulk, each as far as its bound, without
// computing gradients in between: under upper bounds of a few n-ths tens of thousands of rows have to change sides. It
// ends where |w|^2 was smallest; where that gains little, nothing is changed, and false returned.
bool HullProjector::sweep() {
    const std::int64_t d = problem_.n_features;
    const double* g = gradient_.data();
    std::vector<std::int64_t> grow = grow_, fall = fall_;
    for (const std::int64_t i : between_) (g[i] < level_ ? grow : fall).push_back(i);
    if (std::min(grow.size(), fall.size()) < kSweepFrom) return false;
    keep_first(grow, kSweepRows, [&](std::int64_t i) { return g[i]; });
    keep_first(fall, kSweepRows, [&](std::int64_t i) { return -g[i]; });
    const auto before = [&](std::int64_t i, std::int64_t j) { return g[i] != g[j] ? g[i] < g[j] : i < j; };
    std::sort(grow.begin(), grow.end(), before);
    std::sort(fall.rbegin(), fall.rend(), before);

    struct Move {
        std::int64_t to, from;
        double amount;
    };
    const auto apply = [&](const Move& move, std::vector<double>& w) {
        const double *to = problem_.points + move.to * d, *from = problem_.points + move.from * d;
        for (std::int64_t k = 0; k < d; ++k) w[at(k)] += move.amount * (to[k] - from[k]);
    };
    const auto room_above = [&](std::int64_t i) { return problem_.upper[i] - weights_[i]; };
    const auto room_below = [&](std::int64_t i) { return weights_[i] - problem_.lower[i]; };
    std::vector<Move> moves;
    std::vector<double> w = w_;
    std::size_t n_best = 0, i = 0, j = 0;
    double least = report_.sq_norm - kSweepGain * report_.gap;
    double above = room_above(grow[0]), below = room_below(fall[0]);
    while (i < grow.size() && j < fall.size() && g[grow[i]] < g[fall[j]]) {
        const Move move{grow[i], fall[j], std::min(above, below)};
        apply(move, w);
        moves.push_back(move);
        const double sq_norm = lane_dot(w.data(), w.data(), at(d));
        if (sq_norm < least) {
            least = sq_norm;
            n_best = moves.size();
        }
        above -= move.amount;
        below -= move.amount;
        if (above <= 0.0 && ++i < grow.size()) above = room_above(grow[i]);
        if (below <= 0.0 && ++j < fall.size()) below = room_below(fall[j]);
    }
    moves.resize(n_best);
    for (const Move& move : moves) {
        weights_[move.to] = std::min(weights_[move.to] + move.amount, problem_.upper[move.to]);
        weights_[move.from] = std::max(weights_[move.from] - move.amount, problem_.lower[move.from]);
        moved_ += move.amount;
        apply(move, w_);
    }
    report_.n_steps += static_cast<std::int64_t>(n_best);
    return n_best > 0;
}

// Chooses the rows of the subproblem. Those that were in it before come first, in the order they had.
void HullProjector::select_rows() {
    const double* g = gradient_.data();
    std::vector<std::int64_t> chosen, stay, sorted;
    const auto take = [&](std::vector<std::int64_t>& from, int most, auto key) {
        keep_first(from, std::min(at(most), at(capacity_) - chosen.size()), key);
        chosen.insert(chosen.end(), from.begin(), from.end());
    };
    take(grow_, kSideRows, [&](std::int64_t i) { return g[i]; });
    take(fall_, kSideRows, [&](std::int64_t i) { return -g[i]; });
    take(between_, capacity_, [&](std::int64_t i) { return -std::abs(g[i] - level_); });
    std::sort(chosen.begin(), chosen.end());
    kept_.clear();
    for (std::size_t s = 0; s < rows_.size(); ++s) {
        if (!std::binary_search(chosen.begin(), chosen.end(), rows_[s])) continue;
        kept_.push_back(s);
        stay.push_back(rows_[s]);
    }
    sorted = stay;
    std::sort(sorted.begin(), sorted.end());
    std::set_difference(chosen.begin(), chosen.end(), sorted.begin(), sorted.end(), std::back_inserter(stay));
    rows_ = std::move(stay);
}

// Fills the subproblem. Products of two rows that were in it before are only moved: with hundreds of features they
// would be most of the work.
void HullProjector::take_rows(int n_threads) {
    const std::int64_t d = problem_.n_features, q = static_cast<std::int64_t>(rows_.size());
    const auto n_kept = static_cast<std::int64_t>(kept_.size());
    for (std::int64_t a = 0; a < n_kept; ++a) {
        double* to = subproblem_.products(a);
        const double* from = subproblem_.products(static_cast<std::int64_t>(kept_[at(a)]));
        for (std::size_t b = 0; b < kept_.size(); ++b) to[b] = from[kept_[b]];
    }
    for (std::int64_t k = 0; k < d; ++k) {
        double* column = columns_.data() + k * stride_;
        for (std::size_t a = 0; a < kept_.size(); ++a) column[a] = column[kept_[a]];
    }
    subproblem_.size = q;
    for (std::int64_t s = 0; s < q; ++s) {
        const std::int64_t i = rows_[at(s)];
        subproblem_.gradient[at(s)] = gradient_[at(i)];
        subproblem_.weight[at(s)] = weights_[i];
        subproblem_.lower[at(s)] = problem_.lower[i];
        subproblem_.upper[at(s)] = problem_.upper[i];
        subproblem_.change[at(s)] = 0.0;
        if (s < n_kept) continue;
        for (std::int64_t k = 0; k < d; ++k)
            columns_[at(k * stride_ + s)] = problem_.points[i * d + k] - centre_[at(k)];
    }
    // Whole tiles: what lies behind the last row is written and never read.
    const int n_useful = (q - n_kept) * q * d < kThreadProducts ? 1 : n_threads;
    for_blocks((q - n_kept + kTile - 1) / kTile, n_useful, [&](int, std::int64_t tile) {
        const PlainArithmetic plain;
        const std::int64_t a = n_kept + tile * kTile;
        for (std::int64_t b = 0; b < std::min(a + kTile, q); b += kTile) {
            double sums[kTile][kTile] = {};
            for (std::int64_t k = 0; k < d; ++k) {
                const double *left = columns_.data() + k * stride_ + a, *right = columns_.data() + k * stride_ + b;
                for (int r = 0; r < kTile; ++r)
                    for (int c = 0; c < kTile; ++c) sums[r][c] += left[r] * right[c];
            }
            for (int r = 0; r < kTile; ++r)
                for (int c = 0; c < kTile; ++c) subproblem_.products(a + r)[b + c] = sums[r][c];
        }
    });
    for (std::int64_t r = n_kept; r < q; ++r)
        for (std::int64_t c = 0; c < r; ++c) subproblem_.products(c)[r] = subproblem_.products(r)[c];
}

// Solves the subproblem and takes its weights over; false where it had nothing to do.
bool HullProjector::solve_rows() {
    const double tolerance =
        std::max(kInnerShare * problem_.tol * report_.sq_norm, kInnerFall * subproblem_.violation());
    std::int64_t n_steps = subproblem_.pair_steps(tolerance, kPairSteps * subproblem_.size);
    if (subproblem_.violation() > tolerance) n_steps += subproblem_.active_set_steps(tolerance, subproblem_.size);
    report_.n_steps += n_steps;
    for (std::size_t s = 0; s < rows_.size(); ++s) {
        weights_[rows_[s]] = subproblem_.weight[s];
        moved_ += std::abs(subproblem_.change[s]);
    }
    for (std::size_t k = 0; k < w_.size(); ++k)
        w_[k] += lane_dot(columns_.data() + k * at(stride_), subproblem_.change.data(), rows_.size());
    return n_steps > 0;
}

// Whether the last passes were in vain.
bool HullProjector::is_stuck() {
    if (report_.n_passes % kPatience != 0) return false;
    const double gap = report_.gap / report_.sq_norm;
    const bool moves = gap < 0.5 * checked_gap_ || report_.sq_norm < (1.0 - kVisibleFall) * checked_norm_;
    checked_gap_ = gap;
    checked_norm_ = report_.sq_norm;
    return !moves;
}

// The gradient, and with it the gap, of the weights as they are.
void HullProjector::evaluate(int n_threads) {
    if (moved_ > kMoveLimit) compute_w(n_threads);
    compute_gradient(n_threads);
    ++report_.n_passes;
    report_.sq_norm = lane_dot(w_.data(), w_.data(), w_.size());
    report_.gap = report_.sq_norm - fill_smallest(gradient_, nullptr);
    if (std::sqrt(report_.sq_norm) <= zero_below_)
        report_.status = HullStatus::zero;
    else if (report_.gap <= problem_.tol * report_.sq_norm)
        report_.status = HullStatus::optimal;
    else if (is_stuck())
        report_.status = HullStatus::stalled;
}

bool HullProjector::improve(int n_threads) {
    find_violators();
    if (sweep()) return true;
    select_rows();
    take_rows(n_threads);
    return solve_rows();
}

HullReport HullProjector::advance(std::int64_t max_passes, double seconds, int n_threads) {
    const PlainArithmetic plain;
    const auto start = std::chrono::steady_clock::now();
    const auto has_time = [&] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < seconds;
    };
    for (std::int64_t pass = 0; pass < max_passes && report_.status == HullStatus::running; ++pass) {
        if (pass > 0 && !has_time()) break;
        if (report_.n_passes > 0 && !improve(n_threads))
            report_.status = HullStatus::stalled;
        else
            evaluate(n_threads);
    }
    return report_;
}

}  // namespace svelto
