// From group sums to scores, and from scores with error bounds to labels that are certain.
#pragma once

#include <cmath>
#include <limits>

#include "bounds.hpp"
#include "machine.hpp"

namespace svelto {

constexpr int kUndecided = -1;

struct Bounded {
    double score;
    double bound;
};

// A score from the sum of its parts and of their magnitudes; `scale` multiplies both (the float32 weights are scaled).
inline Bounded with_bound(const Machine& m, int score, double sum, double magnitude, double scale,
                          const RowBound& bound) noexcept {
    const double value = scale * sum + m.intercept[score];
    const double all = bound.relative * scale * magnitude + bound.absolute * m.coef_sum[score];
    const double near = bound.near_relative * scale * magnitude + bound.near_absolute * m.coef_sum[score];
    const double total = (near < all ? near : all) + bound.constant + 0x1p-52 * std::fabs(m.intercept[score]) +
                         (m.n_sv + 4.0) * 0x1p-1073;
    // Overflow anywhere, here or in the reference: no bound holds.
    const bool holds = total < 1e270 && std::fabs(value) < std::numeric_limits<double>::infinity();
    return {value, holds ? total : std::numeric_limits<double>::infinity()};
}

// The one score of a machine whose groups are the two signs of its weights.
inline Bounded assemble_single(const Machine& m, const double* parts, double scale, const RowBound& bound) noexcept {
    double sum = 0.0, magnitude = 0.0;
    for (int g = 0; g < m.f64.n_groups; ++g) {
        sum += parts[g];
        magnitude += std::fabs(parts[g]);
    }
    return with_bound(m, 0, sum, magnitude, scale, bound);
}

// scores[n_scores] and bounds[n_scores] of one row; `scale` multiplies the parts (the float32 weights are scaled).
void assemble(const Machine& machine, const double* parts, double scale, const RowBound& bound, double* scores,
              double* bounds) noexcept;

// The label, in vote order (rule sign: 1 or 0 for +1 and -1), if no error within the bounds can change it, else
// kUndecided. NaN scores and infinite bounds are undecided. `votes` has room for 2 * n_classes doubles.
int decide(const Machine& machine, const double* scores, const double* bounds, double* votes) noexcept;

// The label of the scores as they are: LIBSVM's vote with its tie rule, or scikit-learn's broken ties.
int label_of(const Machine& machine, const double* scores, double* votes) noexcept;

}  // namespace svelto
