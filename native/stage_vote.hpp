// The label of one row from a stage's scores and error scales.
#pragma once

#include <cmath>
#include <vector>

#include "vote.hpp"

namespace svelto {

class StageVote {
  public:
    // Rule, n_scores, n_classes and break_ties of `vote`, which the caller keeps.
    explicit StageVote(const Machine& vote)
        : vote_(vote),
          scores_(static_cast<std::size_t>(vote.n_scores)),
          bounds_(static_cast<std::size_t>(vote.n_scores)),
          votes_(static_cast<std::size_t>(2 * vote.n_classes + 2)) {}

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
        for (int p = 0; p < vote_.n_scores; ++p) {
            scores_[static_cast<std::size_t>(p)] = static_cast<double>(scores[p]);
            bounds_[static_cast<std::size_t>(p)] = bound(p);
        }
        return decide(vote_, scores_.data(), bounds_.data(), votes_.data());
    }

  private:
    const Machine& vote_;
    std::vector<double> scores_, bounds_, votes_;
};

}  // namespace svelto
