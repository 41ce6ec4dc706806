#include "local_gram.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

// Compiled without contraction: norms must round as the products of the hot functions do, so that equal rows have the
// distance 0.

namespace svelto {
namespace {

constexpr double kLog2E = 1.4426950408889634074;
// Squares up to this size leave room for the sums of two norms and a product.
constexpr double kLargestSquare = 1e300;
// Exponents of a polynomial's range: far from the ends of a double, for weights are divided by it.
constexpr int kLargestExponent = 900;
// rbf: a factor beyond it makes every distance that is not zero infinite.
constexpr double kLargestFactor = 1e37;
// Rows are spread over memory: they are asked for this many ahead.
constexpr int kAhead = 8;

// The exponent of the smallest power of two that is not below x; 0 for 0.
int ceil_exponent(double x) {
    if (!(x > 0.0)) return 0;
    int exponent = 0;
    const double mantissa = std::frexp(x, &exponent);
    return std::clamp(mantissa == 0.5 ? exponent - 1 : exponent, -kLargestExponent, 1020);
}

}  // namespace

void LocalGram::load(const LocalRows& rows, const std::int64_t* numbers, int n, const LocalKernel& kernel,
                     bool keep_pairs, const HotTable& hot) {
    hot_ = &hot;
    kernel_form_ = kernel;
    keep_pairs_ = keep_pairs;
    n_ = n;
    packed_.n_blocks = (n + kLocalBlock - 1) / kLocalBlock;
    centre_.assign(static_cast<std::size_t>(rows.n_features), 0.0);
    if (rows.is_float32)
        pack(static_cast<const float*>(rows.data), rows.n_features, numbers);
    else
        pack(static_cast<const double*>(rows.data), rows.n_features, numbers);
    measure();
    const std::size_t size = static_cast<std::size_t>(n) * static_cast<std::size_t>(n_padded());
    kernel_.reserve(size);
    if (keep_pairs_) {
        pairs_.reserve(size);
        pairs_ready_.assign(static_cast<std::size_t>(n), 0);
    }
}

template <class T>
void LocalGram::pack(const T* data, std::int64_t stride, const std::int64_t* numbers) {
    const auto d = static_cast<int>(stride);
    const bool centred = kernel_form_.kind != KernelKind::poly;
    if (centred)
        for (int k = 0; k < d; ++k)
            centre_[static_cast<std::size_t>(k)] = static_cast<double>(data[numbers[0] * stride + k]);
    const std::vector<T> first(centre_.begin(), centre_.end());
    std::vector<T> varies(first.size());  // 1 or 0, in the type of the rows: so the loop goes into vector registers
    for (int i = 0; i < n_; ++i) {
        if (i + kAhead < n_) {
            const char* line = reinterpret_cast<const char*>(data + numbers[i + kAhead] * stride);
            for (std::int64_t at = 0; at < stride * static_cast<std::int64_t>(sizeof(T)); at += 64)
                __builtin_prefetch(line + at);
        }
        const T* x = data + numbers[i] * stride;
        for (std::size_t k = 0; k < varies.size(); ++k) varies[k] = x[k] != first[k] ? T{1} : varies[k];
    }
    features_.clear();
    for (int k = 0; k < d; ++k)
        if (varies[static_cast<std::size_t>(k)] != T{0}) features_.push_back(k);
    packed_.n_features = static_cast<int>(features_.size());
    const std::size_t size = static_cast<std::size_t>(n_padded()) * features_.size();
    blocks_.reserve(std::max<std::size_t>(size, 1));
    packed_.blocks = blocks_.get();
    const std::ptrdiff_t block_size = static_cast<std::ptrdiff_t>(features_.size()) * kLocalBlock;
    for (int i = 0; i < n_padded(); ++i) {
        double* to = blocks_.get() + i / kLocalBlock * block_size + i % kLocalBlock;
        const T* x = data + numbers[std::min(i, n_ - 1)] * stride;
        for (const int k : features_) {
            *to = i < n_ ? static_cast<double>(x[k]) - centre_[static_cast<std::size_t>(k)] : 0.0;
            to += kLocalBlock;
        }
    }
}

// Norms, summed as the hot functions sum products.
void LocalGram::measure() {
    const auto padded = static_cast<std::size_t>(n_padded());
    sq_norms_.reserve(padded);
    std::fill_n(sq_norms_.get(), padded, 0.0);
    packed_.sq_norms = sq_norms_.get();
    const double* x = blocks_.get();
    for (int block = 0; block < packed_.n_blocks; ++block) {
        double* norm = sq_norms_.get() + block * kLocalBlock;
        for (int k = 0; k < packed_.n_features; ++k, x += kLocalBlock)
            for (int l = 0; l < kLocalBlock; ++l) norm[l] += x[l] * x[l];
    }
    largest_norm_ = 0.0;
    for (int i = 0; i < n_; ++i) {
        const double norm = sq_norms_.get()[i];
        if (!(norm < kLargestSquare)) throw std::overflow_error("squares of the values overflow");
        largest_norm_ = std::max(largest_norm_, norm);
    }
    packed_.scale = std::ldexp(1.0, -ceil_exponent(largest_norm_));
    pair_diagonal_.reserve(padded);
    diagonal_.reserve(padded);
    const bool squared = kernel_form_.kind == KernelKind::rbf;
    for (std::size_t i = 0; i < padded; ++i)
        pair_diagonal_.get()[i] = squared ? 0.0f : static_cast<float>(sq_norms_.get()[i] * packed_.scale);
}

void LocalGram::set_gamma(double gamma) {
    pair_kernel_ = {kernel_form_.kind, 0.0f, 0.0f, 1};
    factor_ = 1.0;
    if (kernel_form_.kind == KernelKind::rbf) {
        pair_kernel_.factor = static_cast<float>(-std::min(gamma / packed_.scale * kLog2E, kLargestFactor));
    } else if (kernel_form_.kind == KernelKind::linear) {
        factor_ = 1.0 / packed_.scale;
    } else {
        // Values are kept below 1 in magnitude: powers of large numbers would be out of float32's range.
        const int exponent = ceil_exponent(gamma * largest_norm_ + std::abs(kernel_form_.coef0));
        if (std::abs(exponent) > kLargestExponent / std::max(kernel_form_.degree, 1))
            throw std::overflow_error("kernel values overflow");
        const double largest = std::ldexp(1.0, exponent);
        pair_kernel_.factor = static_cast<float>(gamma / packed_.scale / largest);
        pair_kernel_.shift = static_cast<float>(kernel_form_.coef0 / largest);
        pair_kernel_.degree = kernel_form_.degree;
        factor_ = std::ldexp(1.0, exponent * kernel_form_.degree);
    }
    hot_->kernel_row(pair_kernel_, pair_diagonal_.get(), n_padded(), diagonal_.get());
    ready_.assign(static_cast<std::size_t>(n_), 0);
}

void LocalGram::compute(int i) {
    const auto at = static_cast<std::size_t>(i);
    const std::ptrdiff_t start = static_cast<std::ptrdiff_t>(i) * n_padded();
    const bool squared = kernel_form_.kind == KernelKind::rbf;
    float* pairs = (keep_pairs_ ? pairs_ : kernel_).get() + start;
    if (!keep_pairs_ || pairs_ready_[at] == 0) {
        hot_->pair_row(packed_, i, squared, pairs);
        if (keep_pairs_) pairs_ready_[at] = 1;
    }
    hot_->kernel_row(pair_kernel_, pairs, n_padded(), kernel_.get() + start);
    ready_[at] = 1;
}

double LocalGram::centre_product(int i) const {
    const std::ptrdiff_t block_size = static_cast<std::ptrdiff_t>(features_.size()) * kLocalBlock;
    const double* x = blocks_.get() + i / kLocalBlock * block_size + i % kLocalBlock;
    double sum = 0.0;
    for (const int k : features_) {
        sum += *x * centre_[static_cast<std::size_t>(k)];
        x += kLocalBlock;
    }
    return sum;
}

void SubGram::select(LocalGram& full, const std::vector<int>& positions) {
    full_ = &full;
    positions_ = positions;
    whole_ = static_cast<int>(positions.size()) == full.size();
    n_padded_ = (size() + kLocalBlock - 1) / kLocalBlock * kLocalBlock;
    if (whole_) return;
    const auto padded = static_cast<std::size_t>(n_padded_);
    ready_.assign(positions_.size(), 0);
    rows_.reserve(positions_.size() * padded);
    diagonal_.reserve(padded);
    std::fill_n(diagonal_.get(), padded, 0.0f);
    for (std::size_t k = 0; k < positions_.size(); ++k) diagonal_.get()[k] = full.diagonal()[positions_[k]];
}

void SubGram::gather(int i) {
    const float* from = full_->row(position(i));
    float* to = rows_.get() + static_cast<std::ptrdiff_t>(i) * n_padded_;
    for (std::size_t k = 0; k < positions_.size(); ++k) to[k] = from[positions_[k]];
    std::fill(to + positions_.size(), to + n_padded_, 0.0f);
    ready_[static_cast<std::size_t>(i)] = 1;
}

}  // namespace svelto
