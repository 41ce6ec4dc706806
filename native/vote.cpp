#include "vote.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

// Compiled without contraction: the broken-tie values must round as scikit-learn's do.

namespace svelto {
namespace {

int first_largest(const double* values, int n) noexcept {
    return static_cast<int>(std::max_element(values, values + n) - values);
}

// scikit-learn's ovr values of the pair scores (votes plus bounded confidences); out has room for 2 * n_classes.
void ovr_values(const double* scores, int n_classes, double* out) noexcept {
    double* confidence = out + n_classes;
    std::fill(out, out + 2 * n_classes, 0.0);
    int p = 0;
    for (int i = 0; i < n_classes; ++i) {
        for (int j = i + 1; j < n_classes; ++j, ++p) {
            // scikit-learn passes -scores and votes for j where the score is negative.
            confidence[i] += scores[p];
            confidence[j] -= scores[p];
            out[scores[p] < 0.0 ? j : i] += 1.0;
        }
    }
    for (int c = 0; c < n_classes; ++c) out[c] += confidence[c] / (3.0 * (std::fabs(confidence[c]) + 1.0));
}

int decide_broken_tie(const Machine& m, const double* scores, const double* bounds, double* votes) noexcept {
    double total = 0.0;
    for (int p = 0; p < m.n_scores; ++p) total += bounds[p] + 2.0 * m.n_classes * 0x1p-53 * std::fabs(scores[p]);
    ovr_values(scores, m.n_classes, votes);
    const int best = first_largest(votes, m.n_classes);
    // A class value moves by at most a third of its confidence's error, plus its own rounding.
    const double reach = 2.0 * (total / 3.0 + 1e-13 * m.n_classes);
    for (int c = 0; c < m.n_classes; ++c)
        if (c != best && !(votes[best] - votes[c] > reach)) return kUndecided;
    return best;
}

int decide_pairs(const Machine& m, const double* scores, const double* bounds, double* votes) noexcept {
    const int n = m.n_classes;
    if (n == 2) {
        if (!(std::fabs(scores[0]) > bounds[0])) return kUndecided;
        return scores[0] > 0.0 ? 0 : 1;
    }
    double* sure = votes;          // votes that no error can take away
    double* possible = votes + n;  // and those that an error could add
    std::fill(votes, votes + 2 * n, 0.0);
    bool all_sure = true;
    int p = 0;
    for (int i = 0; i < n; ++i) {
        for (int j = i + 1; j < n; ++j, ++p) {
            if (std::fabs(scores[p]) > bounds[p]) {
                const int winner = scores[p] > 0.0 ? i : j;
                sure[winner] += 1.0;
                possible[winner] += 1.0;
            } else {
                all_sure = false;
                possible[i] += 1.0;
                possible[j] += 1.0;
            }
        }
    }
    const int best = first_largest(sure, n);
    for (int c = 0; c < n; ++c) {
        if (c == best) continue;
        const bool beaten = c < best || m.break_ties ? sure[best] > possible[c] : sure[best] >= possible[c];
        if (!beaten) return m.break_ties && all_sure ? decide_broken_tie(m, scores, bounds, votes) : kUndecided;
    }
    return best;
}

}  // namespace

void assemble(const Machine& m, const double* parts, double scale, const RowBound& bound, double* scores,
              double* bounds) noexcept {
    const int cols = m.f64.n_cols;
    const auto put = [&](int score, double sum, double magnitude) {
        const Bounded one = with_bound(m, score, sum, magnitude, scale, bound);
        scores[score] = one.score;
        bounds[score] = one.bound;
    };
    if (m.layout == Layout::single) {
        const Bounded one = assemble_single(m, parts, scale, bound);
        scores[0] = one.score;
        bounds[0] = one.bound;
    } else if (m.layout == Layout::classes) {
        const int a = m.abs_cols;
        int p = 0;
        for (int i = 0; i < m.n_classes; ++i) {
            for (int j = i + 1; j < m.n_classes; ++j, ++p) {
                const double* of_i = parts + i * cols + (j - 1);
                const double* of_j = parts + j * cols + i;
                put(p, *of_i + *of_j, a > 0 ? of_i[a] + of_j[a] : std::fabs(*of_i) + std::fabs(*of_j));
            }
        }
    } else {
        for (int c = 0; c < m.n_scores; ++c) put(c, parts[c], m.abs_cols > 0 ? parts[m.abs_cols + c] : 0.0);
    }
}

int decide(const Machine& m, const double* scores, const double* bounds, double* votes) noexcept {
    switch (m.rule) {
        case Rule::pairs:
            return decide_pairs(m, scores, bounds, votes);
        case Rule::argmax: {
            const int best = first_largest(scores, m.n_scores);
            for (int c = 0; c < m.n_scores; ++c)
                if (c != best && !(scores[best] - scores[c] > bounds[best] + bounds[c])) return kUndecided;
            return best;
        }
        case Rule::sign:
            if (!(std::fabs(scores[0]) > bounds[0])) return kUndecided;
            return scores[0] > 0.0 ? 1 : 0;
        case Rule::value:
            break;
    }
    return 0;
}

int label_of(const Machine& m, const double* scores, double* votes) noexcept {
    if (m.rule == Rule::argmax) return first_largest(scores, m.n_scores);
    if (m.rule == Rule::sign) return scores[0] > 0.0 ? 1 : 0;
    if (m.rule == Rule::value) return 0;
    if (m.n_classes == 2) return scores[0] > 0.0 ? 0 : 1;
    if (m.break_ties) {
        ovr_values(scores, m.n_classes, votes);
        return first_largest(votes, m.n_classes);
    }
    std::fill(votes, votes + m.n_classes, 0.0);
    int p = 0;
    for (int i = 0; i < m.n_classes; ++i)
        for (int j = i + 1; j < m.n_classes; ++j, ++p) votes[scores[p] > 0.0 ? i : j] += 1.0;
    return first_largest(votes, m.n_classes);
}

}  // namespace svelto
