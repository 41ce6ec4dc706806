#include "distance_lists.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "parallel.hpp"
#include "plain_arithmetic.hpp"
#include "vote.hpp"

// Rounding. u = 2^-53. A label is settled only if the *reference's* scores have it, so every interval has room for the
// reference's rounding and for ours; all numbers below are four times what first-order analysis asks for.
//
//   distances   A sum of d squares in any order has a relative error of (d + 2) u, its root half of that and one more;
//               squares that underflow add at most d 2^-1074, their root sqrt(d) 2^-537. A distance D is hence within
//               rho D + alpha,  rho = 4 (d + 4) u,  alpha = 4 sqrt(d + 1) 2^-537  (0 for the L1 metric: differences and
//               sums do not underflow). `low` and `upp` take this off and add it for both distances that they are made
//               of.
//   exponents   z = gamma D^2 (or gamma D) has the relative error of the sum and one rounding more, plus gamma times
//               what underflows. Values with z > 746 are below 2^-1074 and belong to the floor, so with
//               z' = min(largest z of the row, 746) every kernel value k, ours or the reference's, is within
//               k eta + 2^-1073,  eta = 4 u ((d + 8) (z' + 2) + n_sv + 8) + 4 (underflow's share),
//               where 2 u or so are for exp itself. P and N of the exponential kernel are sums of such values.
//   sums        n_sv additions in any order: n_sv u of the sum of absolute terms, whence n_sv in eta, which then covers
//               the sums of this file, those stored in P and N, and the reference's. Absolute terms are those added so
//               far (size), at most upper (P + N) for those left, and the intercept.
//   factors     upper and lower come from exponents of at most 746 with a few roundings: 2^-40 of them, and 2^-1022.
//   underflow   products and kernel values: 2^-1070 (sum |w| + n_sv), and as much in P and N.
//
// Where a number is not finite, a distance may reach 1e140, eta exceeds 0.01 or a bound 1e280, nothing is settled. A
// bound below 1e280 also says that the absolute terms add up to less than 1e280 / eta, hence that the reference's sum,
// in whatever order, is far from overflow: eta is never below 1e-15.

namespace svelto {
namespace {

constexpr double kUnit = 0x1p-53;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLargestExponent = 746.0;
constexpr std::int64_t kBlockRows = 16;
// Open pairs are looked at when one of their own vectors is met, and all together once in this many vectors.
constexpr int kRefresh = 32;

template <class Int>
std::size_t size_of(Int n) noexcept {
    return static_cast<std::size_t>(n);
}

// Sum over the features in four chains, so that additions do not wait for each other.
template <class Term>
double sum_features(int d, Term term) noexcept {
    double a = 0.0, b = 0.0, c = 0.0, e = 0.0;
    int k = 0;
    for (; k + 4 <= d; k += 4) {
        a += term(k);
        b += term(k + 1);
        c += term(k + 2);
        e += term(k + 3);
    }
    for (; k < d; ++k) a += term(k);
    return (a + b) + (c + e);
}

// One thread's view of one row: its kernel values along the chosen list, and the intervals of its scores.
class Walker {
  public:
    explicit Walker(const DistanceLists& lists)
        : lists_(lists),
          vote_(lists.vote),
          is_rbf_(lists.vote.kernel == KernelKind::rbf),
          is_l1_(lists.vote.kernel == KernelKind::laplacian),
          is_csr_(lists.vote.reference.row_start != nullptr),
          gamma_(lists.vote.reference.gamma) {
        row_.resize(size_of(vote_.d));
        columns_.resize(size_of(vote_.d));
        first_distance_.resize(size_of(lists.n_lists));
        values_.resize(size_of(vote_.n_sv));
        uppers_.resize(size_of(vote_.n_sv));
        score_.resize(size_of(vote_.n_scores));
        bound_.resize(size_of(vote_.n_scores));
        for (int p = 0; p < vote_.n_scores; ++p) {
            Sum sum;
            sum.intercept = vote_.intercept[p];
            sum.tiny = (lists.weight_sum[p] + vote_.n_sv) * 0x1p-1070;
            sums_.push_back(sum);
        }
        closed_.resize(size_of(vote_.n_scores));
        at_.resize(size_of(vote_.n_scores));
        votes_.resize(size_of(2 * vote_.n_classes + 2));
        if (lists.sv_class == nullptr) return;
        const int n = vote_.n_classes;
        pair_.resize(size_of(n * n));
        int p = 0;
        for (int i = 0; i < n; ++i)
            for (int j = i + 1; j < n; ++j, ++p) {
                pair_[size_of(i * n + j - 1)] = p;  // row j - 1 of dual_coef: class i against class j
                pair_[size_of(j * n + i)] = p;
                members_.push_back({i, j});
            }
    }

