#include "bounds.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace svelto {
namespace {

constexpr double kUnit32 = 0x1p-24;
constexpr double kUnit64 = 0x1p-53;
constexpr double kLn2 = 0.6931471805599453;
constexpr double kLog2E = 1.4426950408889634;
constexpr double kInfinite = std::numeric_limits<double>::infinity();

// The exponent of the smallest normal float: kernel values below 2^-kFloor32 are clamped to it.
constexpr double kFloor32 = 126.0;

// The vectorised 2^t is off by less than this many units (tests/test_native.py measures both over their whole range).
constexpr double kExpUnits = 4.0;

// Second-order terms: every bound below is a first-order sum, enlarged by this much. That is enough while the number of
// roundings in a row, times the unit, stays below kMostRounding.
constexpr double kSlack = 1.01;
constexpr double kMostRounding = 0.005;

// Beyond this error of an exponent neither the argument nor the vectorised 2^t holds.
constexpr double kLargestExponentError = 2.0;

// Largest error of the reference's exponents, from squares that underflow, that still is a small error of its values.
constexpr double kLargestUnderflow = 1e-3;

// Values that may come near the largest double: the reference itself may overflow, so only it can decide.
constexpr double kOverflow = 1e290;

struct Arithmetic {
    double unit;
    double max_exponent;  // kernel values below 2^-max_exponent count as absolute error
    double input_error;   // relative rounding of the packed values
    double input_tiny;    // absolute error of a packed value below the smallest normal number
    double tiny;          // absolute error of one product that underflows
    double sum_depth;     // additions one after the other in the weighted sum
};

// Roundings that one feature's term passes through in pair_sums (blocks of kFeatureBlock, then a sum over blocks).
double feature_depth(int n) noexcept {
    return n <= kFeatureBlock ? n : kFeatureBlock + (n + kFeatureBlock - 1) / kFeatureBlock - 1;
}

struct ExponentError {
    double error;    // of the exponent of 2
    double largest;  // exponent
};

// Whether the reference's raw distances may overflow; `far` is in the units of the packing.
bool may_overflow(const Machine& m, double far, double row_scale) noexcept {
    const double raw = far / std::fabs(row_scale);
    return !((m.kernel == KernelKind::laplacian ? raw : raw * raw) < kOverflow);
}

// Error of the exponent t (of 2) of one kernel value, for every support vector at once.
ExponentError exponent_error(const Machine& m, PairKind pair, double scale, double row_scale, const VectorStats& s,
                             const RowNorms& x, const Arithmetic& a) noexcept {
    const double depth = x.postings ? x.n_terms : feature_depth(x.n_terms);
    const double n = m.d;
    const double rate = std::fabs(scale);
    if (pair == PairKind::abs_diff) {
        // |x - s| from rounded inputs, then a sum; stored features also take |s| off, postings |x| and |s|.
        const double far = x.norm1 + s.norm1;
        if (may_overflow(m, far + n * a.input_tiny, row_scale)) return {kInfinite, kInfinite};
        const double inputs = a.input_error * far + n * a.input_tiny;
        const double t = std::min(rate * far, a.max_exponent);
        if (!x.stored && !x.postings) return {rate * inputs + a.unit * (depth + 5.0) * t, t};
        const double sums =
            x.postings ? (2.0 * depth + 4.0) * x.norm1 + 4.0 * s.norm1 : (depth + 2.0) * x.norm1 + 2.0 * s.norm1;
        const double constant = kUnit64 * s.terms * s.norm1;
        return {rate * (inputs + a.unit * sums + constant) + a.unit * 5.0 * t, t};
    }
    if (pair == PairKind::sq_diff) {
        // Only distances with a kernel value above the floor matter: their exponent is at most max_exponent.
        // So is their vectors' length, by the triangle inequality.
        const double far = x.centred2 + s.norm2;
        if (may_overflow(m, far + n * a.input_tiny, row_scale)) return {kInfinite, kInfinite};
        const double relevant = a.max_exponent / rate;  // distance, or its square
        const double nearest = m.kernel == KernelKind::exponential ? relevant : std::sqrt(relevant);
        const double reach = std::min(s.norm2, x.centred2 + nearest);
        const double inputs = a.input_error * (x.centred2 + reach) + std::sqrt(n) * a.input_tiny;
        if (m.kernel == KernelKind::exponential) {
            const double t = std::min(rate * far, a.max_exponent);
            return {rate * (inputs + std::sqrt(2.0 * n * a.tiny)) + a.unit * (0.5 * depth + 6.0) * t, t};
        }
        const double t = std::min(rate * far * far, a.max_exponent);
        const double dist = std::sqrt(t * rate);  // rate * distance
        return {2.0 * dist * inputs + rate * (inputs * inputs + n * a.tiny) + a.unit * (depth + 6.0) * t, t};
    }
    // rbf from products; packed values are scaled so that t = x.s - |x|^2/2 - |s|^2/2.
    const double far = x.centred2 + s.norm2;
    if (may_overflow(m, far + n * a.input_tiny, row_scale)) return {kInfinite, kInfinite};
    const double nearest = std::sqrt(2.0 * a.max_exponent);
    const double reach = std::min(s.norm2, x.centred2 + nearest);  // longer vectors have no value above the floor
    const double dist = std::min(far, nearest);
    const double inputs = a.input_error * (x.stored2 + reach) + std::sqrt(n) * a.input_tiny;
    const double products = depth * x.stored2 * reach;
    const double constants =
        0.5 * reach * reach + (x.stored ? s.centre2 * reach : 0.0) + x.centred2 * x.centred2 + dist * dist;
    const double shifted = x.stored2 + s.centre2;
    const double centre = x.stored ? kUnit64 * (n + x.n_terms + 8.0) * shifted * shifted : 0.0;
    return {inputs * dist + inputs * inputs + a.unit * (products + constants) + centre + n * a.tiny, 0.5 * far * far};
}

// The reference (LIBSVM's order, float64): relative distance of its kernel values to the true ones.
RowBound reference_error(const Machine& m, double largest) noexcept {
    const double z = kLn2 * std::min(largest, 1080.0) + 1.0;
    double relative = kUnit64 * ((m.d + 6.0) * z + m.n_sv + 8.0);
    // Squares that underflow: their sum is off by d of the smallest numbers, its root by the root of that. Where this
    // is no small error of the exponent, the reference may have 1 for what is 0, and no bound in terms of values holds.
    double underflow = 0.0;
    if (m.kernel == KernelKind::exponential) underflow = m.reference.gamma * std::sqrt(2.0 * m.d) * 0x1p-537;
    if (m.kernel == KernelKind::rbf) underflow = m.reference.gamma * m.d * 0x1p-1074;
    if (!(underflow < kLargestUnderflow)) return {kInfinite, kInfinite, kInfinite};
    return {relative + underflow, 0x1p-1020, 0.0};
}

// poly, sigmoid, linear: errors are absolute, from the largest possible |x.s|.
RowBound product_kernel(const Machine& m, double x2, double s2, const RowNorms& x, double roundings,
                        const Arithmetic& a, double coef0) noexcept {
    const double product = x2 * s2;
    const double inner = product + std::fabs(coef0);
    // The reference multiplies the raw vectors first.
    const double raw =
        m.kernel == KernelKind::linear ? x2 * m.vector_norm : (product + 1e-300) / std::fabs(m.reference.gamma);
    if (!(inner < kOverflow) || !(raw < kOverflow) || feature_depth(m.d) * a.unit > kMostRounding)
        return {0.0, kInfinite, 0.0};
    const double depth = x.postings ? x.n_terms : feature_depth(x.n_terms);
    const double n = m.d;
    const double tiny =
        n * a.tiny + std::sqrt(n) * a.input_tiny * (x2 + s2) + n * (std::fabs(m.reference.gamma) + 1.0) * 0x1p-1073;
    const double inner_error =
        a.unit * ((depth + roundings) * product + 2.0 * std::fabs(coef0)) + kUnit64 * (n + 3.0) * inner + tiny;
    const double sums = a.unit * (a.sum_depth + 4.0) + kUnit64 * (m.n_sv + 4.0);
    if (m.kernel == KernelKind::linear)
        return {0.0, kSlack * kUnit64 * (depth + n + 2.0 * m.n_sv + 8.0) * product,
                (m.n_sv + n + 2.0) * (x.norm1 + m.coef_total + 1.0) * 0x1p-1073};
    if (m.kernel == KernelKind::sigmoid) return {0.0, kSlack * (inner_error + 8.0 * a.unit + sums), 0.0};
    const double p = m.reference.degree;
    const double largest = std::pow(inner + inner_error, p);
    const double slope = p == 0.0 ? 0.0 : p * std::pow(inner + inner_error, p - 1.0);
    return {0.0, kSlack * (slope * inner_error + (p * (a.unit + kUnit64) + sums) * largest), 0.0};
}

RowBound combine(const Machine& m, ExponentError e, const Arithmetic& a) noexcept {
    if (!(e.error < kLargestExponentError) || feature_depth(m.d) * a.unit > kMostRounding)
        return {kInfinite, kInfinite, kInfinite};
    const RowBound reference = reference_error(m, e.largest);
    // 2^e - 1 <= e ln 2 (1 + e) for 0 <= e <= 1.
    const double grown = kSlack * e.error;
    const double value = grown < 1.0 ? grown * kLn2 * (1.0 + grown) : std::exp2(grown) - 1.0;
    const double relative = value + a.unit * (kExpUnits + a.sum_depth + 4.0) * (1.0 + value);
    return {kSlack * (relative + reference.relative), 2.0 * std::exp2(-a.max_exponent) + reference.absolute, 0.0};
}

}  // namespace

