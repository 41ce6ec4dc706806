// What the hot functions of small SVMs read and write: the packed rows of a neighbourhood, and the state of a solver.
#pragma once

#include <cstdint>

#include "model.hpp"

namespace svelto {

// Rows of a block; arrays over the rows of a neighbourhood are padded to whole blocks and 64-byte aligned.
constexpr int kLocalBlock = 32;

struct PackedRows {
    const double* blocks = nullptr;    // [n_blocks][n_features][kLocalBlock], zeros behind the last row
    const double* sq_norms = nullptr;  // [n_blocks * kLocalBlock]
    int n_blocks = 0;
    int n_features = 0;
    double scale = 1.0;  // power of two that brings products to at most 1 and squared distances to at most 4
};

// A kernel on scaled products or squared distances p. rbf: 2^(factor p). poly: (factor p + shift)^degree. linear: p.
struct PairKernel {
    KernelKind kind = KernelKind::rbf;
    float factor = 0.0f;
    float shift = 0.0f;
    int degree = 1;
};

// The variables of a C-SVM as its solver sees them. With b_i = y_i alpha_i between low_i and high_i, the dual is
//     minimise 1/2 b'Kb - y'b,  sum b = 0;   slope = y - Kb.
// A pair (i, j) with slope_i > slope_j gains by moving weight from j to i, where b_i < high_i and b_j > low_j.
struct SolverState {
    double* slope = nullptr;
    double* rise = nullptr;    // 0 where b may rise, else -infinity
    double* fall = nullptr;    // 0 where b may fall, else -infinity
    float* falling = nullptr;  // fall - slope
    int n_padded = 0;
};

// max(rise + slope), its first place, and max(fall - slope): the sum of the two is the violation of optimality.
struct Extremes {
    double rising;
    double falling;
    int first;
};

// Curvature of a pair of equal rows, LIBSVM's.
constexpr double kLeastCurvature = 1e-12;

}  // namespace svelto
