// A Cholesky factor whose rows come and go, as an active-set method needs it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "lane_dot.hpp"

namespace svelto {

// L of a symmetric positive definite matrix A = L L'. A row is added at the end or removed anywhere in O(size^2).
class FreeFactor {
  public:
    explicit FreeFactor(int capacity)
        : stride_(static_cast<std::size_t>(capacity)), factor_(stride_ * stride_), cosine_(stride_), sine_(stride_) {}

    int size() const { return size_; }
    void clear() { size_ = 0; }

    // Adds a row: A's products with the rows that are in, and with itself. False, and nothing is added, where at most
    // `smallest` of the latter is left: the row then is a combination of the others.
    bool add(const double* column, double own, double smallest) {
        if (index(size_) == stride_) return false;
        double* last = row(size_);
        for (int i = 0; i < size_; ++i) last[i] = (column[i] - lane_dot(row(i), last, index(i))) / row(i)[i];
        const double rest = own - lane_dot(last, last, index(size_));
        if (!(rest > smallest)) return false;
        last[size_] = std::sqrt(rest);
        ++size_;
        return true;
    }

    // Rows below move up; each then has one element beyond the diagonal, which a rotation of two columns takes away.
    void remove(int position) {
        for (int i = position; i + 1 < size_; ++i) {
            double* to = row(i);
            const double* from = row(i + 1);
            std::copy(from, from + position, to);
            double carry = from[position];
            for (int k = position; k < i; ++k) {
                const double next = from[k + 1], c = cosine_[index(k)], s = sine_[index(k)];
                to[k] = c * carry + s * next;
                carry = c * next - s * carry;
            }
            const double next = from[i + 1], length = std::hypot(carry, next);
            cosine_[index(i)] = carry / length;
            sine_[index(i)] = next / length;
            to[i] = length;
        }
        --size_;
    }

    // values <- A^-1 values.
    void solve(double* values) const {
        for (int i = 0; i < size_; ++i) {
            const double* l = row(i);
            values[i] = (values[i] - lane_dot(l, values, index(i))) / l[i];
        }
        for (int i = size_ - 1; i >= 0; --i) {
            const double* l = row(i);
            const double value = values[i] /= l[i];
            for (int k = 0; k < i; ++k) values[k] -= l[k] * value;
        }
    }

  private:
    static std::size_t index(int i) { return static_cast<std::size_t>(i); }
    double* row(int i) { return factor_.data() + index(i) * stride_; }
    const double* row(int i) const { return factor_.data() + index(i) * stride_; }

    std::size_t stride_;
    int size_ = 0;
    std::vector<double> factor_;  // [capacity][capacity], lower triangle
    std::vector<double> cosine_, sine_;
};

}  // namespace svelto
