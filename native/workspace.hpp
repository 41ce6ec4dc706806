// Buffers of one thread: query rows packed for the hot functions, and the sums that come back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "bounds.hpp"
#include "hot.hpp"
#include "machine.hpp"
#include "rows.hpp"

namespace svelto {

// Memory for n elements, aligned for the widest vectors; contents undefined.
template <class T>
class AlignedBuffer {
  public:
    void reserve(std::size_t n) {
        if (n <= size_) return;
        memory_.reset();  // the old memory goes before the new comes, whose contents are undefined anyway
        size_ = 0;
        // Plain memory and an aligned place in it: glibc keeps small pieces of that at hand for each thread, aligned
        // ones it looks for anew in every call.
        const std::size_t bytes = (n * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
        memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes + kAlignment - 1);
        const auto place = reinterpret_cast<std::uintptr_t>(memory_.get());
        data_ = reinterpret_cast<T*>(memory_.get() + (kAlignment - place % kAlignment) % kAlignment);
        size_ = n;
    }
    T* get() noexcept { return data_; }
    const T* get() const noexcept { return data_; }

  private:
    static constexpr std::size_t kAlignment = 64;
    std::unique_ptr<std::byte[]> memory_;
    T* data_ = nullptr;
    std::size_t size_ = 0;
};

// A block of rows in one precision: packs rows, runs the hot functions, keeps norms for the bounds. Each row is packed
// dense or by its stored elements, by its own share of zeros, so that its scores do not depend on the rows beside it.
template <class T>
class RowBlock {
  public:
    RowBlock(const Machine& machine, const HotTable& hot);

    // Rows of the source by number, at most `capacity()`. Returns the first row that cannot be read, or -1.
    std::int64_t load(const RowSource& rows, const std::int64_t* numbers, int n, Fault& fault);

    // Group sums of the loaded rows.
    void run();

    const double* parts(int row) const noexcept { return parts_.data() + slot(row) * part_stride_; }
    const RowNorms& norms(int row) const noexcept { return norms_[static_cast<std::size_t>(row)]; }
    int capacity() const noexcept { return capacity_; }

  private:
    Fault pack_dense(const RowSource& rows, std::int64_t number, int row);
    Fault pack_stored(const RowSource& rows, std::int64_t number, int row);
    Fault pack_postings(const RowSource& rows, std::int64_t number, int row);
    bool prefers_stored(const RowSource& rows, std::int64_t number) const noexcept;
    std::ptrdiff_t slot(int row) const noexcept { return slot_[static_cast<std::size_t>(row)]; }

    const Machine& machine_;
    const HotTable& hot_;
    const Panels<T>& panels_;
    int tile_rows_ = 0;
    int capacity_ = 0;
    int n_dense_ = 0;
    int n_stored_ = 0;
    bool postings_ = false;
    std::ptrdiff_t part_stride_ = 0;
    AlignedBuffer<T> tiles_, dense_const_, scratch_;
    AlignedBuffer<double> products_;
    std::vector<double> row_;
    std::vector<std::int32_t> columns_;
    std::vector<std::int64_t> start_;
    std::vector<std::int32_t> offset_;
    std::vector<T> value_, stored_const_;
    std::vector<int> slot_;  // place of a row among the sums: dense rows first, then the stored ones
    std::vector<double> parts_;
    std::vector<RowNorms> norms_;
};

extern template class RowBlock<float>;
extern template class RowBlock<double>;

}  // namespace svelto
