// Chains of hyperplanes as arrays, and the knock-out between classes that is played with them.
//
// A row passes the nodes of a chain one after another until a product lies below `low` (outcome -1) or above `high`
// (outcome +1); a product between them, at one of them or NaN leads to the next node, past the last to the chain's end.
#pragma once

#include <cstdint>

#include "tree.hpp"

namespace svelto {

enum class ChainRule : int { one_vs_one = 0, one_vs_rest = 1 };

struct ChainNode {
    float low = 0.0f;
    float high = 0.0f;
};

struct Chains {
    int d = 0;
    int stride = 0;  // d rounded up to kTreeLanes
    int n_nodes = 0;
    int n_chains = 0;
    int n_classes = 0;
    ChainRule rule = ChainRule::one_vs_one;
    const float* planes = nullptr;          // [max(n_nodes, 1)][stride], 64-byte aligned
    const ChainNode* nodes = nullptr;       // [n_nodes]
    const std::int32_t* start = nullptr;    // [n_chains + 1]: a chain's nodes
    const std::int32_t* end = nullptr;      // [n_chains]: outcome past the last node, 0: open
    const std::int32_t* classes = nullptr;  // [n_chains][2]: the class that outcome -1 votes for, and +1; -1: none
    const std::int32_t* order = nullptr;    // [n_classes]: the class at each place; places play in this order
};

// Most rows of a block that are turned to columns of features.
constexpr int kColumnRows = 64;

// What the rows of a block met in a chain. node and score are null together, and else 64-byte aligned with room for
// kColumnRows; only what stands there for rows that were asked for has a meaning.
struct ChainAnswers {
    std::int8_t* outcome = nullptr;  // 0 where no node decided
    std::int32_t* node = nullptr;    // the last node met, counted from the chain's first
    float* score = nullptr;          // its product
};

// A node in a duel of the knock-out; one load brings all that a step needs besides the plane. The champion of a step
// was met with the challenger, both are places. A chain without nodes has a step whose thresholds no product passes.
struct alignas(32) DuelStep {
    float low = 0.0f;
    float high = 0.0f;
    // Below low, between, above high: twice a step's number, plus 1 where the champion is beaten here, or < 0.
    std::int32_t next[3] = {};
    std::int32_t plane = 0;
    std::int16_t champion = 0;
    std::int16_t challenger = 0;
    std::int32_t cost = 0;  // planes evaluated here: 0 in a chain without nodes
};

// What is < 0 ends a walk: the row is open, or the champion ~next - 1 has met all places behind it.
constexpr std::int32_t kOpenRow = ~0;

// The knock-out of n_classes >= 2 places. Rising: the champion, at first place 0, meets the places behind it one by
// one, and who beats it takes its place; where a duel is open neither can win all its duels, and the next place is
// champion. Checking: the last champion meets the places before it, round from behind the one that it has beaten.
struct Knockout {
    int stride = 0;
    bool fetch = false;  // the planes live in slow memory
    const float* planes = nullptr;
    const DuelStep* steps = nullptr;
    const std::int32_t* check = nullptr;  // [c (c - 1) / 2 + q]: the step at which champion c meets q < c
};

}  // namespace svelto
