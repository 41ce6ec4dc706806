#include "local_spread.hpp"

#include <algorithm>
#include <vector>

#include "parallel.hpp"
#include "plain_arithmetic.hpp"

namespace svelto {
namespace {

constexpr std::int64_t kProblems = 64;  // a step

double spread_of(const double* rows, int d, const std::int64_t* numbers, std::int64_t n, double* sum, double* squares) {
    if (n == 0) return 0.0;
    std::fill_n(sum, d, 0.0);
    std::fill_n(squares, d, 0.0);
    const double* first = rows + numbers[0] * d;
    for (std::int64_t i = 1; i < n; ++i) {
        const double* row = rows + numbers[i] * d;
        for (int k = 0; k < d; ++k) {
            const double difference = row[k] - first[k];
            sum[k] += difference;
            squares[k] += difference * difference;
        }
    }
    const auto count = static_cast<double>(n);
    double total = 0.0;
    for (int k = 0; k < d; ++k) total += squares[k] / count - (sum[k] / count) * (sum[k] / count);
    return std::max(total, 0.0);
}

}  // namespace

void local_spread(const double* rows, int d, const std::int64_t* start, const std::int64_t* numbers,
                  std::int64_t n_problems, int n_threads, double* spread) {
    for_blocks((n_problems + kProblems - 1) / kProblems, n_threads, [&](int, std::int64_t block) {
        const PlainArithmetic plain;
        std::vector<double> sum(static_cast<std::size_t>(d)), squares(static_cast<std::size_t>(d));
        const std::int64_t last = std::min(n_problems, (block + 1) * kProblems);
        for (std::int64_t p = block * kProblems; p < last; ++p)
            spread[p] = spread_of(rows, d, numbers + start[p], start[p + 1] - start[p], sum.data(), squares.data());
    });
}

}  // namespace svelto