    Fault read(const RowSource& rows, std::int64_t row) {
        if (!is_csr_) return read_dense(rows, row, row_.data());
        if (rows.is_csr) {
            const std::int64_t stored = stored_count(rows, row);
            if (stored < 0 || stored > vote_.d) return Fault::bad_index;
        }
        return read_stored(rows, row, columns_.data(), row_.data(), n_stored_);
    }

    int label(bool shared) {
        choose_list();
        if (!usable_) return kUndecided;
        for (std::size_t p = 0; p < sums_.size(); ++p) {
            sums_[p].sum = sums_[p].size = 0.0;
            sums_[p].left[0] = total_[2 * p];
            sums_[p].left[1] = total_[2 * p + 1];
        }
        std::fill(closed_.begin(), closed_.end(), char{0});
        return shared ? walk_together() : walk_apart();
    }

    std::int64_t evaluations = 0;
    ListsOutcome outcome;

  private:
    // The distance from the row to a support vector; squared for the Euclidean metric.
    double pair_sum(int i) const noexcept {
        const Reference& r = vote_.reference;
        const double* x = row_.data();
        const auto feature = [&](double difference) {
            return is_l1_ ? std::fabs(difference) : difference * difference;
        };
        if (!is_csr_) {
            const double* s = r.vectors + static_cast<std::ptrdiff_t>(i) * vote_.d;
            return is_l1_ ? sum_features(vote_.d, [&](int k) { return std::fabs(x[k] - s[k]); })
                          : sum_features(vote_.d, [&](int k) { return (x[k] - s[k]) * (x[k] - s[k]); });
        }
        double sum = 0.0;
        std::int64_t at = r.row_start[i];
        const std::int64_t end = r.row_start[i + 1];
        int k = 0;
        while (k < n_stored_ || at < end) {
            if (at >= end || (k < n_stored_ && columns_[size_of(k)] < r.columns[at]))
                sum += feature(x[k++]);
            else if (k >= n_stored_ || r.columns[at] < columns_[size_of(k)])
                sum += feature(r.vectors[at++]);
            else
                sum += feature(x[k++] - r.vectors[at++]);
        }
        return sum;
    }

    double metric(double pair_sum_of) const noexcept { return is_l1_ ? pair_sum_of : std::sqrt(pair_sum_of); }
    double kernel(double pair_sum_of) const noexcept {
        return std::exp(-gamma_ * (is_rbf_ || is_l1_ ? pair_sum_of : std::sqrt(pair_sum_of)));
    }

