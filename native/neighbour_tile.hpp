// The nearest rows of one query in a tree of boxes.
//
// Nearest means smallest by (sq_dist, row): sq_dist is the float64 sum of squared differences in a fixed order, the
// same at every instruction level, and ties go to the row that comes first. Boxes and float32 images are only asked
// whether a row can still be among the nearest. With u = 2^-24 an image is off by u |z|, and a float32 sum of squares
// by a share of (width + 3) u, so a row is left out if
//     |image - image of query| > distance of the k-th nearest * (1 + rounding) + 4 u (|z| + |z of query|) + tiny,
// where `tiny` covers squares that underflow in float64. A row that could tie is never left out.
#pragma once

#include "neighbours.hpp"
#include "simd.hpp"

namespace svelto::SVELTO_NAMESPACE {
namespace {

[[gnu::always_inline]] inline bool comes_before(const Neighbour& a, const Neighbour& b) {
    return a.sq_dist < b.sq_dist || (a.sq_dist == b.sq_dist && a.row < b.row);
}

// Puts `item` in the place of the heap's last neighbour.
inline void replace_top(Neighbour* heap, int size, Neighbour item) {
    int hole = 0;
    for (int child = 1; child < size; child = 2 * hole + 1) {
        if (child + 1 < size && comes_before(heap[child], heap[child + 1])) ++child;
        if (!comes_before(item, heap[child])) break;
        heap[hole] = heap[child];
        hole = child;
    }
    heap[hole] = item;
}

// sum of (x_f - q_f)^2; q is padded with zeros to whole lanes.
[[gnu::always_inline]] inline double exact_sq_dist(const double* x, const double* q, int d) {
    constexpr int kVectors = kExactLanes / kLanes<double>;
    VecD sum[kVectors] = {};
    const auto add = [&](const double* a, const double* b) __attribute__((always_inline)) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
            VecD p, r;
            __builtin_memcpy(&p, a + v * kLanes<double>, sizeof p);
            __builtin_memcpy(&r, b + v * kLanes<double>, sizeof r);
            const VecD difference = p - r;
            sum[v] = sum[v] + difference * difference;
        }
    };
    int f = 0;
    for (; f + kExactLanes <= d; f += kExactLanes) add(x + f, q + f);
    if (f < d) {
        double rest[kExactLanes] = {};
        for (int l = 0; f + l < d; ++l) rest[l] = x[f + l];
        add(rest, q + f);
    }
    double lane[kExactLanes];
    __builtin_memcpy(lane, sum, sizeof lane);
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

// Square of the distance from an image to a box.
[[gnu::always_inline]] inline float box_sq_dist(const float* z, const float* box, int width) {
    VecF sum = {};
    for (int f = 0; f < width; f += kLanes<float>) {
        const VecF q = load(z + f);
        const VecF outside = vmax(vmax(load(box + f) - q, q - load(box + width + f)), VecF{});
        sum = fmadd(outside, outside, sum);
    }
    return static_cast<float>(lane_sum(sum));
}

class NeighbourSearch {
  public:
    NeighbourSearch(const NeighbourNodes& tree, const NeighbourQueries& queries, Neighbour* heap, NeighbourWork& work)
        : tree_(tree),
          queries_(queries),
          heap_(heap),
          work_(work),
          d_padded_((tree.d + kExactLanes - 1) / kExactLanes * kExactLanes),
          share_(1.0 + (tree.width + 16) * 1.2e-7),
          tiny_(1e-150 * tree.scale) {}

    void answer(std::int64_t query) {
        z_ = queries_.images + query * tree_.width;
        x_ = queries_.rows + query * d_padded_;
        norm_ = queries_.norm[query];
        const int k = queries_.k;
        for (int j = 0; j < k; ++j) heap_[j] = {__builtin_inf(), INT32_MAX};
        radius_ = __builtin_inf();
        walk();
        // The heap's last comes off first.
        std::int32_t* index = queries_.index + query * k;
        double* sq_dist = queries_.sq_dist + query * k;
        for (int size = k; size > 0; --size) {
            index[size - 1] = heap_[0].row;
            sq_dist[size - 1] = heap_[0].sq_dist;
            replace_top(heap_, size - 1, heap_[size - 1]);
        }
    }

  private:
    // Features between two looks at whether a group has a row left.
    static constexpr int kStep = 8;

    struct Waiting {
        std::int32_t node;
        float bound;
    };

    void walk() {
        Waiting stack[kMostLevels + 2];
        int top = 0;
        stack[top++] = {0, 0.0f};
        while (top > 0) {
            const Waiting at = stack[--top];
            std::int32_t node = at.node;
            if (at.bound > limit(node) || only_later_copies(node)) continue;
            while (tree_.right[node] >= 0) {
                std::int32_t near = node + 1, far = tree_.right[node];
                const float* box = tree_.box + static_cast<std::ptrdiff_t>(2 * tree_.width) * near;
                float near_bound = box_sq_dist(z_, box, tree_.width);
                box = tree_.box + static_cast<std::ptrdiff_t>(2 * tree_.width) * far;
                float far_bound = box_sq_dist(z_, box, tree_.width);
                if (far_bound < near_bound) {
                    const std::int32_t other = near;
                    near = far;
                    far = other;
                    const float bound = near_bound;
                    near_bound = far_bound;
                    far_bound = bound;
                }
                if (!(far_bound > limit(far))) stack[top++] = {far, far_bound};
                node = near;
                if (near_bound > limit(near) || only_later_copies(near)) break;
            }
            if (tree_.right[node] < 0 && !only_later_copies(node)) read_leaf(node);
        }
    }

