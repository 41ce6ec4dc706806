// Some rows of a source, copied together: what the next stage of a cascade reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "rows.hpp"
#include "workspace.hpp"

namespace svelto {

class TakenRows {
  public:
    // Copies the rows with these numbers, which must be rows that could be read.
    void take(const RowSource& from, std::span<const std::int64_t> numbers);

    // The copies, with the scaling of where they came from; valid until the next.
    const RowSource& source() const noexcept { return source_; }

  private:
    template <class T>
    void take_dense(const RowSource& from, std::span<const std::int64_t> numbers);
    template <class T, class Int>
    void take_csr(const RowSource& from, std::span<const std::int64_t> numbers);

    RowSource source_;
    AlignedBuffer<std::byte> values_, indices_, row_start_;
};

}  // namespace svelto
