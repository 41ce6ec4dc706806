// Query rows of one step, packed for float32, sorted by region, and gathered again as tiles while they walk a list.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "panel_lists.hpp"
#include "workspace.hpp"

namespace svelto {

// Rows that walk a list together, in one precision: packed tiles, partial sums, rounding bounds.
template <class T>
struct Group {
    AlignedBuffer<T> tiles, tile_const, scratch;
    std::vector<double> parts;
    std::vector<int> row, level;
    // Magnitude of the sum so far and rounding in it, chunk by chunk: where the label is the sign of one float32 sum.
    std::vector<double> magnitude, rounding;

    void clear() {
        row.clear();
        level.clear();
    }
    void add(int i, int its_level) {
        row.push_back(i);
        level.push_back(its_level);
    }
    std::size_t size() const { return row.size(); }
    void keep(std::size_t to, std::size_t from, std::size_t stride) {
        if (to == from) return;
        row[to] = row[from];
        level[to] = level[from];
        magnitude[to] = magnitude[from];
        rounding[to] = rounding[from];
        std::copy_n(parts.data() + from * stride, stride, parts.data() + to * stride);
    }
    void shrink(std::size_t n) {
        row.resize(n);
        level.resize(n);
    }
};

class RegionRows {
  public:
    RegionRows(const Machine& machine, const HotTable& hot, const PanelLists& lists, const RowSource& rows);

    // Reads rows [first, first + n) and finds their regions. Returns the first row that cannot be read, or -1.
    std::int64_t load(std::int64_t first, int n, Fault& fault);

    // The loaded rows of a region, by their place in the step.
    const int* begin(int list) const { return sorted_.data() + start_[static_cast<std::size_t>(list)]; }
    const int* end(int list) const { return sorted_.data() + start_[static_cast<std::size_t>(list) + 1]; }

    const RowNorms& norms(int i) const { return norms_[static_cast<std::size_t>(i)]; }

    // An upper bound of a row's distance from a region's centre, in packed units and the kernel's metric.
    double distance(int i, int list) const;

    // Tiles of the group's rows. float64 works on the raw values; rows come there seldom, so they are read again.
    void fill_tiles(Group<float>& group);
    void fill_tiles(Group<double>& group);

    // Norms of the longest rows of the last float64 group.
    const RowNorms& longest_f64() const { return longest_f64_; }

  private:
    const float* packed(int i) const { return packed_.get() + static_cast<std::ptrdiff_t>(i) * machine_.d; }
    void sort_by_region(int n);
    template <class T>
    T* start_tiles(Group<T>& group, int height);

    const Machine& machine_;
    const HotTable& hot_;
    const PanelLists& lists_;
    const RowSource& rows_;
    Panels<float> centres_;
    std::int64_t first_ = 0;
    AlignedBuffer<float> packed_;
    std::vector<double> row_;
    std::vector<RowNorms> norms_;
    std::vector<float> const_;
    RowNorms longest_f64_;
    Group<float> all_;
    std::vector<std::int32_t> region_;
    std::vector<int> start_, next_, sorted_;
};

}  // namespace svelto
