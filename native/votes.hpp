// What is found out about the classes of several rows at a time.
#pragma once

#include <cstdint>

namespace svelto {

constexpr std::int32_t kNoClass = -1;

// Pair scores: the class that knocked out the others, and its duels that it surely wins, and surely loses.
struct ClassDuels {
    std::int32_t *winner, *won, *lost;  // [n_rows], 64-byte aligned, with room for whole vectors
};

// One score a class: the first of the largest, kNoClass where a score is not finite; its score, and the next.
struct BestClasses {
    std::int32_t* label;  // as above
    float *score, *second;
};

}  // namespace svelto