double near_exponent(const Machine& m) noexcept {
    const double largest = *std::max_element(m.coef_sum, m.coef_sum + m.n_scores);
    return std::clamp(21.0 + std::ceil(std::log2(std::max(largest, 1.0))), 24.0, kFloor32);
}

double safe_norm(double sq_norm, double norm1) noexcept {
    return sq_norm < 1e-250 ? norm1 : std::sqrt(sq_norm);
}

RowNorms dense_norms(double sq_norm, double norm1, int d) noexcept {
    const double norm2 = safe_norm(sq_norm, norm1);
    return {norm2, norm2, norm1, d, false, false, false};
}

namespace {

Arithmetic arithmetic_f32(const Machine& m, const HotTable& hot, double max_exponent) noexcept {
    const double lanes = kChunkPanels * kPanelWidth<float> / hot.lanes_f32;
    const double depth = m.f32.by_column ? lanes : 64.0 + 8.0;
    return {kUnit32, max_exponent, kUnit32, 0x1p-126, 0x1p-126, depth};
}

RowBound decreasing_f32(const Machine& m, const RowNorms& row, const Arithmetic& a) noexcept {
    const double scale = static_cast<double>(m.f32.scale);
    return combine(m, exponent_error(m, m.f32.pair, scale, m.row_scale32, m.stats32, row, a), a);
}

}  // namespace

