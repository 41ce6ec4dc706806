#include "metric_tree.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "parallel.hpp"
#include "plain_arithmetic.hpp"
#include "workspace.hpp"

namespace svelto {
namespace {

struct Node {
    std::int32_t begin = 0, end = 0;  // points, in order
    std::int32_t parent = -1;         // inner node above, -1 at the root
    int side = 0;                     // which child of it
    std::int32_t middle = -1;         // where the right side begins; -1: no split
    float spread = 0.0f;              // squared distance of the farthest pair
    float offset = 0.0f;
    std::vector<float> normal;
    std::int32_t size() const { return end - begin; }
    double weight() const { return static_cast<double>(spread) * size(); }
};

// A point is on a cut if its projection is this near, as a share of the squared distance of the farthest pair: products
// of a hundred floats are not known better.
constexpr float kOnCut = 0x1p-20f;
// Where between them and the next points on its left such a cut is moved to: a share that few differences of whole
// numbers have, because other rows of categories shall not lie there either.
constexpr float kIntoGap = 0.381966f;

// A few random bits that depend on the node alone, not on the thread that asks.
std::uint64_t mix(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

class Splitter {
  public:
    Splitter(const HotTable& hot, const float* rows, int stride, const TreeLimits& limits, std::int32_t* order)
        : hot_(hot), rows_(rows), stride_(stride), limits_(limits), order_(order) {}

    // Finds the split of a node and orders its points by side; leaves middle at -1 where the points are all alike.
    void split(Node& node) {
        const auto n = static_cast<std::size_t>(node.size());
        value_.resize(std::max(value_.size(), n));
        std::int32_t u = 0, v = 0;
        node.spread = node.size() <= limits_.exact_pairs ? all_pairs(node, u, v) : sweeps(node, u, v);
        if (!(node.spread > 0.0f)) return;
        const float *a = row(u), *b = row(v);
        node.normal.resize(static_cast<std::size_t>(stride_));
        const auto wide = [](float x) { return static_cast<double>(x); };
        double offset = 0.0;  // (|v|^2 - |u|^2) / 2
        for (int k = 0; k < stride_; ++k) {
            node.normal[static_cast<std::size_t>(k)] = a[k] - b[k];
            offset += 0.5 * (wide(b[k]) * wide(b[k]) - wide(a[k]) * wide(a[k]));
        }
        normal_.reserve(static_cast<std::size_t>(stride_));
        std::memcpy(normal_.get(), node.normal.data(), sizeof(float) * static_cast<std::size_t>(stride_));
        hot_.project_rows(normal_.get(), rows_, stride_, order_ + node.begin, node.size(), value_.data());
        node.offset = off_points(node, balanced(node.size(), static_cast<float>(offset)));
        partition(node);
        if (node.middle >= 0 || limits_.least_share <= 0.0) return;
        // Many copies of one row can leave no balanced cut; half-way there always is one.
        hot_.project_rows(normal_.get(), rows_, stride_, order_ + node.begin, node.size(), value_.data());
        node.offset = off_points(node, static_cast<float>(offset));
        partition(node);
    }

  private:
    const float* row(std::int32_t number) const { return rows_ + static_cast<std::ptrdiff_t>(number) * stride_; }

    float all_pairs(const Node& node, std::int32_t& u, std::int32_t& v) {
        float best = 0.0f;
        for (std::int32_t i = node.begin; i + 1 < node.end; ++i) {
            const std::int32_t rest = node.end - i - 1;
            hot_.square_distances(row(order_[i]), rows_, stride_, order_ + i + 1, rest, value_.data());
            const auto at = std::max_element(value_.begin(), value_.begin() + rest) - value_.begin();
            if (value_[static_cast<std::size_t>(at)] > best) {
                best = value_[static_cast<std::size_t>(at)];
                u = order_[i];
                v = order_[i + 1 + at];
            }
        }
        return best;
    }

    // From a random point to the farthest from it, from there to the farthest again, while the distance grows.
    float sweeps(const Node& node, std::int32_t& u, std::int32_t& v) {
        const std::uint64_t bits = mix(limits_.seed ^ mix(static_cast<std::uint64_t>(node.begin)));
        u = order_[node.begin + static_cast<std::int32_t>(bits % static_cast<std::uint64_t>(node.size()))];
        float best = -1.0f;
        for (int sweep = 0; sweep < 4; ++sweep) {
            hot_.square_distances(row(u), rows_, stride_, order_ + node.begin, node.size(), value_.data());
            const auto at = std::max_element(value_.begin(), value_.begin() + node.size()) - value_.begin();
            if (!(value_[static_cast<std::size_t>(at)] > best)) break;
            best = value_[static_cast<std::size_t>(at)];
            v = u;
            u = order_[node.begin + at];
        }
        return best;
    }

    // The offset of the cut, moved so far that both sides get their least share.
    float balanced(std::int32_t n, float offset) {
        const auto rank = static_cast<std::int32_t>(limits_.least_share * n);
        if (rank < 1) return offset;
        const float low = cut_below(n, rank), high = cut_below(n, n - rank);
        return -std::clamp(-offset, std::min(low, high), std::max(low, high));
    }

    // A cut that leaves `rank` projections below it: half-way between two different ones, so that no point's side
    // hinges on the rounding of a product.
    float cut_below(std::int32_t n, std::int32_t rank) {
        sorted_.assign(value_.begin(), value_.begin() + n);
        const auto at = sorted_.begin() + rank;
        std::nth_element(sorted_.begin(), at, sorted_.end());
        bool found = false;
        float below = 0.0f;
        for (auto it = sorted_.begin(); it != at; ++it)
            if (*it < *at && (!found || *it > below)) {
                below = *it;
                found = true;
            }
        return found ? 0.5f * below + 0.5f * *at : *at;
    }

    // The cut, moved off points that lie on it: their side would hinge on the rounding of a product, and be another one
    // in another order of additions. Rows of categories lie there often. They stay on the right.
    float off_points(const Node& node, float offset) const {
        const float near = kOnCut * node.spread, cut = -offset;
        float below = -std::numeric_limits<float>::infinity(), above = std::numeric_limits<float>::infinity();
        bool tied = false;
        for (std::size_t i = 0; i < static_cast<std::size_t>(node.size()); ++i) {
            if (value_[i] < cut - near)
                below = std::max(below, value_[i]);
            else
                above = std::min(above, value_[i]);
            tied = tied || std::fabs(value_[i] - cut) <= near;
        }
        return tied && std::isfinite(below) ? kIntoGap * (above - below) - above : offset;
    }

    void partition(Node& node) {
        side_.clear();
        std::int32_t to = node.begin;
        for (std::int32_t i = node.begin; i < node.end; ++i) {
            if (value_[static_cast<std::size_t>(i - node.begin)] + node.offset >= 0.0f)
                side_.push_back(order_[i]);
            else
                order_[to++] = order_[i];
        }
        std::copy(side_.begin(), side_.end(), order_ + to);
        // Rounding may put all points on one side; such a node stays a leaf.
        if (to > node.begin && to < node.end) node.middle = to;
    }

    const HotTable& hot_;
    const float* rows_;
    int stride_;
    const TreeLimits& limits_;
    std::int32_t* order_;
    std::vector<float> value_, sorted_;
    std::vector<std::int32_t> side_;
    AlignedBuffer<float> normal_;
};

}  // namespace

MetricTree build_metric_tree(const HotTable& hot, const float* rows, std::int32_t n, int stride,
                             const TreeLimits& limits) {
    MetricTree tree;
    tree.order.resize(static_cast<std::size_t>(n));
    std::iota(tree.order.begin(), tree.order.end(), 0);
    std::vector<Node> level(1), below;
    level[0].end = n;
    std::vector<std::int32_t> leaf_begin;
    const auto attach = [&](const Node& node, std::int32_t child) {
        if (node.parent >= 0) tree.children[static_cast<std::size_t>(2 * node.parent + node.side)] = child;
    };
    for (int depth = 0; !level.empty(); ++depth) {
        const bool deep = limits.max_depth > 0 && depth >= limits.max_depth;
        // Large nodes first, so that the threads finish together; the result does not depend on it.
        std::vector<std::size_t> by_size(level.size());
        std::iota(by_size.begin(), by_size.end(), 0);
        std::stable_sort(by_size.begin(), by_size.end(),
                         [&](std::size_t a, std::size_t b) { return level[a].size() > level[b].size(); });
        std::vector<std::vector<Splitter>> splitters(static_cast<std::size_t>(std::max(limits.n_threads, 1)));
        if (!deep)
            for_blocks(static_cast<std::int64_t>(level.size()), limits.n_threads, [&](int thread, std::int64_t i) {
                const PlainArithmetic plain;
                Node& node = level[by_size[static_cast<std::size_t>(i)]];
                auto& own = splitters[static_cast<std::size_t>(thread)];
                if (own.empty()) own.emplace_back(hot, rows, stride, limits, tree.order.data());
                if (node.size() > limits.leaf_size) own[0].split(node);
            });
        if (limits.max_leaves > 0) {
            // Where not all may be split, the widest and fullest are.
            std::vector<std::size_t> willing;
            for (std::size_t i = 0; i < level.size(); ++i)
                if (level[i].middle >= 0) willing.push_back(i);
            const std::int64_t taken = static_cast<std::int64_t>(leaf_begin.size() + level.size());
            const auto room = static_cast<std::size_t>(std::max<std::int64_t>(limits.max_leaves - taken, 0));
            if (willing.size() > room) {
                std::stable_sort(willing.begin(), willing.end(),
                                 [&](std::size_t a, std::size_t b) { return level[a].weight() > level[b].weight(); });
                for (std::size_t i = room; i < willing.size(); ++i) level[willing[i]].middle = -1;
            }
        }
        below.clear();
        for (const Node& node : level) {
            if (node.middle < 0) {
                attach(node, ~static_cast<std::int32_t>(leaf_begin.size()));
                leaf_begin.push_back(node.begin);
                continue;
            }
            const auto number = static_cast<std::int32_t>(tree.offsets.size());
            attach(node, number);
            tree.normals.insert(tree.normals.end(), node.normal.begin(), node.normal.end());
            tree.offsets.push_back(node.offset);
            tree.children.insert(tree.children.end(), {0, 0});
            for (int side = 0; side < 2; ++side) {
                Node child;
                child.begin = side == 0 ? node.begin : node.middle;
                child.end = side == 0 ? node.middle : node.end;
                child.parent = number;
                child.side = side;
                below.push_back(std::move(child));
            }
        }
        level.swap(below);
    }
    // Leaves were numbered as they were found, level by level; number them by their place in `order` instead, so that a
    // leaf's points are one range and neighbouring leaves share memory.
    std::vector<std::int32_t> by_place(leaf_begin.size()), new_number(leaf_begin.size());
    std::iota(by_place.begin(), by_place.end(), 0);
    std::sort(by_place.begin(), by_place.end(), [&](std::int32_t a, std::int32_t b) {
        return leaf_begin[static_cast<std::size_t>(a)] < leaf_begin[static_cast<std::size_t>(b)];
    });
    for (std::size_t i = 0; i < by_place.size(); ++i) {
        new_number[static_cast<std::size_t>(by_place[i])] = static_cast<std::int32_t>(i);
        tree.leaf_start.push_back(leaf_begin[static_cast<std::size_t>(by_place[i])]);
    }
    tree.leaf_start.push_back(n);
    for (std::int32_t& child : tree.children)
        if (child < 0) child = ~new_number[static_cast<std::size_t>(~child)];
    return tree;
}

}  // namespace svelto
