// The label of one row from the scores of all pairs of classes, where every pair has one error scale for all rows.
//
// Most rows have a class that beats every other one surely: nobody can reach its votes. It is found by rounds in which
// classes knock each other out two by two; its rivals then are the scores of one class, and all other pairs are never
// looked at. Where there is none, sure and possible votes are counted, by loops that compilers turn into vectors.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "vote.hpp"

namespace svelto {

// The largest float at or below x: a float is above one exactly where it is above the other.
inline float float_below(double x) {
    const float near = static_cast<float>(x);
    return static_cast<double>(near) > x ? std::nextafter(near, -std::numeric_limits<float>::infinity()) : near;
}

class PairVote {
  public:
    // Whether it can decide for a machine; broken ties need sums of scores.
    static bool serves(const Machine& vote) {
        return vote.rule == Rule::pairs && vote.n_classes > 2 && !vote.break_ties;
    }

    PairVote() = default;
    PairVote(int n_classes, const double* error)
        : n_(n_classes),
          error_(error),
          limit_(n_pairs()),
          alive_(static_cast<std::size_t>(n_classes)),
          sure_(static_cast<std::size_t>(n_classes)),
          possible_(static_cast<std::size_t>(n_classes)) {}

    // Settles where no error within `caution` times the error scales can change the label.
    void set_caution(double caution) {
        for (std::size_t p = 0; p < limit_.size(); ++p)
            limit_[p] = float_below(caution > 0.0 ? caution * error_[p] : 0.0);
    }

    int label(const float* scores) {
        const int winner = last_alive(scores);
        return beats_all(scores, winner) ? winner : most_votes(scores);
    }

  private:
    std::size_t n_pairs() const noexcept { return static_cast<std::size_t>(n_) * static_cast<std::size_t>(n_ - 1) / 2; }
    // scores[row_of(i) + j] is the score of the pair i < j.
    int row_of(int i) const noexcept { return i * (2 * n_ - i - 1) / 2 - i - 1; }

    // Rounds instead of one class after the other: the comparisons of a round do not wait for each other.
    int last_alive(const float* scores) noexcept {
        std::int32_t* alive = alive_.data();
        for (int i = 0; 2 * i + 1 < n_; ++i) alive[i] = 2 * i + (scores[row_of(2 * i) + 2 * i + 1] < 0.0f);
        if (n_ % 2 == 1) alive[n_ / 2] = n_ - 1;
        for (int left = (n_ + 1) / 2; left > 1; left = (left + 1) / 2) {
            for (int i = 0; 2 * i + 1 < left; ++i) {
                const std::int32_t a = alive[2 * i], b = alive[2 * i + 1];
                alive[i] = scores[row_of(a) + b] < 0.0f ? b : a;
            }
            if (left % 2 == 1) alive[left / 2] = alive[left - 1];
        }
        return alive[0];
    }

    bool beats_all(const float* scores, int winner) const noexcept {
        int beaten = 0;
        for (int i = 0, p = winner - 1; i < winner; ++i, p += n_ - i - 1) beaten += -scores[p] > limit(p);
        const int row = row_of(winner);
        for (int j = winner + 1; j < n_; ++j) beaten += scores[row + j] > limit(row + j);
        return beaten == n_ - 1;
    }

    // As `decide` counts.
    int most_votes(const float* scores) noexcept {
        std::int32_t* const sure = sure_.data();
        std::int32_t* const possible = possible_.data();
        for (int i = 0; i < n_; ++i) sure[i] = possible[i] = 0;
        const float* limit = limit_.data();
        for (int i = 0; i < n_; ++i) {
            const int n = n_ - i - 1;
            std::int32_t own_sure = 0, own_possible = 0;
            for (int k = 0; k < n; ++k) {
                const std::int32_t wins = scores[k] > limit[k], loses = -scores[k] > limit[k];
                own_sure += wins;
                own_possible += 1 - loses;
                sure[i + 1 + k] += loses;
                possible[i + 1 + k] += 1 - wins;
            }
            sure[i] += own_sure;
            possible[i] += own_possible;
            scores += n;
            limit += n;
        }
        int best = 0;
        for (int i = 1; i < n_; ++i) best = sure[i] > sure[best] ? i : best;
        for (int i = 0; i < n_; ++i)
            if (i != best && sure[best] < possible[i] + (i < best)) return kUndecided;  // the first wins a tie
        return best;
    }

    float limit(int pair) const noexcept { return limit_[static_cast<std::size_t>(pair)]; }

    int n_ = 0;
    const double* error_ = nullptr;
    std::vector<float> limit_;
    std::vector<std::int32_t> alive_, sure_, possible_;
};

}  // namespace svelto
