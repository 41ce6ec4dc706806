// Hinging hyperplanes as arrays: a score is a linear function of the row plus weighted hinges max(0, w.x + c), in one
// layer or in two, the second one made of hinges of the first one's hinges.
//
// The columns of a layer are the scores, as far as they are known after it, and then its hinges:
//   first layer   score_p = w_p.x + c_p                            hinge_h = max(0, w_h.x + c_h)
//   second layer  score_p += sum over the hinges before it         hinge_h = max(0, sum over the hinges before it +
//   c_h) at the end    score_p += sum over the last layer's hinges
// A score is a column like any other, only without a floor.
//
// Bumps are the same with another shape: a reduced set, whose columns are the kernel values of a few vectors,
//   bump_h = 2^(w_h.x + c_h - row_weight |x|^2)      score_p = intercept_p + sum over the bumps
// in one layer, without a linear part.
#pragma once

#include "tree.hpp"

namespace svelto {

constexpr int kMostHingeLayers = 2;
constexpr int kPairedScores = kTreeLanes / 2;

struct HingeLayer {
    int n_inputs = 0;                // features, or hinges of the layer before
    int n_columns = 0;               // scores and hinges
    int width = 0;                   // n_columns rounded up to kTreeLanes
    const float* weights = nullptr;  // [n_inputs][width]
    const float* bias = nullptr;     // [width]; beyond the first layer that of scores is added to what they were
    const float* floor = nullptr;    // [width]: minus infinity for scores, 0 for hinges
};

struct Hinges {
    int d = 0;
    int n_scores = 0;
    int padded = 1;  // distance of two rows' scores: n_scores rounded up to kTreeLanes, 1 with a single score
    int n_layers = 0;
    HingeLayer layers[kMostHingeLayers];
    // What the last hinges add to the scores. A single score: a weight for each column of the last layer, 1 for the
    // score's own. Several: one more layer, without hinges.
    const float* mix = nullptr;  // [width of the last layer]
    HingeLayer last;
    // Weights of `last` for at most kPairedScores scores: [(n_inputs + 1) / 2][kTreeLanes], a score's weights of two
    // inputs beside each other; null: for more.
    const float* paired = nullptr;
    bool bumps = false;
    float row_weight = 0.0f;  // of bumps
    float intercept = 0.0f;   // of bumps with a single score; of several it is the bias of `last`
};

}  // namespace svelto
