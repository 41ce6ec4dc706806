#include "region_rows.hpp"

#include <cmath>

#include "bounds.hpp"

namespace svelto {

RegionRows::RegionRows(const Machine& machine, const HotTable& hot, const PanelLists& lists, const RowSource& rows)
    : machine_(machine), hot_(hot), lists_(lists), rows_(rows), row_(static_cast<std::size_t>(machine.d)) {
    centres_.vectors = lists.centre_panels;
    centres_.vector_const = lists.centre_const;
    centres_.n_panels = lists.n_centre_panels;
    centres_.d = machine.d;
}

std::int64_t RegionRows::load(std::int64_t first, int n, Fault& fault) {
    first_ = first;
    const int d = machine_.d;
    packed_.reserve(static_cast<std::size_t>(n) * static_cast<std::size_t>(d));
    norms_.resize(static_cast<std::size_t>(n));
    const_.resize(static_cast<std::size_t>(n));
    for (int i = 0; i < n; ++i) {
        fault = read_dense(rows_, first_ + i, row_.data());
        if (fault != Fault::none) return first_ + i;
        double sq_norm = 0.0, norm1 = 0.0;
        float* to = packed_.get() + static_cast<std::ptrdiff_t>(i) * d;
        for (int k = 0; k < d; ++k) {
            const double shift = machine_.centre == nullptr ? 0.0 : machine_.centre[k];
            to[k] = static_cast<float>((row_[static_cast<std::size_t>(k)] - shift) * machine_.row_scale32);
            const double x = static_cast<double>(to[k]);
            sq_norm += x * x;
            norm1 += std::fabs(x);
        }
        norms_[static_cast<std::size_t>(i)] = dense_norms(sq_norm, norm1, d);
        const_[static_cast<std::size_t>(i)] = static_cast<float>(0.5 * sq_norm);
    }
    all_.clear();
    for (int i = 0; i < n; ++i) all_.add(i, 0);
    fill_tiles(all_);
    region_.resize(static_cast<std::size_t>(n));
    hot_.nearest_f32(centres_, {all_.tiles.get(), all_.tile_const.get(), n}, region_.data());
    sort_by_region(n);
    return -1;
}

void RegionRows::sort_by_region(int n) {
    start_.assign(static_cast<std::size_t>(lists_.n_lists) + 1, 0);
    for (int i = 0; i < n; ++i) ++start_[static_cast<std::size_t>(region_[static_cast<std::size_t>(i)]) + 1];
    for (std::size_t l = 1; l < start_.size(); ++l) start_[l] += start_[l - 1];
    next_.assign(start_.begin(), start_.end() - 1);
    sorted_.resize(static_cast<std::size_t>(n));
    for (int i = 0; i < n; ++i) {
        int& at = next_[static_cast<std::size_t>(region_[static_cast<std::size_t>(i)])];
        sorted_[static_cast<std::size_t>(at++)] = i;
    }
}

double RegionRows::distance(int i, int list) const {
    const float* x = packed(i);
    const float* c = lists_.centres + static_cast<std::ptrdiff_t>(list) * machine_.d;
    const RowNorms& its = norms_[static_cast<std::size_t>(i)];
    const bool absolute = machine_.kernel == KernelKind::laplacian;
    double sum = 0.0;
    for (int k = 0; k < machine_.d; ++k) {
        const double difference = static_cast<double>(x[k]) - static_cast<double>(c[k]);
        sum += absolute ? std::fabs(difference) : difference * difference;
    }
    // Packing rounded the row by at most 2^-24 of each value (2^-126 of tiny ones), the sum by far less.
    const double packing = 0x1.001p-24 * (absolute ? its.norm1 : its.centred2) + machine_.d * 0x1p-126;
    return (absolute ? sum : std::sqrt(sum)) * (1.0 + 1e-9) + packing;
}

template <class T>
T* RegionRows::start_tiles(Group<T>& group, int height) {
    const auto padded = (group.size() + static_cast<std::size_t>(height) - 1) / static_cast<std::size_t>(height) *
                        static_cast<std::size_t>(height);
    group.tiles.reserve(padded * static_cast<std::size_t>(machine_.d));
    group.tile_const.reserve(padded);
    return group.tiles.get();
}

void RegionRows::fill_tiles(Group<float>& group) {
    const int d = machine_.d, height = hot_.tile_rows_f32;
    float* tiles = start_tiles(group, height);
    for (int i = 0; i < static_cast<int>(group.size()); ++i) {
        const int row = group.row[static_cast<std::size_t>(i)];
        const float* from = packed(row);
        float* to = tiles + static_cast<std::ptrdiff_t>(i / height * height) * d + i % height;
        for (int k = 0; k < d; ++k) to[static_cast<std::ptrdiff_t>(k) * height] = from[k];
        group.tile_const.get()[i] = const_[static_cast<std::size_t>(row)];
    }
}

void RegionRows::fill_tiles(Group<double>& group) {
    const int d = machine_.d, height = hot_.tile_rows_f64;
    double* tiles = start_tiles(group, height);
    longest_f64_ = dense_norms(0.0, 0.0, d);
    for (int i = 0; i < static_cast<int>(group.size()); ++i) {
        read_dense(rows_, first_ + group.row[static_cast<std::size_t>(i)], row_.data());
        double* to = tiles + static_cast<std::ptrdiff_t>(i / height * height) * d + i % height;
        double sq_norm = 0.0, norm1 = 0.0;
        for (int k = 0; k < d; ++k) {
            const double x = row_[static_cast<std::size_t>(k)] * machine_.row_scale64;
            to[static_cast<std::ptrdiff_t>(k) * height] = x;
            sq_norm += x * x;
            norm1 += std::fabs(x);
        }
        group.tile_const.get()[i] = 0.5 * sq_norm;
        const RowNorms norms = dense_norms(sq_norm, norm1, d);
        grow(longest_f64_, norms);
    }
}

}  // namespace svelto
