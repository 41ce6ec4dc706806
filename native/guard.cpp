#include "guard.hpp"

#include <algorithm>
#include <mutex>

#include "hot.hpp"
#include "parallel.hpp"
#include "plain_arithmetic.hpp"
#include "row_packer.hpp"

namespace svelto {

StageOutcome mark_rows(const Guard& guard, const HotTable& hot, const RowSource& rows, int n_threads,
                       std::uint8_t* outside) {
    constexpr int kStep = 4 * kBlockRows;
    StageOutcome total;
    std::mutex mutex;
    for_blocks((rows.n_rows + kStep - 1) / kStep, n_threads, [&](int, std::int64_t block) {
        const PlainArithmetic plain;
        const std::int64_t first = block * kStep;
        const int n = static_cast<int>(std::min<std::int64_t>(kStep, rows.n_rows - first));
        hot.mark_outside(guard, rows, first, n, outside + first);
        const auto n_outside = std::count(outside + first, outside + first + n, std::uint8_t{1});
        if (n_outside == 0) return;
        StageOutcome found;  // whatever cannot be read is outside
        for (int i = 0; i < n && found.bad_row < 0; ++i) {
            if (outside[first + i] == 0) continue;
            found.fault = check_row(rows, first + i);
            if (found.fault != Fault::none) found.bad_row = first + i;
        }
        const std::lock_guard lock(mutex);
        total.settled += n_outside;
        if (found.bad_row >= 0 && (total.bad_row < 0 || found.bad_row < total.bad_row)) {
            total.bad_row = found.bad_row;
            total.fault = found.fault;
        }
    });
    return total;
}

}  // namespace svelto
