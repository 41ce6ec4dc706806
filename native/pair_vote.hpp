// Labels of rows from the scores of all pairs of classes, where every pair has one error scale for all rows.
//
// Most rows have a class that beats every other one surely: nobody can reach its votes. It is found by rounds in which
// classes knock each other out two by two, for several rows side by side (vote_tile.hpp); its rivals then are the
// scores of one class, and all other pairs are never looked at. Where it surely loses to nobody, but is not sure to win
// against all, either it settles the row or nobody does: nobody else can be sure of as many votes as it may have. Few
// pairs tell whether all others have lost often enough. Else sure and possible votes are counted.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "hot.hpp"
#include "row_packer.hpp"
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
    PairVote(const HotTable& hot, int n_classes, const double* error)
        : hot_(&hot),
          n_(n_classes),
          error_(error),
          limit_(size(n_ * (n_ - 1) / 2)),
          row_(size(n_)),
          sure_(size(n_)),
          possible_(size(n_)) {
        for (int i = 0; i < n_; ++i) row_[size(i)] = i * (2 * n_ - i - 1) / 2 - i - 1;
        alive_.reserve(size(n_ * kTreeLanes));
        counts_.reserve(3 * kBlockRows);
    }

    // Settles where no error within `caution` times the error scales can change the label.
    void set_caution(double caution) {
        for (std::size_t p = 0; p < limit_.size(); ++p)
            limit_[p] = float_below(caution > 0.0 ? caution * error_[p] : 0.0);
    }

    // Labels of at most kBlockRows rows of scores, `stride` apart.
    void find_labels(const float* scores, int stride, int n_rows, std::int32_t* labels) {
        std::int32_t* const counts = counts_.get();
        const ClassDuels duels{counts, counts + kBlockRows, counts + 2 * kBlockRows};
        hot_->meet_classes(n_, limit_.data(), scores, stride, n_rows, alive_.get(), duels);
        for (int i = 0; i < n_rows; ++i, scores += stride) {
            const int winner = duels.winner[i], won = duels.won[i];
            if (won == n_ - 1)
                labels[i] = winner;
            else if (duels.lost[i] > 0)
                labels[i] = most_votes(scores);
            else
                labels[i] = nobody_reaches(scores, winner, won) ? winner : kUndecided;
        }
    }

    int label(const float* scores) {
        std::int32_t label = kUndecided;
        find_labels(scores, 0, 1, &label);
        return label;
    }

  private:
    static std::size_t size(int n) noexcept { return static_cast<std::size_t>(n); }
    // scores[row_of(i) + j] is the score of the pair i < j.
    int row_of(int i) const noexcept { return row_[size(i)]; }

    // Whether no other class can have as many votes as the winner surely has; an equal number is enough for those
    // before it. Its rivals, whom it does not surely beat, are asked first: they have one defeat less.
    bool nobody_reaches(const float* scores, int winner, int votes) const noexcept {
        const auto reaches = [&](int i) { return !loses_often(scores, i, n_ - 1 - votes + (i < winner)); };
        for (int i = 0; i < n_; ++i)
            if (i != winner && !loses_to(scores, i, winner) && reaches(i)) return false;
        for (int i = 0; i < n_; ++i)
            if (i != winner && reaches(i)) return false;
        return true;
    }

    // Whether a class surely loses against another one.
    bool loses_to(const float* scores, int own, int other) const noexcept {
        const int p = own < other ? row_of(own) + other : row_of(other) + own;
        return (own < other ? -scores[p] : scores[p]) > limit_[size(p)];
    }

    // Whether a class surely loses so many duels.
    bool loses_often(const float* scores, int own, int often) const noexcept {
        for (int other = 0; other < n_ && often > 0; ++other) often -= other != own && loses_to(scores, own, other);
        return often <= 0;
    }

    // As `decide` counts; loops that compilers turn into vectors.
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

    const HotTable* hot_ = nullptr;
    int n_ = 0;
    const double* error_ = nullptr;
    std::vector<float> limit_;
    std::vector<std::int32_t> row_, sure_, possible_;
    AlignedBuffer<std::int32_t> alive_, counts_;
};

}  // namespace svelto