    // Images further away than this (squared) cannot be among the nearest.
    float limit(std::int32_t node) const {
        constexpr double kUnit = 4.0 * 0x1p-24;
        const double most = radius_ * share_ + kUnit * (static_cast<double>(tree_.norm[node]) + norm_) + tiny_;
        const double squared = most * most * (1.0 + 1e-6);
        return squared < 3e38 ? static_cast<float>(squared) : __builtin_inff();
    }

    // Once k copies of the query are known, only rows that come before them matter: thousands of copies are not read.
    bool only_later_copies(std::int32_t node) const {
        return heap_[0].sq_dist == 0.0 && tree_.lowest[node] > heap_[0].row;
    }

    void read_leaf(std::int32_t leaf) {
        const std::int32_t first = tree_.first[leaf], count = tree_.count[leaf];
        float most = limit(leaf);
        for (std::int32_t at = 0; at < count; at += kNeighbourLanes) {
            alignas(64) float sq_dist[kNeighbourLanes];
            if (!read_group(tree_.lanes + static_cast<std::ptrdiff_t>(first + at) * tree_.width, most, sq_dist))
                continue;
            const int n = count - at < kNeighbourLanes ? count - at : kNeighbourLanes;
            // Rows lie all over the memory; they are on their way before the first is needed.
            for (int j = 0; j < n; ++j)
                if (!(sq_dist[j] > most)) fetch_row(tree_.row_of[first + at + j]);
            for (int j = 0; j < n; ++j) {
                if (sq_dist[j] > most) continue;
                const std::int32_t row = tree_.row_of[first + at + j];
                const Neighbour found{
                    exact_sq_dist(tree_.rows + static_cast<std::ptrdiff_t>(row) * tree_.d, x_, tree_.d), row};
                ++work_.rows;
                if (!comes_before(found, heap_[0])) continue;
                replace_top(heap_, queries_.k, found);
                radius_ = __builtin_sqrt(heap_[0].sq_dist) * tree_.scale;
                most = limit(leaf);
            }
        }
    }

    void fetch_row(std::int32_t row) const {
        const double* p = tree_.rows + static_cast<std::ptrdiff_t>(row) * tree_.d;
        const int last = tree_.d < 64 ? tree_.d : 64;  // the hardware brings the rest
        for (int f = 0; f < last; f += 8) __builtin_prefetch(p + f);
    }

    // Squared distances of 16 images; false as soon as all are beyond `most`.
    bool read_group(const float* group, float most, float* sq_dist) {
        constexpr int kVectors = kNeighbourLanes / kLanes<float>;
        VecF even[kVectors] = {}, odd[kVectors] = {};
        for (int f = 0; f < tree_.width; f += kStep, group += kStep * kNeighbourLanes) {
            work_.numbers += kStep * kNeighbourLanes;
#pragma GCC unroll 8
            for (int g = 0; g < kStep; g += 2) {
                const VecF p = broadcast(z_[f + g]), q = broadcast(z_[f + g + 1]);
#pragma GCC unroll 4
                for (int v = 0; v < kVectors; ++v) {
                    const VecF a = load(group + g * kNeighbourLanes + v * kLanes<float>) - p;
                    const VecF b = load(group + (g + 1) * kNeighbourLanes + v * kLanes<float>) - q;
                    even[v] = fmadd(a, a, even[v]);
                    odd[v] = fmadd(b, b, odd[v]);
                }
            }
            VecI left = {};
#pragma GCC unroll 4
            for (int v = 0; v < kVectors; ++v) left |= ~((even[v] + odd[v]) > broadcast(most));
            if (!any_lane(left)) return false;
        }
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) store(sq_dist + v * kLanes<float>, even[v] + odd[v]);
        return true;
    }

    const NeighbourNodes& tree_;
    const NeighbourQueries& queries_;
    Neighbour* heap_;
    NeighbourWork& work_;
    int d_padded_;
    double share_, tiny_;
    const float* z_ = nullptr;
    const double* x_ = nullptr;
    double norm_ = 0.0;
    double radius_ = 0.0;  // distance of the k-th nearest so far, in units of the images
};

// heap: [k].
void find_neighbours(const NeighbourNodes& tree, const NeighbourQueries& queries, const std::int32_t* which, int n,
                     Neighbour* heap, NeighbourWork& work) noexcept {
    NeighbourSearch search(tree, queries, heap, work);
    for (int i = 0; i < n; ++i) search.answer(which[i]);
}

// out[i] = squared distance of rows[row_of[i]] and queries[query_of[i]]; queries padded as above.
void pair_distances(const double* rows, const double* queries, int d, const std::int32_t* row_of,
                    const std::int32_t* query_of, std::int64_t n, double* out) noexcept {
    const std::ptrdiff_t d_padded = (d + kExactLanes - 1) / kExactLanes * kExactLanes;
    for (std::int64_t i = 0; i < n; ++i)
        out[i] = exact_sq_dist(rows + static_cast<std::ptrdiff_t>(row_of[i]) * d, queries + query_of[i] * d_padded, d);
}

}  // namespace
}  // namespace svelto::SVELTO_NAMESPACE
