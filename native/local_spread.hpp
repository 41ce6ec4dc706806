// How far the rows of a neighbourhood lie apart.
#pragma once

#include <cstdint>

namespace svelto {

// spread[p]: the variance of the rows numbers[start[p] .. start[p + 1]) of rows [n][d], summed over features; 0 for no
// rows. Taken about the first of them: far from zero squares have no digits to spare.
void local_spread(const double* rows, int d, const std::int64_t* start, const std::int64_t* numbers,
                  std::int64_t n_problems, int n_threads, double* spread);

}  // namespace svelto
