#include "settled_scores.hpp"

#include <algorithm>
#include <vector>

#include "parallel.hpp"
#include "plain_arithmetic.hpp"
#include "vote.hpp"

namespace svelto {
namespace {

constexpr std::int64_t kStep = 256;  // rows that a thread takes at a time

std::vector<double> room_for_votes(const Machine& vote) {
    return std::vector<double>(static_cast<std::size_t>(2 * vote.n_classes + 2));
}

}  // namespace

void settle_scores(const Machine& vote, const double* scores, const double* bounds, std::int64_t n_rows,
                   std::int32_t* labels) {
    std::vector<double> votes = room_for_votes(vote);
    for (std::int64_t row = 0; row < n_rows; ++row)
        labels[row] = decide(vote, scores + row * vote.n_scores, bounds + row * vote.n_scores, votes.data());
}

void last_settled_rungs(const Machine& vote, const double* scores, const double* errors, std::int64_t n_rows,
                        const double* rungs, int n_rungs, int n_threads, std::int32_t* last) {
    for_blocks((n_rows + kStep - 1) / kStep, n_threads, [&](int, std::int64_t block) {
        const PlainArithmetic plain;
        std::vector<double> votes = room_for_votes(vote), bounds(static_cast<std::size_t>(vote.n_scores));
        const auto settles = [&](std::int64_t row, int rung) {
            const double* error = errors + row * vote.n_scores;
            for (int p = 0; p < vote.n_scores; ++p) bounds[static_cast<std::size_t>(p)] = rungs[rung] * error[p];
            return decide(vote, scores + row * vote.n_scores, bounds.data(), votes.data()) != kUndecided;
        };
        const std::int64_t end = std::min(n_rows, (block + 1) * kStep);
        for (std::int64_t row = block * kStep; row < end; ++row) {
            int low = 0, high = n_rungs - 1;
            while (low < high) {
                const int middle = (low + high + 1) / 2;
                if (settles(row, middle))
                    low = middle;
                else
                    high = middle - 1;
            }
            last[row] = low;
        }
    });
}

}  // namespace svelto
