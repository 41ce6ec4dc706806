// Rows of contiguous numbers to padded floats, and rows in CSR form to stored features.
#pragma once

#include <cstdint>
#include <type_traits>

#include "simd.hpp"
#include "tree.hpp"

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

// Asks for numbers that will be read soon.
template <class T>
[[gnu::always_inline]] inline void fetch(const T* from, int n) {
    constexpr int kLine = 64 / static_cast<int>(sizeof(T));
    for (int k = 0; k < n; k += kLine) __builtin_prefetch(from + k, 0, 2);
}

// to[i][k] = from[i][k] - shift[k], k < d; what stands behind d stays. False where a number is not finite. The
// n_ahead <= n rows behind these are fetched: whoever asks for them next would wait for them else, because what is done
// with a block takes longer than the processor looks ahead.
template <class T>
inline bool pack_rows(const T* from, std::ptrdiff_t row_stride, int n, int n_ahead, int d, const double* shift,
                      float* to, int stride) noexcept {
    constexpr int kStep = kLanes<double>;
    // x - x is 0 for finite x and NaN otherwise, and only 0 has no bit set. Sums of it would wait for each other.
    VecL bits = {};
    std::int64_t bit = 0;
    for (int i = 0; i < n; ++i) {
        const T* row = from + i * row_stride;
        if (i < n_ahead) fetch(row + n * row_stride, d);
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

// n features of rows that follow each other, each as a float and its column. False where a number is not finite or a
// column is outside 0 .. d - 1; n_steps counts the columns that are larger than the one before. Loops of one thing
// each, which compilers turn into vectors.
template <class T, class Int>
inline bool pack_features(const T* data, const Int* columns, std::int64_t n, int d, StoredFeature* to,
                          std::int64_t& n_steps) noexcept {
    using Bits = std::conditional_t<sizeof(T) == 8, std::int64_t, std::int32_t>;
    Bits bits = 0;  // as in pack_rows
    for (std::int64_t k = 0; k < n; ++k) bits |= __builtin_bit_cast(Bits, data[k] - data[k]);
    std::int32_t outside = 0, steps = 0;
    for (std::int64_t k = 0; k < n; ++k) outside |= (columns[k] < 0) | (columns[k] >= d);
    for (std::int64_t k = 1; k < n; ++k) steps += columns[k] > columns[k - 1];
    for (std::int64_t k = 0; k < n; ++k) to[k] = {static_cast<float>(data[k]), static_cast<std::int32_t>(columns[k])};
    n_steps = steps;
    return bits == 0 && outside == 0;
}

}  // namespace
}  // namespace svelto::SVELTO_NAMESPACE
