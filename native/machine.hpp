// Everything the core needs of one machine: packed panels for the two precisions, statistics for the rounding bounds,
// the original arrays for the reference order, and the voting rule. Plain pointers, owned by the caller.
#pragma once

#include "model.hpp"

namespace svelto {

enum class Rule : int {
    pairs = 0,   // one-vs-one votes
    argmax = 1,  // one score a class
    sign = 2,    // outlier: +1 where the score is positive, else -1
    value = 3,   // regression
};

// How parts[group][col] become scores.
//   single   one score: the sum over groups; groups are the two signs of the weights
//   classes  groups are classes, LIBSVM's compact layout: pair (i, j) = parts[i][j - 1] + parts[j][i]
//   columns  one group, one column for each score
enum class Layout : int { single = 0, classes = 1, columns = 2 };

// Largest norms among the packed vectors, for the rounding bounds; in the units of the packed values.
struct VectorStats {
    double norm2 = 0.0;    // max ||s||_2
    double norm1 = 0.0;    // max ||s||_1
    double centre2 = 0.0;  // ||centre||_2, scaled as the vectors are
    double terms = 0.0;    // most stored features of a vector
};

struct Reference {                          // the machine as it was trained, for sums in LIBSVM's order
    const double* vectors = nullptr;        // dense [n_sv][d], or the CSR values
    const std::int32_t* columns = nullptr;  // CSR
    const std::int64_t* row_start = nullptr;
    const double* dual_coef = nullptr;          // [n_rows][n_sv]
    const std::int32_t* class_start = nullptr;  // [n_classes + 1]; null: one row a score
    int n_rows = 0;
    double gamma = 0.0;
    double coef0 = 0.0;
    int degree = 0;
};

struct Machine {
    KernelKind kernel = KernelKind::rbf;
    Rule rule = Rule::value;
    Layout layout = Layout::single;
    int d = 0;
    int n_sv = 0;
    int n_scores = 0;
    int n_classes = 0;
    bool break_ties = false;
    bool has_f32 = false;
    bool use_postings = false;  // very sparse machines: float64 from an inverted index
    int abs_cols = 0;           // columns [abs_cols, 2 * abs_cols) hold |weights|; 0: groups have one sign each
    Panels<float> f32;
    Panels<double> f64;
    Postings postings;
    VectorStats stats32;
    VectorStats stats64;
    double row_scale32 = 1.0;           // queries are packed as (x - centre) * row_scale
    double row_scale64 = 1.0;           // and as x * row_scale in float64
    double weight_scale = 1.0;          // float32 weights are dual_coef / weight_scale, a power of two
    const double* centre = nullptr;     // [d], in front of row_scale32; null: none
    const double* intercept = nullptr;  // [n_scores]
    const double* coef_sum = nullptr;   // [n_scores], sum |dual_coef|; linear: the norm of sum |dual_coef| |s|
    double near_exponent = 126.0;       // see bounds.hpp
    double vector_norm = 0.0;           // max ||s||_2 of the raw vectors
    double coef_total = 0.0;            // largest |dual_coef| * n_sv
    Reference reference;
};

}  // namespace svelto
