// Rows that are already packed on their way through chains of hyperplanes.
//
// Products are those of tree_tile.hpp: nothing is fused and sums run in sixteen parts, so that a row meets the same
// values at every instruction level and beside any other rows. What a product decides is not foreseeable, so nothing
// here branches on it but for the ends of long walks.
#pragma once

#include "chain_column_tile.hpp"
#include "chains.hpp"
#include "tree_tile.hpp"

namespace svelto::SVELTO_NAMESPACE {
namespace {

// -1, 0, +1. At most one of the two holds; with a NaN none does.
[[gnu::always_inline]] inline int side_of(float score, float low, float high) {
    return static_cast<int>(score > high) - static_cast<int>(score < low);
}

// Node by node, the rows of the list that the node does not settle are closed up for the next.
template <bool kStored, int kGroups, bool kTrace>
inline int peel(const Chains& chains, int first, int last, const TreeRows& rows, std::int32_t* list, int n,
                const ChainAnswers& out) {
    const std::ptrdiff_t stride = kGroups > 0 ? kGroups * kTreeLanes : chains.stride;
    for (int h = first; h < last && n > 0; ++h) {
        const ChainNode node = chains.nodes[h];
        const float* plane = chains.planes + h * stride;
        int kept = 0;
        for (int i = 0; i < n; ++i) {
            const std::int32_t row = list[i];
            const float score = step_dot<kStored, kGroups>(rows, row, plane, static_cast<int>(stride));
            const int side = side_of(score, node.low, node.high);
            out.outcome[row] = static_cast<std::int8_t>(side);
            if constexpr (kTrace) {
                out.node[row] = h - first;
                out.score[row] = score;
            }
            list[kept] = row;
            kept += side == 0;
        }
        n = kept;
    }
    return n;
}

// Calls visit with the number of groups of lanes of short rows as a constant, 0 for longer ones.
template <class Visit>
[[gnu::always_inline]] inline auto with_groups(int stride, Visit visit) {
    switch (stride / kTreeLanes) {
        case 1:
            return visit(Number<1>{});
        case 2:
            return visit(Number<2>{});
        case 3:
            return visit(Number<3>{});
        case 4:
            return visit(Number<4>{});
        default:
            return visit(Number<0>{});
    }
}

// Takes the n rows of `list` through the nodes [first, last) of a chain. Returns how many no node settled; they stand
// at the front of the list, in their order. Rows that meet no node have no answer. columns: the rows as turn_rows makes
// them, or null.
inline int peel_chain(const Chains& chains, int first, int last, const TreeRows& rows, const float* columns,
                      std::int32_t* list, int n, const ChainAnswers& out) noexcept {
    const bool trace = out.node != nullptr;
    if (columns != nullptr) return peel_columns(chains, first, last, rows, columns, list, n, out);
    if (rows.stored != nullptr)
        return trace ? peel<true, 0, true>(chains, first, last, rows, list, n, out)
                     : peel<true, 0, false>(chains, first, last, rows, list, n, out);
    return with_groups(chains.stride, [&](auto groups) {
        constexpr int kGroups = decltype(groups)::value;
        return trace ? peel<false, kGroups, true>(chains, first, last, rows, list, n, out)
                     : peel<false, kGroups, false>(chains, first, last, rows, list, n, out);
    });
}

// A row in the knock-out.
struct Duellist {
    std::int32_t row;
    std::int32_t step;
    std::int32_t lost;  // the last step at which a champion was beaten, -1: none was
    std::int32_t stop;  // where a step leads when the check is complete, -1: rising
};

// The champion `c` has met all places behind it. False where nothing is left to check.
[[gnu::always_inline]] inline bool begin_check(const Knockout& game, int c, Duellist& walker) {
    if (c <= 1) return false;  // place 1 is champion only where it has beaten place 0
    // Who beats a champion is the challenger of that step; who follows two that are out has beaten nobody yet.
    const auto beaten_at = [&](std::int32_t step) { return step >= 0 && game.steps[step].challenger == c; };
    const std::int32_t won = beaten_at(walker.step) ? walker.step : beaten_at(walker.lost) ? walker.lost : -1;
    const std::int32_t* check = game.check + c * (c - 1) / 2;
    const int beaten = won >= 0 ? game.steps[won].champion : -1;
    walker.step = check[beaten + 1 < c ? beaten + 1 : 0];
    walker.stop = 2 * check[beaten >= 0 ? beaten : 0];
    return true;
}

// Long rows that walk at once: few enough to stay in the fastest memory between two steps of theirs.
constexpr int kLongRows = 8;

// Several rows walk at once. All take their step before any of them is asked where it leads: a wrong guess then costs
// what the guess is about, and not the products of the rows behind it.
template <bool kStored, int kGroups, bool kFetch>
inline void duel(const Knockout& game, const TreeRows& rows, std::int32_t* place, std::int32_t* work) {
    const std::ptrdiff_t stride = kGroups > 0 ? kGroups * kTreeLanes : game.stride;
    constexpr int kAtOnce = !kStored && kGroups == 0 ? kLongRows : kWalkers;
    int walking = rows.n < kAtOnce ? rows.n : kAtOnce, next_row = walking;
    Duellist walkers[kAtOnce];
    std::int32_t leads_to[kAtOnce];
    for (int g = 0; g < walking; ++g) walkers[g] = {g, 0, -1, -1};
    if (work != nullptr)
        for (int i = 0; i < rows.n; ++i) work[i] = 0;
    while (walking > 0) {
        for (int g = 0; g < walking; ++g) {
            const DuelStep& here = game.steps[walkers[g].step];
            const float* plane = game.planes + here.plane * stride;
            const float score = step_dot<kStored, kGroups>(rows, walkers[g].row, plane, static_cast<int>(stride));
            leads_to[g] = here.next[1 + side_of(score, here.low, here.high)];
            if (work != nullptr) work[walkers[g].row] += here.cost;
        }
        for (int g = 0; g < walking;) {
            Duellist& walker = walkers[g];
            const std::int32_t next = leads_to[g];
            if (next >= 0 && next != walker.stop) [[likely]] {
                const std::int32_t falls = -(next & 1);  // all bits or none
                walker.lost = (walker.lost & ~falls) | (walker.step & falls);
                walker.step = next >> 1;
                if constexpr (kFetch)
                    fetch_for<kStored>(rows, walker.row, game.planes + game.steps[next >> 1].plane * stride,
                                       static_cast<int>(stride));
                ++g;
                continue;
            }
            std::int32_t winner = game.steps[walker.step].champion;
            if (next < 0) {
                winner = ~next - 1;
                if (winner >= 0 && begin_check(game, winner, walker)) {
                    ++g;
                    continue;
                }
            }
            place[walker.row] = winner;
            if (next_row < rows.n) {
                walker = {next_row++, 0, -1, -1};
                ++g;
            } else {
                --walking;
                walker = walkers[walking];
                leads_to[g] = leads_to[walking];
            }
        }
    }
}

// place[row]: who wins all its duels, -1 where nobody does. work: planes evaluated for each row, or null.
inline void knock_out(const Knockout& game, const TreeRows& rows, std::int32_t* place, std::int32_t* work) noexcept {
    if (rows.stored != nullptr)
        return game.fetch ? duel<true, 0, true>(game, rows, place, work)
                          : duel<true, 0, false>(game, rows, place, work);
    with_groups(game.stride, [&](auto groups) {
        constexpr int kGroups = decltype(groups)::value;
        game.fetch ? duel<false, kGroups, true>(game, rows, place, work)
                   : duel<false, kGroups, false>(game, rows, place, work);
    });
}

}  // namespace
}  // namespace svelto::SVELTO_NAMESPACE