    void choose_list() {
        int best = 0;
        for (int l = 0; l < lists_.n_lists; ++l) {
            const int sv = lists_.order[static_cast<std::ptrdiff_t>(l) * vote_.n_sv];
            first_distance_[size_of(l)] = pair_sum(sv);
            if (first_distance_[size_of(l)] < first_distance_[size_of(best)]) best = l;
        }
        evaluations = lists_.n_lists;
        filled_ = 0;
        const std::ptrdiff_t at = best;
        order_ = lists_.order + at * vote_.n_sv;
        distance_ = lists_.distance + at * vote_.n_sv;
        last_ = lists_.last + at * vote_.n_scores;
        total_ = lists_.total + at * vote_.n_scores * 2;
        after_ = lists_.rest + at * vote_.n_sv * lists_.n_rows * 2;
        const double d = vote_.d;
        rho_ = 4.0 * (d + 4.0) * kUnit;
        alpha_ = is_l1_ ? 0.0 : 4.0 * std::sqrt(d + 1.0) * 0x1p-537;
        near_ = metric(first_distance_[size_of(best)]) * (1.0 + rho_) + alpha_;
        // The largest exponent that a vector of the list can have.
        const double upp = upper_distance(distance_[vote_.n_sv - 1]);
        const double z = std::min(gamma_ * (is_rbf_ ? upp * upp : upp), kLargestExponent);
        const double underflow = gamma_ * (is_rbf_ ? d * 0x1p-1072 : alpha_);
        eta_ = 4.0 * kUnit * ((d + 8.0) * (z + 2.0) + vote_.n_sv + 8.0) + 4.0 * underflow;
        usable_ = upp < 1e140 && eta_ < 0.01;
        bounded_ = 0;
        upper_ = is_rbf_ ? upper_at(0) : factor_above(gamma_ * near_);
        lower_ = lower_at(vote_.n_sv - 1);
    }

    double upper_distance(double far) const noexcept { return far * (1.0 + rho_) + alpha_ + near_; }

    // Bounds of the kernel values left (rbf), or of their ratio to the values at the first vector (the others). 1 + eta
    // and 1 - eta are for P and N.
    double factor_above(double exponent) const noexcept {
        return (std::exp(exponent) * (1.0 + 0x1p-40) + 0x1p-1022) * (1.0 + eta_);
    }
    double factor_below(double exponent) const noexcept {
        return std::max(0.0, std::exp(exponent) * (1.0 - 0x1p-40) - 0x1p-1022) * (1.0 - eta_);
    }

    // The upper factor where position n is the nearest one left; computed once a row, positions ascend.
    double upper_at(int n) noexcept {
        if (!is_rbf_) return upper_;
        for (; bounded_ <= n; ++bounded_) {
            const double low = std::max(0.0, distance_[bounded_] * (1.0 - rho_) - alpha_ - near_);
            uppers_[size_of(bounded_)] = factor_above(-gamma_ * (low * low));
        }
        return uppers_[size_of(n)];
    }

    // The lower factor where position n is the farthest one left.
    double lower_at(int n) const noexcept {
        const double upp = upper_distance(distance_[n]);
        return factor_below(-gamma_ * (is_rbf_ ? upp * upp : near_));
    }

    // The interval of a score from what is added and what is left; true where it excludes zero.
    bool update(int p, bool done) noexcept {
        const std::size_t at = size_of(p);
        const Sum& of = sums_[at];
        double most[2] = {0.0, 0.0}, least[2] = {0.0, 0.0};
        if (!done) {
            for (std::size_t sign = 0; sign < 2; ++sign) {
                most[sign] = upper_ * (of.left[sign] + of.tiny);
                least[sign] = lower_ * std::max(0.0, of.left[sign] - of.tiny);
            }
        }
        const double f = of.sum + of.intercept;
        const double slack = eta_ * (of.size + std::fabs(of.intercept) + most[0] + most[1]) + 4.0 * of.tiny;
        const double low = f + (least[0] - most[1]) - slack, high = f + (most[0] - least[1]) + slack;
        score_[at] = 0.5 * (low + high);
        bound_[at] = 0.5 * (high - low);
        if (!std::isfinite(score_[at]) || !(bound_[at] < 1e280)) {
            score_[at] = 0.0;
            bound_[at] = kInfinity;
        }
        return std::fabs(score_[at]) > bound_[at];
    }

    int vote() noexcept { return decide(vote_, score_.data(), bound_.data(), votes_.data()); }

    // The kernel value at a position of the list; positions are asked for in ascending order.
    double value(int n) noexcept {
        for (; filled_ <= n; ++filled_) {
            const std::int32_t list = lists_.starts[order_[filled_]];
            values_[size_of(filled_)] = kernel(list >= 0 ? first_distance_[size_of(list)] : pair_sum(order_[filled_]));
        }
        return values_[size_of(n)];
    }

