// Rounding bounds: how far a computed score can be from the machine's float64 score. docs/exactness.md derives them.
#pragma once

#include <limits>

#include "hot.hpp"
#include "machine.hpp"

namespace svelto {

// |computed - reference| <= relative * magnitude + absolute * coef_sum + constant, where magnitude is the computed
// sum |weight| * value of the score. The second pair holds just as well: it counts more of the small kernel values as
// absolute error, and asks for accuracy only of the larger ones.
struct RowBound {
    double relative = 0.0;
    double absolute = 0.0;
    double constant = 0.0;
    double near_relative = std::numeric_limits<double>::infinity();
    double near_absolute = 0.0;
};

// What is known of a packed query, in the units of its packing.
struct RowNorms {
    double centred2 = 0.0;  // ||x||_2 after the centre was taken off
    double stored2 = 0.0;   // ||x||_2 of the values that enter the products (dense: the same)
    double norm1 = 0.0;     // ||x||_1 of the values that enter the sums
    int n_terms = 0;        // terms of a pair sum
    bool stored = false;    // CSR panels: only stored features were visited
    bool postings = false;
    bool from_products = false;  // squared distances as |x|^2 + |s|^2 - 2 x.s of unscaled values
};

// The Euclidean norm, or where that may have underflowed the bound that the sum of magnitudes is.
double safe_norm(double sq_norm, double norm1) noexcept;

// Of a dense row, from the sums over its packed values.
RowNorms dense_norms(double sq_norm, double norm1, int d) noexcept;

// Lengthens `longest` to what the other row needs.
inline void grow(RowNorms& longest, const RowNorms& row) noexcept {
    longest.centred2 = row.centred2 > longest.centred2 ? row.centred2 : longest.centred2;
    longest.stored2 = row.stored2 > longest.stored2 ? row.stored2 : longest.stored2;
    longest.norm1 = row.norm1 > longest.norm1 ? row.norm1 : longest.norm1;
}

// The exponent T such that all kernel values below 2^-T together change no score by more than about 2^-20.
double near_exponent(const Machine& machine) noexcept;

RowBound bound_f32(const Machine& machine, const HotTable& hot, const RowNorms& row) noexcept;
// The relative part alone, for kernel values whose exponents (of 2) are all at most `largest_exponent`; kernels that
// decrease with distance.
double relative_f32(const Machine& machine, const HotTable& hot, const RowNorms& row, double largest_exponent) noexcept;
RowBound bound_f64(const Machine& machine, const RowNorms& row) noexcept;

}  // namespace svelto
