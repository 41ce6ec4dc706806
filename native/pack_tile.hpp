// Rows of contiguous numbers to padded floats.
#pragma once

#include "simd.hpp"

namespace svelto::SVELTO_NAMESPACE {
namespace {

// As many floats as a vector has doubles.
typedef float HalfVecF __attribute__((vector_size(kVectorBytes / 2), may_alias));

template <class T>
[[gnu::always_inline]] inline VecD read_doubles(const T* from) {
    typedef T Values __attribute__((vector_size(kLanes<double> * sizeof(T))));
    Values values;
    __builtin_memcpy(&values, from, sizeof values);
    return __builtin_convertvector(values, VecD);
}

// to[i][k] = from[i][k] - shift[k], k < d; what stands behind d stays. False where a number is not finite.
template <class T>
inline bool pack_rows(const T* from, std::ptrdiff_t row_stride, int n, int d, const double* shift, float* to,
                      int stride) noexcept {
    constexpr int kStep = kLanes<double>;
    // x - x is 0 for finite x and NaN otherwise, and only 0 has no bit set. Sums of it would wait for each other.
    VecL bits = {};
    std::int64_t bit = 0;
    for (int i = 0; i < n; ++i) {
        const T* row = from + i * row_stride;
        float* packed_row = to + static_cast<std::ptrdiff_t>(i) * stride;
        if (d < kStep) {
            for (int k = 0; k < d; ++k) {
                const double x = static_cast<double>(row[k]);
                bit |= __builtin_bit_cast(std::int64_t, x - x);
                packed_row[k] = static_cast<float>(x - shift[k]);
            }
            continue;
        }
        const auto pack = [&](int k) __attribute__((always_inline)) {
            const VecD x = read_doubles(row + k);
            bits |= reinterpret_cast<VecL>(x - x);
            const HalfVecF packed = __builtin_convertvector(x - read_doubles(shift + k), HalfVecF);
            __builtin_memcpy(packed_row + k, &packed, sizeof packed);
        };
        int k = 0;
        for (; k + kStep <= d; k += kStep) pack(k);
        if (k < d) pack(d - kStep);  // the last ones, some of them a second time
    }
    for (int k = 0; k < kStep; ++k) bit |= bits[k];
    return bit == 0;
}

}  // namespace
}  // namespace svelto::SVELTO_NAMESPACE