    bool is_first(int n) const noexcept { return lists_.starts[order_[n]] >= 0; }

    int score_at(int sv, int r) const noexcept {
        return lists_.sv_class == nullptr ? r : pair_[size_of(lists_.sv_class[sv] * vote_.n_classes + r)];
    }

    void add(int p, double weight, double k, const double* left) noexcept {
        const double term = weight * k;
        Sum& of = sums_[size_of(p)];
        of.sum += term;
        of.size += std::fabs(term);
        of.left[0] = left[0];
        of.left[1] = left[1];
    }

    int walk_together() noexcept {
        // A sign that is certain ends a pair's sum; the largest score and broken ties need more than signs.
        const bool by_sign = vote_.rule == Rule::pairs && !vote_.break_ties;
        int n_sure = 0;
        const auto look = [&](int p, int n) {
            const bool sure = update(p, n >= last_[p]);
            const bool news = sure && closed_[size_of(p)] == 0;
            if (news) {
                closed_[size_of(p)] = 1;
                ++n_sure;
            }
            return news;
        };
        for (int p = 0; p < vote_.n_scores; ++p) look(p, -1);
        int label = vote();
        for (int n = 0; n < vote_.n_sv && label == kUndecided; ++n) {
            const double k = value(n);
            evaluations += is_first(n) ? 0 : 1;
            const int sv = order_[n];
            if (n + 1 < vote_.n_sv) upper_ = upper_at(n + 1);
            const bool all = vote_.n_scores == 1 || vote_.rule != Rule::pairs || (n + 1) % kRefresh == 0;
            bool news = false;
            const double* weights = lists_.coef + static_cast<std::ptrdiff_t>(sv) * lists_.n_rows;
            const double* left = after_ + static_cast<std::ptrdiff_t>(n) * lists_.n_rows * 2;
            for (int r = 0; r < lists_.n_rows; ++r) {
                if (weights[r] == 0.0) continue;
                const int p = score_at(sv, r);
                if (by_sign && closed_[size_of(p)] != 0) continue;
                add(p, weights[r], k, left + 2 * r);
                if (!all) news |= look(p, n);
            }
            if (all)
                for (int p = 0; p < vote_.n_scores; ++p)
                    if (!by_sign || closed_[size_of(p)] == 0) news |= look(p, n);
            if (news || vote_.rule == Rule::argmax || n_sure == vote_.n_scores) label = vote();
        }
        return label;
    }

    double weight_of(int p, int sv, int& r) const noexcept {
        r = p;
        if (lists_.sv_class != nullptr) {
            const Pair& pair = members_[size_of(p)];
            const int of = lists_.sv_class[sv];
            if (of != pair.i && of != pair.j) return 0.0;
            r = of == pair.i ? pair.j - 1 : pair.i;
        }
        return lists_.coef[static_cast<std::ptrdiff_t>(sv) * lists_.n_rows + r];
    }

    int next_position(int p, int n) const noexcept {
        int r = 0;
        while (n <= last_[p] && weight_of(p, order_[n], r) == 0.0) ++n;
        return n;
    }

    // Adds the vectors of one score from where it stands, until its sign is certain or to the end.
    void walk_score(int p, bool to_the_end) noexcept {
        int& n = at_[size_of(p)];
        while (n <= last_[p]) {
            int r = 0;
            const double weight = weight_of(p, order_[n], r);
            add(p, weight, value(n), after_ + (static_cast<std::ptrdiff_t>(n) * lists_.n_rows + r) * 2);
            evaluations += is_first(n) ? 0 : 1;
            n = next_position(p, n + 1);
            if ((!to_the_end || n > last_[p]) && is_settled(p)) return;
        }
    }

