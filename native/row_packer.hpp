// What the stages of a cascade share: query rows packed as trees walk them, block by block and on threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "parallel.hpp"
#include "plain_arithmetic.hpp"
#include "rows.hpp"
#include "tree.hpp"
#include "workspace.hpp"

namespace svelto {

// Rows that are read, walked and evaluated together.
constexpr int kBlockRows = 64;

struct StageOutcome {
    std::int64_t settled = 0;
    std::int64_t bad_row = -1;
    Fault fault = Fault::none;
};

// A block of rows as a tree walks them: padded floats with `shift` taken off, or stored features as they are.
class RowPacker {
  public:
    // shift: [d], kept by the caller. With `hot`, contiguous rows are packed by vectors, to the same floats. Trees ask
    // for stored features in groups, and for lengths of rows; without `grouped` there may be neither.
    RowPacker(int d, int stride, bool stored, const double* shift, const HotTable* hot = nullptr, bool grouped = true);

    // Reads rows [first, first + n). Where one cannot be read, false, and `outcome` says which and why.
    bool pack(const RowSource& rows, std::int64_t first, int n, StageOutcome& outcome);

    // The block; valid until the next.
    TreeRows rows() const noexcept;

  private:
    void make_room(int n);
    bool pack_contiguous(const RowSource& rows, std::int64_t first, int n);
    bool pack_csr(const RowSource& rows, std::int64_t first, int n);
    template <class T, class Int>
    bool pack_csr_of(const RowSource& rows, std::int64_t first, int n);
    template <class T, class Int, class Pack>
    bool pack_together(const RowSource& rows, std::int64_t first, int n, Pack pack_list);
    bool pack_ungrouped(const RowSource& rows, std::int64_t first, int n);
    Fault pack_stored(const RowSource& rows, std::int64_t number, int i);
    Fault pack_dense(const RowSource& rows, std::int64_t number, float* to);

    int d_, stride_, n_ = 0, room_ = 0;
    bool stored_rows_, grouped_;
    const double* shift_;
    const HotTable* hot_;
    AlignedBuffer<float> dense_;
    std::vector<float> empty_;  // what a row of zeros becomes
    std::vector<double> row_;
    std::vector<std::int32_t> columns_;
    std::vector<StoredFeature> stored_;
    std::int32_t start_[kBlockRows + 1] = {};
    float sq_norm_[kBlockRows] = {};
};

// Calls visit(walker, first row, number of rows) for every block. A walker is made on the thread that uses it, by
// make(std::optional<Walker>&); it has run(rows, first, n), false where a row cannot be read, and its own outcome.
template <class Walker, class Make, class Visit>
StageOutcome over_blocks(const RowSource& rows, int n_threads, Make make, Visit visit) {
    std::vector<std::optional<Walker>> walkers(static_cast<std::size_t>(std::max(n_threads, 1)));
    // Several blocks a step, so that the threads do not meet at the counter too often.
    const int blocks = rows.n_rows > 64 * kBlockRows ? 4 : 1;
    const int step = blocks * kBlockRows;
    for_blocks((rows.n_rows + step - 1) / step, n_threads, [&](int thread, std::int64_t number) {
        const PlainArithmetic plain;
        std::optional<Walker>& walker = walkers[static_cast<std::size_t>(thread)];
        if (!walker) make(walker);
        for (int b = 0; b < blocks; ++b) {
            const std::int64_t first = number * step + b * kBlockRows;
            if (walker->outcome.bad_row >= 0 || first >= rows.n_rows) return;
            const int n = static_cast<int>(std::min<std::int64_t>(kBlockRows, rows.n_rows - first));
            if (!walker->run(rows, first, n)) return;
            visit(*walker, first, n);
        }
    });
    StageOutcome total;
    for (const std::optional<Walker>& walker : walkers) {
        if (!walker) continue;
        total.settled += walker->outcome.settled;
        if (walker->outcome.bad_row >= 0 && (total.bad_row < 0 || walker->outcome.bad_row < total.bad_row)) {
            total.bad_row = walker->outcome.bad_row;
            total.fault = walker->outcome.fault;
        }
    }
    return total;
}

// The same with visit(walker, row, place in the block) for every row.
template <class Walker, class Make, class Visit>
StageOutcome over_rows(const RowSource& rows, int n_threads, Make make, Visit visit) {
    return over_blocks<Walker>(rows, n_threads, make, [&](Walker& walker, std::int64_t first, int n) {
        for (int i = 0; i < n; ++i) visit(walker, first + i, i);
    });
}

}  // namespace svelto