RowBound bound_f32(const Machine& m, const HotTable& hot, const RowNorms& row) noexcept {
    const Arithmetic a = arithmetic_f32(m, hot, kFloor32);
    RowBound bound;
    if (m.f32.pair == PairKind::dot && m.kernel != KernelKind::rbf) {
        bound = product_kernel(m, row.stored2, m.stats32.norm2, row, 3.0, a, static_cast<double>(m.f32.coef0));
    } else {
        bound = decreasing_f32(m, row, a);
        const RowBound near = decreasing_f32(m, row, arithmetic_f32(m, hot, m.near_exponent));
        // An error of the exponent above 1/2 would spoil the argument that larger exponents stay below 2^-T.
        if (near.relative < 0.4) {
            bound.near_relative = near.relative;
            bound.near_absolute = near.absolute;
        }
    }
    // Products of small weights and small kernel values may underflow.
    bound.constant += m.n_sv * m.weight_scale * 0x1p-120;
    return bound;
}

double relative_f32(const Machine& m, const HotTable& hot, const RowNorms& row, double largest_exponent) noexcept {
    return decreasing_f32(m, row, arithmetic_f32(m, hot, std::min(largest_exponent, kFloor32))).relative;
}

RowBound bound_f64(const Machine& m, const RowNorms& row) noexcept {
    // Columns are summed 64 at a time, lanes 64 at a time at the baseline; then double sums over chunks and groups.
    const double depth = 80.0 + m.n_sv / 64.0;
    const Arithmetic a{kUnit64, 1022.0, 0.0, 0.0, 0x1p-1073, depth};
    if (m.kernel == KernelKind::linear) return product_kernel(m, row.stored2, 1.0, row, 2.0, a, 0.0);
    if (m.kernel == KernelKind::poly || m.kernel == KernelKind::sigmoid) {
        Arithmetic b = a;
        b.input_tiny = 0x1p-1073;
        return product_kernel(m, row.stored2, m.stats64.norm2, row, 2.0, b, m.f64.coef0);
    }
    const double rate = m.reference.gamma * kLog2E;
    if (row.from_products && m.kernel != KernelKind::laplacian) {
        const double reach = row.stored2 + m.stats64.norm2;
        const double far2 = reach * reach;
        if (!(far2 < kOverflow)) return {kInfinite, kInfinite, kInfinite};
        const double sq_dist =
            kUnit64 * (std::max<double>(row.n_terms, m.stats64.terms) + 8.0) * far2 + 4.0 * m.d * 0x1p-1073;
        // Under the square root an error e becomes at most sqrt(e).
        const double far = m.kernel == KernelKind::exponential ? reach : far2;
        const double dist = m.kernel == KernelKind::exponential ? std::sqrt(sq_dist) : sq_dist;
        const double t = std::min(rate * far, 1022.0);
        return combine(m, {rate * dist + 6.0 * kUnit64 * t, t}, a);
    }
    const PairKind pair = m.kernel == KernelKind::laplacian ? PairKind::abs_diff : PairKind::sq_diff;
    return combine(m, exponent_error(m, pair, rate, 1.0, m.stats64, row, a), a);
}

}  // namespace svelto
