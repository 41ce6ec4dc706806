#include "workspace.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace svelto {
namespace {

// Packed rows of a block stay in the second-level cache.
constexpr std::size_t kBlockBytes = 256 * 1024;
constexpr int kMostRows = 128;

template <class T>
const Panels<T>& panels_of(const Machine& m) {
    if constexpr (std::is_same_v<T, float>)
        return m.f32;
    else
        return m.f64;
}

}  // namespace

template <class T>
RowBlock<T>::RowBlock(const Machine& machine, const HotTable& hot)
    : machine_(machine), hot_(hot), panels_(panels_of<T>(machine)) {
    tile_rows_ = std::is_same_v<T, float> ? hot.tile_rows_f32 : hot.tile_rows_f64;
    const std::size_t row_bytes = sizeof(T) * static_cast<std::size_t>(machine.d);
    const int fitting = static_cast<int>(std::min<std::size_t>(kMostRows, kBlockBytes / row_bytes + 1));
    capacity_ = std::max(fitting / tile_rows_, 1) * tile_rows_;
    part_stride_ = static_cast<std::ptrdiff_t>(panels_.n_groups) * panels_.n_cols;
    postings_ = std::is_same_v<T, double> && machine.use_postings;
    scratch_.reserve(scratch_size(panels_));
}

// A row with few elements is worth visiting element by element, whether it came as CSR or as a dense row of mostly
// zeros (one-hot data); a fuller one is cheaper as part of a tile. In float32 squared distances from norms and products
// would lose too much, so there differences take the dense way. A scaler may move zeros, so scaled rows do too.
template <class T>
bool RowBlock<T>::prefers_stored(const RowSource& rows, std::int64_t number) const noexcept {
    if (std::is_same_v<T, float> && panels_.pair == PairKind::sq_diff) return false;
    if (rows.is_csr) return 2 * stored_count(rows, number) < machine_.d;
    const std::int64_t half = (machine_.d + 1) / 2;
    return rows.scaling.form == ScalingForm::none && nonzero_count(rows, number, half) < half;
}

template <class T>
std::int64_t RowBlock<T>::load(const RowSource& rows, const std::int64_t* numbers, int n, Fault& fault) {
    slot_.resize(static_cast<std::size_t>(n));
    norms_.resize(static_cast<std::size_t>(n));
    parts_.assign(static_cast<std::size_t>(n * part_stride_), 0.0);
    offset_.clear();
    value_.clear();
    stored_const_.clear();
    start_.assign(1, 0);
    n_dense_ = n_stored_ = 0;
    for (int row = 0; row < n; ++row) {
        const bool stored = postings_ || prefers_stored(rows, numbers[row]);
        slot_[static_cast<std::size_t>(row)] = stored ? -1 : n_dense_++;
    }
    for (int& slot : slot_)
        if (slot < 0) slot = n_dense_ + n_stored_++;
    const int tiles = (n_dense_ + tile_rows_ - 1) / tile_rows_;
    dense_const_.reserve(static_cast<std::size_t>(tiles * tile_rows_));
    tiles_.reserve(static_cast<std::size_t>(tiles * tile_rows_) * static_cast<std::size_t>(machine_.d));
    for (int row = 0; row < n; ++row) {
        if (postings_)
            fault = pack_postings(rows, numbers[row], row);
        else
            fault = slot(row) >= n_dense_ ? pack_stored(rows, numbers[row], row) : pack_dense(rows, numbers[row], row);
        if (fault != Fault::none) return numbers[row];
    }
    return -1;
}

template <class T>
Fault RowBlock<T>::pack_dense(const RowSource& rows, std::int64_t number, int row) {
    const int d = machine_.d;
    row_.resize(static_cast<std::size_t>(d));
    const Fault fault = read_dense(rows, number, row_.data());
    if (fault != Fault::none) return fault;
    constexpr bool kSingle = std::is_same_v<T, float>;
    const double scale = kSingle ? machine_.row_scale32 : machine_.row_scale64;
    const double* centre = kSingle ? machine_.centre : nullptr;
    const std::ptrdiff_t at = slot(row);
    T* to = tiles_.get() + at / tile_rows_ * tile_rows_ * d + at % tile_rows_;
    double sq_norm = 0.0, norm1 = 0.0;
    for (int k = 0; k < d; ++k) {
        const double x =
            (centre == nullptr ? row_[static_cast<std::size_t>(k)] : row_[static_cast<std::size_t>(k)] - centre[k]) *
            scale;
        const T packed = static_cast<T>(x);
        to[static_cast<std::ptrdiff_t>(k) * tile_rows_] = packed;
        sq_norm += static_cast<double>(packed) * static_cast<double>(packed);
        norm1 += std::fabs(static_cast<double>(packed));
    }
    dense_const_.get()[at] = static_cast<T>(0.5 * sq_norm);
    norms_[static_cast<std::size_t>(row)] = dense_norms(sq_norm, norm1, d);
    return Fault::none;
}

