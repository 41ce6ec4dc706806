#include "taken_rows.hpp"

#include <algorithm>
#include <cstddef>

namespace svelto {
namespace {

// Room for n values.
template <class T>
T* room(AlignedBuffer<std::byte>& bytes, std::size_t n) {
    bytes.reserve(n * sizeof(T));
    return reinterpret_cast<T*>(bytes.get());
}

// Rows that lie apart are asked for so long before they are copied: each would be waited for else.
constexpr std::size_t kRowsAhead = 8;
constexpr int kLineBytes = 64;

}  // namespace

void TakenRows::take(const RowSource& from, std::span<const std::int64_t> numbers) {
    source_ = from;
    source_.n_rows = static_cast<std::int64_t>(numbers.size());
    const bool single = from.type == ElementType::float32;
    if (!from.is_csr)
        single ? take_dense<float>(from, numbers) : take_dense<double>(from, numbers);
    else if (from.wide_indices)
        single ? take_csr<float, std::int64_t>(from, numbers) : take_csr<double, std::int64_t>(from, numbers);
    else
        single ? take_csr<float, std::int32_t>(from, numbers) : take_csr<double, std::int32_t>(from, numbers);
}

template <class T>
void TakenRows::take_dense(const RowSource& from, std::span<const std::int64_t> numbers) {
    T* to = room<T>(values_, numbers.size() * static_cast<std::size_t>(from.d));
    source_.data = to;
    source_.row_stride = from.d;
    source_.col_stride = 1;
    const auto row_of = [&](std::size_t i) { return static_cast<const T*>(from.data) + numbers[i] * from.row_stride; };
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        const T* row = row_of(i);
        if (from.col_stride == 1) {
            if (i + kRowsAhead < numbers.size()) {
                const T* later = row_of(i + kRowsAhead);
                for (int k = 0; k < from.d; k += kLineBytes / static_cast<int>(sizeof(T)))
                    __builtin_prefetch(later + k);
            }
            std::copy_n(row, from.d, to);
        } else {
            for (int k = 0; k < from.d; ++k) to[k] = row[k * from.col_stride];
        }
        to += from.d;
    }
}

template <class T, class Int>
void TakenRows::take_csr(const RowSource& from, std::span<const std::int64_t> numbers) {
    const auto* start = static_cast<const Int*>(from.row_start);
    Int* to_start = room<Int>(row_start_, numbers.size() + 1);
    to_start[0] = 0;
    for (std::size_t i = 0; i < numbers.size(); ++i)
        to_start[i + 1] = to_start[i] + (start[numbers[i] + 1] - start[numbers[i]]);
    const auto n_stored = static_cast<std::size_t>(to_start[numbers.size()]);
    T* values = room<T>(values_, n_stored);
    Int* indices = room<Int>(indices_, n_stored);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        const auto n = to_start[i + 1] - to_start[i];
        std::copy_n(static_cast<const T*>(from.data) + start[numbers[i]], n, values + to_start[i]);
        std::copy_n(static_cast<const Int*>(from.indices) + start[numbers[i]], n, indices + to_start[i]);
    }
    source_.data = values;
    source_.indices = indices;
    source_.row_start = to_start;
    source_.n_stored = static_cast<std::int64_t>(n_stored);
}

}  // namespace svelto
