#include "reference.hpp"

#include <cmath>

// Compiled without contraction: LIBSVM's builds round after every operation.

namespace svelto {
namespace {

double power(double base, int times) noexcept {
    double tmp = base, result = 1.0;
    for (int t = times; t > 0; t /= 2) {
        if (t % 2 == 1) result *= tmp;
        tmp = tmp * tmp;
    }
    return result;
}

// The kernel value from the pair sum (product, squared distance or L1 distance).
double finish(const Machine& m, double sum) noexcept {
    const Reference& r = m.reference;
    switch (m.kernel) {
        case KernelKind::rbf:
        case KernelKind::laplacian:
            return std::exp(-r.gamma * sum);
        case KernelKind::exponential:
            return std::exp(-r.gamma * std::sqrt(sum));
        case KernelKind::poly:
            return power(r.gamma * sum + r.coef0, r.degree);
        case KernelKind::sigmoid:
            return std::tanh(r.gamma * sum + r.coef0);
        case KernelKind::linear:
            break;
    }
    return sum;
}

// What one feature adds; a missing feature is a zero.
double feature(KernelKind kernel, double x, double s) noexcept {
    switch (kernel) {
        case KernelKind::rbf:
        case KernelKind::exponential:
            return (x - s) * (x - s);
        case KernelKind::laplacian:
            return std::fabs(x - s);
        case KernelKind::poly:
        case KernelKind::sigmoid:
        case KernelKind::linear:
            break;
    }
    return x * s;
}

}  // namespace

void reference_kernel(const Machine& m, const double* x, double* values) noexcept {
    for (int i = 0; i < m.n_sv; ++i) {
        double sum = 0.0;
        if (m.reference.row_start == nullptr) {
            const double* s = m.reference.vectors + static_cast<std::ptrdiff_t>(i) * m.d;
            for (int k = 0; k < m.d; ++k) sum += feature(m.kernel, x[k], s[k]);
        } else {
            std::int64_t at = m.reference.row_start[i];
            const std::int64_t end = m.reference.row_start[i + 1];
            for (int k = 0; k < m.d; ++k) {
                const bool stored = at < end && m.reference.columns[at] == k;
                sum += feature(m.kernel, x[k], stored ? m.reference.vectors[at] : 0.0);
                if (stored) ++at;
            }
        }
        values[i] = finish(m, sum);
    }
}

void reference_kernel_stored(const Machine& m, const std::int32_t* columns, const double* x, int n,
                             double* values) noexcept {
    for (int i = 0; i < m.n_sv; ++i) {
        double sum = 0.0;
        std::int64_t at = m.reference.row_start[i];
        const std::int64_t end = m.reference.row_start[i + 1];
        int k = 0;
        while (k < n || at < end) {
            if (at >= end || (k < n && columns[k] < m.reference.columns[at])) {
                sum += feature(m.kernel, x[k++], 0.0);
            } else if (k >= n || m.reference.columns[at] < columns[k]) {
                sum += feature(m.kernel, 0.0, m.reference.vectors[at++]);
            } else {
                sum += feature(m.kernel, x[k++], m.reference.vectors[at++]);
            }
        }
        values[i] = finish(m, sum);
    }
}

void reference_scores(const Machine& m, const double* values, double* scores) noexcept {
    const Reference& r = m.reference;
    const auto add = [&](double& sum, int row, int first, int last) {
        const double* coef = r.dual_coef + static_cast<std::ptrdiff_t>(row) * m.n_sv;
        for (int i = first; i < last; ++i) sum += coef[i] * values[i];
    };
    if (r.class_start != nullptr) {
        int p = 0;
        for (int i = 0; i < m.n_classes; ++i) {
            for (int j = i + 1; j < m.n_classes; ++j, ++p) {
                double sum = 0.0;
                add(sum, j - 1, r.class_start[i], r.class_start[i + 1]);
                add(sum, i, r.class_start[j], r.class_start[j + 1]);
                scores[p] = sum + m.intercept[p];
            }
        }
        return;
    }
    for (int c = 0; c < m.n_scores; ++c) {
        double sum = 0.0;
        add(sum, c, 0, m.n_sv);
        scores[c] = sum + m.intercept[c];
    }
}

}  // namespace svelto
