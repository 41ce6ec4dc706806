#include "reduced_stage.hpp"

#include <algorithm>
#include <vector>

#include "plain_arithmetic.hpp"
#include "settled_scores.hpp"
#include "vote.hpp"

namespace svelto {
namespace {

// Rows whose scores and bounds are held at a time.
constexpr std::int64_t kRowsAtATime = 8192;

}  // namespace

StageOutcome reduced_labels(const ReducedSum& stage, const RowSource& rows, double caution, int n_threads,
                            std::int32_t* labels) {
    const auto n_scores = static_cast<std::size_t>(stage.vote.n_scores);
    const auto most = static_cast<std::size_t>(std::min(rows.n_rows, kRowsAtATime));
    std::vector<double> scores(most * n_scores), bounds(most * n_scores), relative(stage.map != nullptr ? most : 0);
    StageOutcome total;
    for (std::int64_t first = 0; first < rows.n_rows; first += kRowsAtATime) {
        const RowSource part = rows_from(rows, first, std::min(kRowsAtATime, rows.n_rows - first));
        const Outcome summed = stage.sum->scores(
            part, stage.precision, useful_threads(part.n_rows, stage.rows_per_thread, n_threads), scores.data());
        if (summed.bad_row >= 0) return {total.settled, first + summed.bad_row, summed.fault};
        if (caution > 0.0 && stage.map != nullptr) {
            const int threads = useful_threads(part.n_rows, kStageRowsPerThread, n_threads);
            const StageOutcome mapped = stage.map->errors(part, threads, relative.data());
            if (mapped.bad_row >= 0) return {total.settled, first + mapped.bad_row, mapped.fault};
        }
        const PlainArithmetic plain;
        for (std::int64_t row = 0; row < part.n_rows; ++row) {
            double* bound = bounds.data() + static_cast<std::size_t>(row) * n_scores;
            const double error = stage.map != nullptr ? relative[static_cast<std::size_t>(row)] : 1.0;
            for (std::size_t p = 0; p < n_scores; ++p)
                bound[p] = caution > 0.0 ? caution * (error * stage.unit[p]) : 0.0;
        }
        std::int32_t* to = labels + first;
        settle_scores(stage.vote, scores.data(), bounds.data(), part.n_rows, to);
        total.settled += part.n_rows - std::count(to, to + part.n_rows, kUndecided);
    }
    return total;
}

}  // namespace svelto
