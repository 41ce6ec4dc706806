#include "row_packer.hpp"

#include <bit>
#include <type_traits>

namespace svelto {
namespace {

template <class Int>
std::size_t size(Int n) {
    return static_cast<std::size_t>(n);
}

}  // namespace

RowPacker::RowPacker(int d, int stride, bool stored, const double* shift, const HotTable* hot, bool grouped)
    : d_(d), stride_(stride), stored_rows_(stored), grouped_(grouped), shift_(shift), hot_(hot) {}

// Room for dense rows; one row is asked for more often than a block.
void RowPacker::make_room(int n) {
    if (stored_rows_ || n <= room_) return;
    dense_.reserve(size(n) * size(stride_));
    for (int i = 0; i < n && stride_ > d_; ++i)
        std::fill_n(dense_.get() + static_cast<std::ptrdiff_t>(i) * stride_ + d_, stride_ - d_, 0.0f);
    room_ = n;
}

bool RowPacker::pack(const RowSource& rows, std::int64_t first, int n, StageOutcome& outcome) {
    make_room(n);
    if (pack_contiguous(rows, first, n) || pack_csr(rows, first, n)) return true;
    row_.resize(size(d_));
    columns_.resize(size(d_));
    stored_.clear();
    for (int i = 0; i < n; ++i) {
        start_[i] = static_cast<std::int32_t>(stored_.size());
        outcome.fault = stored_rows_
                            ? pack_stored(rows, first + i, i)
                            : pack_dense(rows, first + i, dense_.get() + static_cast<std::ptrdiff_t>(i) * stride_);
        if (outcome.fault == Fault::none) continue;
        outcome.bad_row = first + i;
        return false;
    }
    start_[n] = static_cast<std::int32_t>(stored_.size());
    n_ = n;
    return true;
}

// False where the rows are of another kind, or one of them cannot be read: then they are packed one by one.
bool RowPacker::pack_contiguous(const RowSource& rows, std::int64_t first, int n) {
    const bool contiguous = !rows.is_csr && rows.col_stride == 1 && rows.scaling.form == ScalingForm::none;
    if (hot_ == nullptr || stored_rows_ || !contiguous) return false;
    const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(first) * rows.row_stride;
    const int n_ahead = static_cast<int>(std::min<std::int64_t>(n, rows.n_rows - first - n));
    const auto pack = [&](const auto* from, const auto& function) {
        return function(from + at, rows.row_stride, n, n_ahead, d_, shift_, dense_.get(), stride_);
    };
    n_ = n;
    return rows.type == ElementType::float32 ? pack(static_cast<const float*>(rows.data), hot_->pack_f32)
                                             : pack(static_cast<const double*>(rows.data), hot_->pack_f64);
}

// As pack_contiguous, for CSR rows that stay stored.
bool RowPacker::pack_csr(const RowSource& rows, std::int64_t first, int n) {
    if (!rows.is_csr || !stored_rows_) return false;
    if (hot_ != nullptr && !grouped_ && pack_ungrouped(rows, first, n)) return true;
    if (rows.type == ElementType::float32)
        return rows.wide_indices ? pack_csr_of<float, std::int64_t>(rows, first, n)
                                 : pack_csr_of<float, std::int32_t>(rows, first, n);
    return rows.wide_indices ? pack_csr_of<double, std::int64_t>(rows, first, n)
                             : pack_csr_of<double, std::int32_t>(rows, first, n);
}

// What read_stored and pack_stored do one row after another, in one loop without their branches.
template <class T, class Int>
bool RowPacker::pack_csr_of(const RowSource& rows, std::int64_t first, int n) {
    const auto* row_start = static_cast<const Int*>(rows.row_start) + first;
    const auto* indices = static_cast<const Int*>(rows.indices);
    const auto* data = static_cast<const T*>(rows.data);
    using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
    std::int32_t at = 0;
    for (int i = 0; i < n; ++i) {
        const std::int64_t begin = row_start[i], end = row_start[i + 1];
        if (begin < 0 || end < begin || end > rows.n_stored || end - begin > d_) return false;
        const std::size_t room = size(at) + size(end - begin) + kStoredGroup;
        if (stored_.size() < room) stored_.resize(2 * room);
        start_[i] = at;
        StoredFeature* to = stored_.data() + at;
        // Signs and sums instead of comparisons, for which there would be a branch or a handful of instructions each:
        // a column that does not follow the one before leaves a sign, x - x is NaN where x is not finite.
        std::int64_t previous = -1, steps = 0;
        float sq_norm = 0.0f;
        T trace = T(0);
        for (std::int64_t k = begin; k < end; ++k) {
            const T x = data[k];
            const std::int64_t column = indices[k];
            const float value = static_cast<float>(x);
            steps |= column - previous - 1;
            previous = column;
            trace += x - x;
            sq_norm += value * value;
            *to = {value, static_cast<std::int32_t>(column)};
            to += std::bit_cast<Bits>(x) << 1 != 0;  // all but the sign
        }
        if (steps < 0 || previous >= d_ || !(trace == T(0))) return false;
        at = static_cast<std::int32_t>(to - stored_.data());
        while (at % kStoredGroup != 0) stored_[size(at++)] = {};
        sq_norm_[i] = sq_norm;
    }
    start_[n] = at;
    n_ = n;
    return true;
}

bool RowPacker::pack_ungrouped(const RowSource& rows, std::int64_t first, int n) {
    if (rows.type == ElementType::float32)
        return rows.wide_indices ? pack_together<float, std::int64_t>(rows, first, n, hot_->features_f32_i64)
                                 : pack_together<float, std::int32_t>(rows, first, n, hot_->features_f32_i32);
    return rows.wide_indices ? pack_together<double, std::int64_t>(rows, first, n, hot_->features_f64_i64)
                             : pack_together<double, std::int32_t>(rows, first, n, hot_->features_f64_i32);
}

// All rows of the block as one list. Stored zeros stay: they change no sum.
template <class T, class Int, class Pack>
bool RowPacker::pack_together(const RowSource& rows, std::int64_t first, int n, Pack pack_list) {
    const auto* row_start = static_cast<const Int*>(rows.row_start) + first;
    const auto* indices = static_cast<const Int*>(rows.indices);
    const std::int64_t begin = row_start[0], end = row_start[n];
    // Rows of ascending columns have no more features than this; a list that is longer is not of such rows.
    const std::int64_t most = std::min<std::int64_t>(std::int64_t{n} * d_, INT32_MAX);
    if (begin < 0 || end < begin || end > rows.n_stored || end - begin > most) return false;
    if (stored_.size() < size(end - begin)) stored_.resize(size(end - begin));
    // Columns grow from one feature to the next, but from a row's last to the first of the next row as they like.
    std::int64_t free_steps = 0, n_steps = 0;
    for (int i = 0; i < n; ++i) {
        if (row_start[i + 1] < row_start[i]) return false;
        start_[i] = static_cast<std::int32_t>(row_start[i] - begin);
        if (row_start[i] > begin && row_start[i] < end && row_start[i] > row_start[i - 1])
            free_steps += indices[row_start[i]] <= indices[row_start[i] - 1];
    }
    start_[n] = static_cast<std::int32_t>(end - begin);
    const bool sound =
        pack_list(static_cast<const T*>(rows.data) + begin, indices + begin, end - begin, d_, stored_.data(), n_steps);
    n_ = n;
    return sound && (begin == end || n_steps + free_steps == end - begin - 1);
}

TreeRows RowPacker::rows() const noexcept {
    static constexpr StoredFeature kNothing{};
    TreeRows packed;
    packed.n = n_;
    packed.dense = dense_.get();
    packed.stored = !stored_rows_ ? nullptr : stored_.empty() ? &kNothing : stored_.data();
    packed.start = start_;
    packed.sq_norm = sq_norm_;
    return packed;
}

Fault RowPacker::pack_stored(const RowSource& rows, std::int64_t number, int i) {
    if (rows.is_csr) {
        const std::int64_t stored = stored_count(rows, number);
        if (stored < 0 || stored > d_) return Fault::bad_index;
    }
    int n = 0;
    const Fault fault = read_stored(rows, number, columns_.data(), row_.data(), n);
    if (fault != Fault::none) return fault;
    float sq_norm = 0.0f;
    for (int k = 0; k < n; ++k) {
        const float x = static_cast<float>(row_[size(k)]);
        stored_.push_back({x, columns_[size(k)]});
        sq_norm += x * x;
    }
    while (stored_.size() % kStoredGroup != 0) stored_.push_back({});
    sq_norm_[i] = sq_norm;
    return Fault::none;
}

Fault RowPacker::pack_dense(const RowSource& rows, std::int64_t number, float* to) {
    if (rows.is_csr) {
        const std::int64_t stored = stored_count(rows, number);
        if (stored < 0 || stored > d_) return Fault::bad_index;
        int n = 0;
        const Fault fault = read_stored(rows, number, columns_.data(), row_.data(), n);
        if (fault != Fault::none) return fault;
        if (empty_.empty())
            for (int k = 0; k < d_; ++k) empty_.push_back(static_cast<float>(0.0 - shift_[k]));
        std::copy_n(empty_.data(), d_, to);
        for (int i = 0; i < n; ++i) {
            const std::int32_t k = columns_[size(i)];
            to[k] = static_cast<float>(row_[size(i)] - shift_[k]);
        }
        return Fault::none;
    }
    const Fault fault = read_dense(rows, number, row_.data());
    if (fault != Fault::none) return fault;
    for (int k = 0; k < d_; ++k) to[k] = static_cast<float>(row_[size(k)] - shift_[k]);
    return Fault::none;
}

}  // namespace svelto