template <class T>
Fault RowBlock<T>::pack_stored(const RowSource& rows, std::int64_t number, int row) {
    const std::int64_t count = rows.is_csr ? stored_count(rows, number) : machine_.d;
    if (count < 0) return Fault::bad_index;
    row_.resize(static_cast<std::size_t>(count));
    columns_.resize(static_cast<std::size_t>(count));
    int n = 0;
    const Fault fault = read_stored(rows, number, columns_.data(), row_.data(), n);
    if (fault != Fault::none) return fault;
    constexpr bool kSingle = std::is_same_v<T, float>;
    const double scale = kSingle ? machine_.row_scale32 : machine_.row_scale64;
    const double* centre = kSingle ? machine_.centre : nullptr;
    const double centre2 = kSingle ? machine_.stats32.centre2 : 0.0;
    double sq_norm = 0.0, norm1 = 0.0, sq_centred = centre2 * centre2;
    for (int i = 0; i < n; ++i) {
        const std::int32_t column = columns_[static_cast<std::size_t>(i)];
        const T packed = static_cast<T>(row_[static_cast<std::size_t>(i)] * scale);
        const double x = static_cast<double>(packed);
        const double c = centre == nullptr ? 0.0 : centre[column] * scale;
        offset_.push_back(column * kPanelWidth<T>);
        value_.push_back(packed);
        sq_norm += x * x;
        norm1 += std::fabs(x);
        sq_centred += x * (x - 2.0 * c);
    }
    sq_centred = std::max(sq_centred, 0.0);
    start_.push_back(static_cast<std::int64_t>(offset_.size()));
    const bool squares = panels_.pair == PairKind::sq_diff;
    stored_const_.push_back(static_cast<T>(squares ? sq_norm : 0.5 * sq_centred));
    norms_[static_cast<std::size_t>(row)] = {
        std::sqrt(sq_centred), safe_norm(sq_norm, norm1), norm1, n, true, false, squares};
    return Fault::none;
}

// Very sparse machines: visit, for each stored feature of the query, the support vectors that have it too.
template <class T>
Fault RowBlock<T>::pack_postings(const RowSource& rows, std::int64_t number, int row) {
    if constexpr (std::is_same_v<T, double>) {
        const auto most =
            static_cast<std::size_t>(rows.is_csr ? std::max<std::int64_t>(stored_count(rows, number), 0) : machine_.d);
        row_.resize(most);
        columns_.resize(most);
        int n = 0;
        const Fault fault = read_stored(rows, number, columns_.data(), row_.data(), n);
        if (fault != Fault::none) return fault;
        const bool laplacian = machine_.kernel == KernelKind::laplacian;
        double sq_norm = 0.0, norm1 = 0.0;
        for (int i = 0; i < n; ++i) {
            double& x = row_[static_cast<std::size_t>(i)];
            x *= machine_.row_scale64;
            sq_norm += x * x;
            norm1 += std::fabs(x);
        }
        const auto n_packed = static_cast<std::size_t>(panels_.n_panels) * kPanelWidth<double>;
        products_.reserve(n_packed);
        double* sums = products_.get();
        std::fill(sums, sums + n_packed, laplacian ? norm1 : 0.0);
        for (int i = 0; i < n; ++i) {
            const double x = row_[static_cast<std::size_t>(i)];
            const auto column = static_cast<std::size_t>(columns_[static_cast<std::size_t>(i)]);
            const std::int64_t last = machine_.postings.start[column + 1];
            for (std::int64_t at = machine_.postings.start[column]; at < last; ++at) {
                const double s = machine_.postings.value[at];
                double& sum = sums[machine_.postings.vector[at]];
                // |x| + |s| is there from the norms; where both features exist it should be |x - s|.
                sum += laplacian ? std::fabs(x - s) - std::fabs(x) - std::fabs(s) : x * s;
            }
        }
        hot_.finish_f64(panels_, sums, sq_norm, scratch_.get(), parts_.data() + slot(row) * part_stride_);
        const double norm2 = safe_norm(sq_norm, norm1);
        norms_[static_cast<std::size_t>(row)] = {norm2, norm2, norm1, n, false, true, true};
    }
    return Fault::none;
}

template <class T>
void RowBlock<T>::run() {
    if (postings_) return;  // done while packing
    const DenseRows<T> dense{tiles_.get(), dense_const_.get(), n_dense_};
    const SparseRows<T> sparse{start_.data(), offset_.data(), value_.data(), stored_const_.data(), n_stored_};
    double* stored_parts = parts_.data() + n_dense_ * part_stride_;
    if constexpr (std::is_same_v<T, float>) {
        if (n_dense_ > 0) hot_.dense_f32(panels_, dense, scratch_.get(), parts_.data());
        if (n_stored_ > 0) hot_.sparse_f32(panels_, sparse, scratch_.get(), stored_parts);
    } else {
        if (n_dense_ > 0) hot_.dense_f64(panels_, dense, scratch_.get(), parts_.data());
        if (n_stored_ > 0) hot_.sparse_f64(panels_, sparse, scratch_.get(), stored_parts);
    }
}

template class RowBlock<float>;
template class RowBlock<double>;

}  // namespace svelto
