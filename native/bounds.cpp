#include "bounds.hpp"

#include <algorithm>
#include <cmath>

namespace svelto {
namespace {

constexpr double kUnit32 = 0x1p-24;
constexpr double kUnit64 = 0x1p-53;
constexpr double kLog2E = 1.4426950408889634;

// The vectorised 2^t is off by less than this many units (tests/test_native.py measures both over their whole range).
constexpr double kExpUnits = 4.0;

// Second-order terms: every bound below is a first-order sum, enlarged by this much.
constexpr double kSlack = 1.01;

struct Arithmetic {
    double unit;
    double max_exponent;  // kernel values below 2^-max_exponent count as absolute error
    double input_error;   // relative rounding of the packed values
    double sum_depth;     // additions one after the other in the weighted sum
};

// Error of the exponent t (of 2) of one kernel value, for every support vector at once.
double exponent_error(const Machine& m, PairKind pair, double scale, const VectorStats& s, const RowNorms& x,
                      const Arithmetic& a) noexcept {
    const double terms = x.n_terms + 4.0;
    if (pair == PairKind::abs_diff) {
        // |x - s| from rounded inputs, then a sum of n terms; CSR rows subtract |s| again, hence s twice.
        const double inputs = a.input_error * (x.norm1 + s.norm1);
        return std::fabs(scale) * (inputs + 2.0 * terms * a.unit * (x.norm1 + 2.0 * s.norm1));
    }
    if (pair == PairKind::sq_diff) {
        // Only distances with a kernel value above the floor matter: their exponent is at most max_exponent.
        const double rate = std::max(std::fabs(scale), 1e-300);
        const double inputs = a.input_error * (x.centred2 + s.norm2);
        const double farthest = x.centred2 + s.norm2;
        if (m.kernel == KernelKind::exponential) {
            const double dist = std::min(farthest, a.max_exponent / rate);
            return rate * (inputs + a.unit * (0.5 * terms + 4.0) * dist);
        }
        const double dist = std::min(farthest, std::sqrt(a.max_exponent / rate));
        return rate * (2.0 * dist * inputs + inputs * inputs + a.unit * (terms + 4.0) * dist * dist);
    }
    // rbf from products; packed values are scaled so that t = x.s - |x|^2/2 - |s|^2/2.
    const double farthest = x.centred2 + s.norm2;
    const double inputs = a.input_error * (x.stored2 + s.norm2);
    const double products = terms * x.stored2 * s.norm2;
    const double constants =
        s.norm2 * s.norm2 + 2.0 * s.centre2 * s.norm2 + x.centred2 * x.centred2 + farthest * farthest;
    return inputs * std::min(farthest, std::sqrt(2.0 * a.max_exponent)) + inputs * inputs +
           a.unit * (products + constants);
}

// The reference itself (LIBSVM's order, float64) is not exact either; its distance to the true value.
RowBound reference_error(const Machine& m) noexcept {
    const double sum = (m.n_sv + 8.0) * kUnit64;
    if (m.kernel == KernelKind::poly || m.kernel == KernelKind::sigmoid || m.kernel == KernelKind::linear) return {};
    return {sum + (m.d + 8.0) * 750.0 * kUnit64, 0x1p-1020, 0.0};
}

// poly, sigmoid, linear: errors are absolute, from the largest possible |x.s|.
RowBound product_kernel(const Machine& m, double max_product, double terms, double unit, double sum_depth,
                        double coef0) noexcept {
    const double inner = max_product + std::fabs(coef0);
    // Both sides round: our products and the reference's, each with at most d + 4 roundings in their own unit.
    const double inner_error = (unit * (terms + 4.0) + kUnit64 * (m.d + 8.0)) * inner;
    const double sums = unit * (sum_depth + 4.0) + kUnit64 * (m.n_sv + 8.0);
    if (m.kernel == KernelKind::linear) return {0.0, inner_error + sums * inner, 0.0};
    if (m.kernel == KernelKind::sigmoid) return {0.0, kSlack * (inner_error + 8.0 * unit + sums), 0.0};
    const double p = m.reference.degree;
    const double largest = std::pow(inner + inner_error, p);
    const double slope = p == 0.0 ? 0.0 : p * std::pow(inner + inner_error, p - 1.0);
    return {0.0, kSlack * (slope * inner_error + (2.0 * p * unit + sums) * largest), 0.0};
}

RowBound combine(const Machine& m, double exponent, const Arithmetic& a) noexcept {
    const RowBound reference = reference_error(m);
    const double value = std::exp2(kSlack * exponent) - 1.0;
    const double relative = value + a.unit * (kExpUnits + a.sum_depth + 4.0) * (1.0 + value);
    return {kSlack * (relative + reference.relative), 2.0 * std::exp2(-a.max_exponent) + reference.absolute, 0.0};
}

}  // namespace

RowBound bound_f32(const Machine& m, const HotTable& hot, const RowNorms& row) noexcept {
    const double lanes = kChunkPanels * kPanelWidth<float> / hot.lanes_f32;
    const double depth = m.f32.by_column ? lanes : 64.0 + 8.0;
    const Arithmetic a{kUnit32, 126.0, kUnit32, depth};
    // Products of small weights and small kernel values may underflow, or be flushed to zero if some library asked for
    // it.
    const double underflow = m.n_sv * m.weight_scale * 0x1p-120;
    if (m.f32.pair == PairKind::dot && m.kernel != KernelKind::rbf) {
        const double terms = row.n_terms + 3.0;  // and the rounding of the packed values
        RowBound bound =
            product_kernel(m, row.stored2 * m.stats32.norm2, terms, kUnit32, depth, static_cast<double>(m.f32.coef0));
        bound.constant = underflow;
        return bound;
    }
    RowBound bound = combine(m, exponent_error(m, m.f32.pair, static_cast<double>(m.f32.scale), m.stats32, row, a), a);
    bound.constant = underflow;
    return bound;
}

RowBound bound_f64(const Machine& m, const RowNorms& row) noexcept {
    // Columns are summed 64 at a time, lanes 64 at a time at the baseline; then double sums over chunks and groups.
    const double depth = 80.0 + m.n_sv / 64.0;
    const Arithmetic a{kUnit64, 1022.0, 0.0, depth};
    if (m.kernel == KernelKind::linear) return product_kernel(m, row.stored2, row.n_terms, kUnit64, depth, 0.0);
    if (m.kernel == KernelKind::poly || m.kernel == KernelKind::sigmoid)
        return product_kernel(m, row.stored2 * m.stats64.norm2, row.n_terms + 1.0, kUnit64, depth, m.f64.coef0);
    if (row.from_products && m.kernel != KernelKind::laplacian) {
        const double reach = row.stored2 + m.stats64.norm2;
        const double sq_dist = kUnit64 * (row.n_terms + m.stats64.terms + 10.0) * 2.0 * reach * reach;
        // Under the square root an error e becomes at most sqrt(e).
        const double dist = m.kernel == KernelKind::exponential ? std::sqrt(sq_dist) + 4.0 * kUnit64 * reach : sq_dist;
        return combine(m, m.reference.gamma * kLog2E * dist, a);
    }
    const PairKind pair = m.kernel == KernelKind::laplacian ? PairKind::abs_diff : PairKind::sq_diff;
    return combine(m, exponent_error(m, pair, m.reference.gamma * kLog2E, m.stats64, row, a), a);
}

}  // namespace svelto
