#include "path_columns.hpp"

#include <algorithm>
#include <vector>

#include "dispatch.hpp"
#include "parallel.hpp"
#include "plain_arithmetic.hpp"

namespace svelto {
namespace {

// Rows that are added in float32: their rounding stays near that of a single addition.
constexpr int kRunRows = 128;
// Floats of the sums of a block of columns: they stay in the first-level cache.
constexpr std::int64_t kBlockSums = 4096;
constexpr std::int64_t kColumnLanes = 16;

std::size_t size(std::int64_t n) {
    return static_cast<std::size_t>(n);
}

// The sums of one side over runs of rows, for columns [first, first + n).
class SideSums {
  public:
    SideSums(const ColumnRows& rows, std::uint8_t side, std::int64_t width)
        : rows_(rows), side_(side), width_(width), step_(rows.n_products + 1), sums_(size(width * step_)) {
        pointers_.reserve(kRunRows);
        factor_.reserve(size(kRunRows * step_));
    }

    void add_run(const HotTable& hot, std::int64_t begin, std::int64_t end, std::int64_t first, std::int64_t n,
                 double* norms, double* products) {
        pointers_.clear();
        factor_.clear();
        for (std::int64_t i = begin; i < end; ++i) {
            if (rows_.side[i] != side_) continue;
            pointers_.push_back(rows_.values + i * rows_.n_columns + first);
            factor_.push_back(static_cast<float>(rows_.weight[i]));
            for (int p = 0; p < rows_.n_products; ++p)
                factor_.push_back(static_cast<float>(rows_.weight[i] * rows_.residuals[i * rows_.n_products + p]));
        }
        if (pointers_.empty()) return;
        std::fill(sums_.begin(), sums_.end(), 0.0f);
        hot.add_to_columns(pointers_.data(), factor_.data(), static_cast<int>(pointers_.size()), rows_.n_products,
                           static_cast<int>(n), sums_.data(), static_cast<int>(width_));
        for (std::int64_t p = 0; p < step_; ++p) {
            double* to = p == 0 ? norms + side_ * rows_.n_columns
                                : products + (side_ * rows_.n_products + p - 1) * rows_.n_columns;
            for (std::int64_t c = 0; c < n; ++c) to[first + c] += static_cast<double>(sums_[size(p * width_ + c)]);
        }
    }

  private:
    const ColumnRows& rows_;
    std::uint8_t side_;
    std::int64_t width_, step_;
    std::vector<float> sums_, factor_;
    std::vector<const float*> pointers_;
};

}  // namespace

void column_sums(const ColumnRows& rows, int n_threads, double* norms, double* products) {
    const std::int64_t m = rows.n_columns, n_products = rows.n_products;
    std::fill_n(norms, 2 * m, 0.0);
    std::fill_n(products, 2 * n_products * m, 0.0);
    const HotTable& hot = *find_level(available_levels().back());
    const std::int64_t threads = std::max(n_threads, 1);
    const std::int64_t share = (m + threads - 1) / threads;
    std::int64_t width = std::max(kBlockSums / (n_products + 1), kColumnLanes);
    width = std::max((std::min(width, share) + kColumnLanes - 1) / kColumnLanes * kColumnLanes, kColumnLanes);
    for_blocks((m + width - 1) / width, n_threads, [&](int, std::int64_t block) {
        const PlainArithmetic plain;
        const std::int64_t first = block * width, n = std::min(width, m - first);
        SideSums sums[2] = {{rows, 0, width}, {rows, 1, width}};
        for (std::int64_t begin = 0; begin < rows.n_rows; begin += kRunRows)
            for (SideSums& side : sums)
                side.add_run(hot, begin, std::min(begin + kRunRows, rows.n_rows), first, n, norms, products);
    });
}

std::int64_t partition_rows(float* values, std::int64_t* order, std::int64_t n_rows, std::int64_t n_columns,
                            const std::uint8_t* side) noexcept {
    std::int64_t low = 0, high = n_rows;
    for (;;) {
        while (low < high && side[low] == 0) ++low;
        while (low < high && side[high - 1] != 0) --high;
        if (low >= high) return low;
        --high;
        std::swap_ranges(values + low * n_columns, values + (low + 1) * n_columns, values + high * n_columns);
        std::swap(order[low], order[high]);
        ++low;
    }
}

}  // namespace svelto