    // Conditions (10) and (11), or (16) and (17), with what is left at the score's own vectors.
    bool is_settled(int p) noexcept {
        const int n = at_[size_of(p)];
        const bool done = n > last_[p];
        if (!done) upper_ = upper_at(n);
        if (!update(p, done)) return false;
        // The paper also wants the partial sum itself on that side.
        const double f = sums_[size_of(p)].sum + vote_.intercept[p];
        return done || (score_[size_of(p)] > 0.0 ? f >= 0.0 : f <= 0.0);
    }

    int walk_apart() noexcept {
        for (int p = 0; p < vote_.n_scores; ++p) {
            at_[size_of(p)] = next_position(p, 0);
            if (last_[p] >= 0) lower_ = lower_at(last_[p]);
            if (!is_settled(p)) walk_score(p, false);
        }
        int label = vote();
        // Signs are all that a vote needs. The largest score, and a tie that scores have to break, may need more of the
        // scores that can still be the largest.
        if (label != kUndecided || (vote_.rule == Rule::pairs && !vote_.break_ties)) return label;
        double least = -kInfinity;
        for (std::size_t p = 0; p < score_.size(); ++p) least = std::max(least, score_[p] - bound_[p]);
        for (int p = 0; p < vote_.n_scores; ++p)
            if (vote_.rule != Rule::argmax || !(score_[size_of(p)] + bound_[size_of(p)] < least)) walk_score(p, true);
        return vote();
    }

    struct Pair {
        int i, j;
    };
    // One score on its way: what is added, and P and N left.
    struct Sum {
        double sum = 0.0, size = 0.0, left[2] = {0.0, 0.0}, intercept = 0.0, tiny = 0.0;
    };

    const DistanceLists& lists_;
    const Machine& vote_;
    const bool is_rbf_, is_l1_, is_csr_;
    const double gamma_;
    std::vector<double> row_, first_distance_, values_, uppers_, score_, bound_, votes_;
    std::vector<Sum> sums_;
    std::vector<std::int32_t> columns_, pair_;
    std::vector<Pair> members_;
    std::vector<char> closed_;
    std::vector<int> at_;
    int n_stored_ = 0, filled_ = 0, bounded_ = 0;
    const std::int32_t *order_ = nullptr, *last_ = nullptr;
    const double *distance_ = nullptr, *total_ = nullptr, *after_ = nullptr;
    double near_ = 0.0, rho_ = 0.0, alpha_ = 0.0, eta_ = 0.0, upper_ = 0.0, lower_ = 0.0;
    bool usable_ = false;
};

}  // namespace

ListsOutcome list_labels(const DistanceLists& lists, const RowSource& rows, bool shared, int n_threads,
                         std::int32_t* labels, std::int64_t* evaluations) {
    std::vector<Walker> walkers(size_of(std::max(n_threads, 1)), Walker(lists));
    for_blocks((rows.n_rows + kBlockRows - 1) / kBlockRows, n_threads, [&](int thread, std::int64_t block) {
        const PlainArithmetic plain;
        Walker& walker = walkers[size_of(thread)];
        const std::int64_t last = std::min((block + 1) * kBlockRows, rows.n_rows);
        for (std::int64_t i = block * kBlockRows; i < last; ++i) {
            const Fault fault = walker.read(rows, i);
            if (fault != Fault::none) {
                // Blocks come in ascending order, so a thread's first bad row is its lowest.
                if (walker.outcome.bad_row < 0) walker.outcome = {walker.outcome.settled, i, fault};
                return;
            }
            labels[i] = walker.label(shared);
            evaluations[i] = walker.evaluations;
            walker.outcome.settled += labels[i] == kUndecided ? 0 : 1;
        }
    });
    ListsOutcome total;
    for (const Walker& walker : walkers) {
        const ListsOutcome& one = walker.outcome;
        total.settled += one.settled;
        if (one.bad_row >= 0 && (total.bad_row < 0 || one.bad_row < total.bad_row)) {
            total.bad_row = one.bad_row;
            total.fault = one.fault;
        }
    }
    return total;
}

}  // namespace svelto
