// Answers of eight bytes by the numbers of labels. Nothing is computed: all levels give the same.
#pragma once

#include <cstddef>
#include <cstdint>

#include "simd.hpp"

namespace svelto::SVELTO_NAMESPACE {
namespace {

// Whether all numbers are places of a table. Without sign such a number, and what is between it and the last, have no
// highest bit; a loop that compilers turn into vectors.
inline bool are_places(const std::int32_t* index, std::size_t n, std::int64_t n_table) noexcept {
    if (n_table < 1) return n == 0;
    const auto last = static_cast<std::uint32_t>((n_table < INT32_MAX ? n_table : INT32_MAX) - 1);
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const auto number = static_cast<std::uint32_t>(index[i]);
        bits |= number | (last - number);
    }
    return bits >> 31 == 0;
}

bool look_up(const std::int64_t* table, std::int64_t n_table, const std::int32_t* index, std::size_t n,
             std::int64_t* out) noexcept {
    if (!are_places(index, n, n_table)) return false;
    std::size_t i = 0;
#if SVELTO_LEVEL == 2
    if (n_table <= 16) {  // in two registers, without memory in between
        const auto known = static_cast<unsigned>((1ull << n_table) - 1);
        const __m512i low = _mm512_maskz_loadu_epi64(static_cast<__mmask8>(known), table);
        const __m512i high = _mm512_maskz_loadu_epi64(static_cast<__mmask8>(known >> 8), table + 8);
        for (; i + 8 <= n; i += 8) {
            const __m256i eight = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(index + i));
            const __m512i place = _mm512_maskz_cvtepi32_epi64(0xff, eight);
            _mm512_storeu_si512(out + i, _mm512_permutex2var_epi64(low, place, high));
        }
    }
#endif
    if (n_table == 2) {  // likewise
        const std::int64_t zero = table[0], change = table[0] ^ table[1];
        for (; i < n; ++i) out[i] = zero ^ (change & -static_cast<std::int64_t>(index[i]));
    }
    for (; i < n; ++i) out[i] = table[index[i]];
    return true;
}

}  // namespace
}  // namespace svelto::SVELTO_NAMESPACE
