#include "certified.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "parallel.hpp"
#include "plain_arithmetic.hpp"
#include "vote.hpp"

namespace svelto {
namespace {

constexpr int kStepRows = 256;

struct Buffers {
    std::vector<double> row, score, bound, votes;
};

}  // namespace

StageOutcome certified_labels(const TreeStage& stage, const CertifiedLeaves& leaves, const HotTable& hot,
                              const RowSource& rows, int n_threads, std::int32_t* labels, double* scores,
                              double* bounds) {
    const int d = stage.tree.d, n_scores = stage.vote.n_scores;
    std::vector<std::int32_t> leaf(static_cast<std::size_t>(rows.n_rows));
    StageTrace where;
    where.leaf = leaf.data();
    StageOutcome outcome = stage_scores(stage, hot, rows, n_threads, where);
    if (outcome.bad_row >= 0) return outcome;
    std::vector<Buffers> buffers(static_cast<std::size_t>(std::max(n_threads, 1)));
    for_blocks((rows.n_rows + kStepRows - 1) / kStepRows, n_threads, [&](int thread, std::int64_t step) {
        const PlainArithmetic plain;
        Buffers& own = buffers[static_cast<std::size_t>(thread)];
        own.row.resize(static_cast<std::size_t>(d));
        own.score.resize(static_cast<std::size_t>(n_scores));
        own.bound.resize(static_cast<std::size_t>(n_scores));
        own.votes.resize(static_cast<std::size_t>(2 * stage.vote.n_classes + 2));
        const std::int64_t last = std::min<std::int64_t>((step + 1) * kStepRows, rows.n_rows);
        for (std::int64_t i = step * kStepRows; i < last; ++i) {
            read_dense(rows, i, own.row.data());  // readable: the walk has read it before
            const std::ptrdiff_t at = leaf[static_cast<std::size_t>(i)];
            const double* centre = leaves.centres + at * d;
            double q = 0.0;
            for (int k = 0; k < d; ++k) {
                double& x = own.row[static_cast<std::size_t>(k)];
                x -= centre[k];
                q += x * x;
            }
            const bool inside = q <= leaves.sq_radius[at];
            const double factor = std::exp(-leaves.gamma * q), root = std::sqrt(q);
            for (int p = 0; p < n_scores; ++p) {
                const std::ptrdiff_t cell = at * n_scores + p;
                const double* slope = leaves.slope + cell * d;
                double linear = leaves.value[cell];
                for (int k = 0; k < d; ++k) linear += slope[k] * own.row[static_cast<std::size_t>(k)];
                const double middle = 0.5 * (leaves.low[cell] + leaves.high[cell]) * q;
                const double half = 0.5 * (leaves.high[cell] - leaves.low[cell]) * q + leaves.cubic[cell] * q * root;
                own.score[static_cast<std::size_t>(p)] = leaves.intercept[p] + factor * (linear + middle);
                own.bound[static_cast<std::size_t>(p)] = inside ? factor * half * (1.0 + 1e-12) + leaves.slack[cell]
                                                                : std::numeric_limits<double>::infinity();
            }
            labels[i] = decide(stage.vote, own.score.data(), own.bound.data(), own.votes.data());
            if (scores != nullptr) std::copy(own.score.begin(), own.score.end(), scores + i * n_scores);
            if (bounds != nullptr) std::copy(own.bound.begin(), own.bound.end(), bounds + i * n_scores);
        }
    });
    outcome.settled = rows.n_rows - std::count(labels, labels + rows.n_rows, kUndecided);
    return outcome;
}

}  // namespace svelto
