// Rounding bounds: how far a computed score can be from the machine's float64 score. docs/exactness.md derives them.
#pragma once

#include "hot.hpp"
#include "machine.hpp"

namespace svelto {

// |computed - reference| <= relative * magnitude + absolute * coef_sum + constant, where magnitude is the computed
// sum |weight| * value of the score.
struct RowBound {
    double relative = 0.0;
    double absolute = 0.0;
    double constant = 0.0;
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

RowBound bound_f32(const Machine& machine, const HotTable& hot, const RowNorms& row) noexcept;
RowBound bound_f64(const Machine& machine, const RowNorms& row) noexcept;

}  // namespace svelto
