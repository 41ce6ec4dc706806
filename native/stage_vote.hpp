// The label of one row from a stage's scores and error scales.
#pragma once

#include <cmath>
#include <vector>

#include "vote.hpp"

namespace svelto {

class StageVote {
  public:
    // Rule, n_scores, n_classes and break_ties of `vote`, which the caller keeps.
    explicit StageVote(const Machine& vote) : vote_(vote) {}

    // The label where no error within `caution` times error(p) can change it, else kUndecided.
    template <class Error>
    int label(const float* scores, double caution, Error error) {
        const auto bound = [&](int p) { return caution > 0.0 ? caution * error(p) : 0.0; };
        if (vote_.n_scores == 1 && vote_.rule != Rule::argmax) {
            const double score = static_cast<double>(scores[0]);
            if (vote_.rule == Rule::value) return 0;
            if (!(std::fabs(score) > bound(0))) return kUndecided;
            return (score > 0.0) == (vote_.rule == Rule::sign) ? 1 : 0;
        }
        if (vote_.rule == Rule::pairs) {
            const int winner = sure_winner(scores, bound);
            if (winner != kUndecided) return winner;
        }
        scores_.resize(static_cast<std::size_t>(vote_.n_scores));
        bounds_.resize(static_cast<std::size_t>(vote_.n_scores));
        votes_.resize(static_cast<std::size_t>(2 * vote_.n_classes + 2));
        for (int p = 0; p < vote_.n_scores; ++p) {
            scores_[static_cast<std::size_t>(p)] = static_cast<double>(scores[p]);
            bounds_[static_cast<std::size_t>(p)] = bound(p);
        }
        return decide(vote_, scores_.data(), bounds_.data(), votes_.data());
    }

  private:
    // The class that beats every other one surely, if there is one: nobody can reach its votes. It is found by letting
    // classes knock each other out, which asks for two scores a class and not for all pairs.
    template <class Bound>
    int sure_winner(const float* scores, Bound bound) const noexcept {
        const int n = vote_.n_classes;
        const auto pair = [n](int i, int j) { return i * (2 * n - i - 1) / 2 + j - i - 1; };
        int winner = 0;
        for (int j = 1; j < n; ++j) winner = scores[pair(winner, j)] < 0.0f ? j : winner;
        for (int j = 0; j < n; ++j) {
            if (j == winner) continue;
            const int p = j < winner ? pair(j, winner) : pair(winner, j);
            const double lead = static_cast<double>(j < winner ? -scores[p] : scores[p]);
            if (!(lead > bound(p))) return kUndecided;
        }
        return winner;
    }

    const Machine& vote_;
    std::vector<double> scores_, bounds_, votes_;
};

}  // namespace svelto
