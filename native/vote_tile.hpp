// Votes of a block of rows: what is the same for every row is done for several of them side by side, a row in each
// lane. Which score comes next depends on the row, so that scores are gathered. Nothing is rounded but finite scores to
// themselves: all levels see the same winners.
#pragma once

#include "simd.hpp"
#include "votes.hpp"

namespace svelto::SVELTO_NAMESPACE {
namespace {

// Where the rows of a vector start in a block; lanes behind the last row repeat the first.
[[gnu::always_inline]] inline VecI row_starts(int n_rows, int stride) {
    VecI start;
    for (int r = 0; r < kLanes<float>; ++r) start[r] = (r < n_rows ? r : 0) * stride;
    return start;
}

// The place of the pair a < b among the scores of all pairs of n classes.
[[gnu::always_inline]] inline VecI place_of_pair(int n, VecI a, VecI b) {
    return ((a * (2 * n - 1 - a)) >> 1) + b - a - 1;
}

// The class that is left when classes knock each other out two by two; `alive`: room for a vector for every class.
[[gnu::always_inline]] inline VecI last_alive(int n, const float* scores, VecI start, VecI* alive) {
    for (int i = 0; i < n; ++i) alive[i] = broadcast(i);
    for (int left = n; left > 1; left = (left + 1) / 2) {
        for (int i = 0; 2 * i + 1 < left; ++i) {
            const VecI a = alive[2 * i], b = alive[2 * i + 1];
            alive[i] = gather(scores, start + place_of_pair(n, a, b)) < 0.0f ? b : a;
        }
        if (left % 2 == 1) alive[left / 2] = alive[left - 1];
    }
    return alive[0];
}

void meet_classes(int n, const float* limit, const float* scores, int stride, int n_rows, std::int32_t* scratch,
                  const ClassDuels& duels) noexcept {
    VecI* const alive = reinterpret_cast<VecI*>(scratch);
    for (int first = 0; first < n_rows; first += kLanes<float>, scores += kLanes<float> * stride) {
        const VecI start = row_starts(n_rows - first, stride);
        const VecI winner = last_alive(n, scores, start, alive);
        VecI won = {}, lost = {};
        for (int j = 0; j < n; ++j) {
            const VecI other = broadcast(j), is_behind = winner < other;
            const VecI place = place_of_pair(n, is_behind ? winner : other, is_behind ? other : winner);
            const VecI is_pair = winner != other;  // none with itself; what is read then does not count
            const VecF score = gather(scores, start + (place & is_pair));
            const VecF bound = gather(limit, place & is_pair), lead = is_behind ? score : -score;
            won -= (lead > bound) & is_pair;
            lost -= (-lead > bound) & is_pair;
        }
        store(duels.winner + first, winner);
        store(duels.won + first, won);
        store(duels.lost + first, lost);
    }
}

// The best class and the next of several rows, a row in each lane; column(p): their scores of class p.
template <class Column>
[[gnu::always_inline]] inline void best_of_columns(int n, Column column, int first, const BestClasses& best) {
    VecF most = column(0), second = broadcast(-__builtin_inff()), trace = most - most;
    VecI label = {};
    for (int p = 1; p < n; ++p) {
        const VecF value = column(p);
        const VecI is_more = value > most;
        label = is_more ? broadcast(p) : label;
        second = vmax(second, is_more ? most : value);
        most = vmax(most, value);
        trace += value - value;
    }
    store(best.label + first, (trace == 0.0f) ? label : broadcast(kNoClass));
    store(best.score + first, most);
    store(best.second + first, second);
}

void best_classes(int n, const float* scores, int stride, int n_rows, const BestClasses& best) noexcept {
    for (int first = 0; first < n_rows; first += kLanes<float>, scores += kLanes<float> * stride) {
#if SVELTO_LEVEL == 2
        if (stride == 16) {  // whole rows fit vectors: faster than gathering
            VecF rows[16];
            for (int r = 0; r < 16; ++r) rows[r] = load(scores + (r < n_rows - first ? r : 0) * stride);
            transpose(rows);
            best_of_columns(n, [&](int p) { return rows[p]; }, first, best);
            continue;
        }
#endif
        const VecI start = row_starts(n_rows - first, stride);
        best_of_columns(n, [&](int p) { return gather(scores, start + p); }, first, best);
    }
}

}  // namespace
}  // namespace svelto::SVELTO_NAMESPACE
