#include "neighbour_tree.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "parallel.hpp"
#include "plain_arithmetic.hpp"

namespace svelto {
namespace {

// Branches that threads build on their own; what is above them is built by one.
constexpr std::size_t kBranches = 64;
// Queries a thread takes at a time: neighbours in the tree, so that they find its nodes in the cache.
constexpr std::int64_t kQueryBlock = 16;

std::size_t at(std::int64_t k) {
    return static_cast<std::size_t>(k);
}

// Rows [begin, end) of the order, to become a node.
struct Range {
    std::int32_t begin = 0, end = 0;
    int level = 0;
    std::int32_t size() const { return end - begin; }
};

class Grower {
  public:
    Grower(const float* images, int width, const std::vector<float>& norm, int leaf_rows, std::int32_t* order)
        : images_(images), width_(width), norm_(norm), leaf_rows_(leaf_rows), order_(order) {}

    // Adds the node of a range and everything below it.
    void grow(const Range& range, NeighbourBranch& to) const {
        const std::size_t node = add_node(range, to);
        Range left, right;
        if (!divide(range, to, node, left, right)) return;
        grow(left, to);
        to.right[node] = static_cast<std::int32_t>(to.right.size());
        grow(right, to);
    }

    // Adds a node for the range with its box; a leaf until it is divided.
    std::size_t add_node(const Range& range, NeighbourBranch& to) const {
        const std::size_t node = to.right.size(), width = at(width_);
        to.box.resize((node + 1) * 2 * width);
        float* low = to.box.data() + node * 2 * width;
        float* high = low + width;
        std::fill(low, high, std::numeric_limits<float>::infinity());
        std::fill(high, high + width, -std::numeric_limits<float>::infinity());
        float norm = 0.0f;
        std::int32_t lowest = order_[range.begin];
        for (std::int32_t i = range.begin; i < range.end; ++i) {
            const float* z = image(order_[i]);
            for (std::size_t f = 0; f < width; ++f) {
                low[f] = z[f] < low[f] ? z[f] : low[f];
                high[f] = z[f] > high[f] ? z[f] : high[f];
            }
            norm = std::max(norm, norm_[at(order_[i])]);
            lowest = std::min(lowest, order_[i]);
        }
        to.norm.push_back(norm);
        to.lowest.push_back(lowest);
        to.cut.push_back(0.0f);
        to.right.push_back(-1);
        to.first.push_back(range.begin);
        to.count.push_back(range.size());
        to.feature.push_back(0);
        return node;
    }

    // Cuts a node at the middle of its box's widest side; false for leaves. On data that fill few of their dimensions,
    // such boxes are smaller than those of cuts at the median, and several times fewer are visited. Rows that no middle
    // divides, and what is left below many lopsided cuts, are halved.
    bool divide(const Range& range, NeighbourBranch& to, std::size_t node, Range& left, Range& right) const {
        if (range.size() <= leaf_rows_) return false;
        const std::size_t width = at(width_);
        const float* low = to.box.data() + node * 2 * width;
        const float* high = low + width;
        std::size_t widest = 0;
        for (std::size_t f = 1; f < width; ++f)
            if (high[f] - low[f] > high[widest] - low[widest]) widest = f;
        const auto value = [&](std::int32_t row) { return image(row)[widest]; };
        std::int32_t* begin = order_ + range.begin;
        std::int32_t* end = order_ + range.end;
        float cut = 0.5f * low[widest] + 0.5f * high[widest];
        std::int32_t* middle = begin;
        if (range.level < kMiddleLevels)
            middle = std::partition(begin, end, [&](std::int32_t row) { return value(row) <= cut; });
        if (high[widest] == low[widest]) {
            // Copies of one row, by number: a search that knows enough of them leaves out the others.
            middle = begin + range.size() / 2;
            std::sort(begin, end);
            cut = low[widest];
        } else if (middle == begin || middle == end) {
            middle = begin + range.size() / 2;
            std::nth_element(begin, middle, end, [&](std::int32_t a, std::int32_t b) { return value(a) < value(b); });
            cut = value(*middle);
        }
        to.cut[node] = cut;
        to.feature[node] = static_cast<std::int32_t>(widest);
        const auto place = static_cast<std::int32_t>(middle - order_);
        left = {range.begin, place, range.level + 1};
        right = {place, range.end, range.level + 1};
        return true;
    }

  private:
    const float* image(std::int32_t row) const { return images_ + static_cast<std::ptrdiff_t>(row) * width_; }

    const float* images_;
    int width_;
    const std::vector<float>& norm_;
    int leaf_rows_;
    std::int32_t* order_;
};

// The upper nodes, made by one thread; an end is a branch that another makes.
struct TopNode {
    Range range;
    std::int32_t left = -1, right = -1;
    NeighbourBranch branch;  // of an inner node: that node alone
};

void copy_node(const NeighbourBranch& from, NeighbourBranch& to) {
    const auto base = static_cast<std::int32_t>(to.right.size());
    const auto append = [](auto& a, const auto& b) { a.insert(a.end(), b.begin(), b.end()); };
    append(to.box, from.box);
    append(to.norm, from.norm);
    append(to.lowest, from.lowest);
    append(to.cut, from.cut);
    append(to.first, from.first);
    append(to.count, from.count);
    append(to.feature, from.feature);
    for (const std::int32_t right : from.right) to.right.push_back(right < 0 ? -1 : right + base);
}

void assemble(const std::vector<TopNode>& top, std::int32_t number, NeighbourBranch& to) {
    const TopNode& node = top[at(number)];
    const std::size_t place = to.right.size();
    copy_node(node.branch, to);
    if (node.left < 0) return;
    assemble(top, node.left, to);
    to.right[place] = static_cast<std::int32_t>(to.right.size());
    assemble(top, node.right, to);
}

NeighbourBranch grow_tree(const Grower& grower, std::int32_t n, int n_threads) {
    std::vector<TopNode> top(1);
    top[0].range = {0, n, 0};
    std::vector<std::int32_t> ends{0};
    // The largest end is divided until there are enough, or until it is a leaf.
    const auto smaller = [&](std::int32_t a, std::int32_t b) {
        return top[at(a)].range.size() < top[at(b)].range.size();
    };
    while (ends.size() < kBranches) {
        std::pop_heap(ends.begin(), ends.end(), smaller);
        const std::int32_t number = ends.back();
        ends.pop_back();
        NeighbourBranch branch;
        Range left, right;
        const bool divided =
            grower.divide(top[at(number)].range, branch, grower.add_node(top[at(number)].range, branch), left, right);
        if (!divided) {
            ends.push_back(number);
            break;
        }
        top[at(number)].branch = std::move(branch);
        for (const Range& part : {left, right}) {
            const auto child = static_cast<std::int32_t>(top.size());
            (top[at(number)].left < 0 ? top[at(number)].left : top[at(number)].right) = child;
            top.emplace_back().range = part;
            ends.push_back(child);
            std::push_heap(ends.begin(), ends.end(), smaller);
        }
    }
    for_blocks(static_cast<std::int64_t>(ends.size()), n_threads, [&](int, std::int64_t block) {
        const PlainArithmetic plain;
        TopNode& end = top[at(ends[at(block)])];
        grower.grow(end.range, end.branch);
    });
    NeighbourBranch nodes;
    assemble(top, 0, nodes);
    return nodes;
}

}  // namespace

NeighbourTree::NeighbourTree(const HotTable& hot, const float* images, const double* rows, std::int64_t n, int d,
                             int width, double scale, int leaf_rows, int n_threads)
    : hot_(hot), rows_(rows), d_(d), width_(width), scale_(scale) {
    const PlainArithmetic plain;
    std::vector<float> norm(at(n));
    for (std::int64_t i = 0; i < n; ++i) {
        double sum = 0.0;
        for (int f = 0; f < width; ++f) {
            const double z = static_cast<double>(images[i * width + f]);
            sum += z * z;
        }
        norm[at(i)] = static_cast<float>(std::sqrt(sum) * (1.0 + 1e-6));
    }
    std::vector<std::int32_t> order(at(n));
    std::iota(order.begin(), order.end(), 0);
    nodes_ = grow_tree(Grower(images, width, norm, leaf_rows, order.data()), static_cast<std::int32_t>(n), n_threads);
    box_.reserve(nodes_.box.size());
    std::memcpy(box_.get(), nodes_.box.data(), sizeof(float) * nodes_.box.size());
    nodes_.box = {};
    fill_lanes(images, order, n_threads);
}

// Gives every leaf its slots, whole groups of them. What a group has beyond the leaf's rows is never read as a row.
void NeighbourTree::fill_lanes(const float* images, const std::vector<std::int32_t>& order, int n_threads) {
    const std::vector<std::int32_t> begin = nodes_.first;
    std::int64_t n_slots = 0;
    for (std::size_t node = 0; node < begin.size(); ++node) {
        if (nodes_.right[node] >= 0) continue;
        nodes_.first[node] = static_cast<std::int32_t>(n_slots);
        n_slots += (nodes_.count[node] + kNeighbourLanes - 1) / kNeighbourLanes * kNeighbourLanes;
    }
    if (n_slots > std::numeric_limits<std::int32_t>::max()) throw std::length_error("the tree has too many leaves");
    row_of_.assign(at(n_slots), -1);
    lanes_.reserve(at(n_slots * width_));
    constexpr std::int64_t kNodes = 256;
    const auto n_nodes = static_cast<std::int64_t>(begin.size());
    for_blocks((n_nodes + kNodes - 1) / kNodes, n_threads, [&](int, std::int64_t block) {
        for (std::int64_t node = block * kNodes; node < std::min(n_nodes, (block + 1) * kNodes); ++node) {
            if (nodes_.right[at(node)] >= 0) continue;
            const std::int32_t first = nodes_.first[at(node)], count = nodes_.count[at(node)];
            for (std::int32_t i = 0; i < (count + kNeighbourLanes - 1) / kNeighbourLanes * kNeighbourLanes; ++i) {
                const std::int32_t row = order[at(begin[at(node)] + std::min(i, count - 1))];
                if (i < count) row_of_[at(first + i)] = row;
                const std::int64_t group = (first + i) / kNeighbourLanes, lane = (first + i) % kNeighbourLanes;
                const float* from = images + static_cast<std::int64_t>(row) * width_;
                float* to = lanes_.get() + group * width_ * kNeighbourLanes + lane;
                for (int f = 0; f < width_; ++f) to[f * kNeighbourLanes] = from[f];
            }
        }
    });
}

NeighbourWork NeighbourTree::search(const NeighbourQueries& queries, std::int64_t n, int n_threads) const {
    const NeighbourNodes tree = view();
    std::vector<std::int32_t> leaf(at(n)), which(at(n));
    for (std::int64_t i = 0; i < n; ++i) leaf[at(i)] = leaf_of(queries.images + i * width_);
    std::iota(which.begin(), which.end(), 0);
    std::sort(which.begin(), which.end(), [&](std::int32_t a, std::int32_t b) {
        return leaf[at(a)] != leaf[at(b)] ? leaf[at(a)] < leaf[at(b)] : a < b;
    });
    const auto n_workers = at(std::max(1, n_threads));
    std::vector<std::vector<Neighbour>> heap(n_workers);
    std::vector<NeighbourWork> work(n_workers);
    for_blocks((n + kQueryBlock - 1) / kQueryBlock, n_threads, [&](int thread, std::int64_t block) {
        const PlainArithmetic plain;
        heap[at(thread)].resize(at(queries.k));
        const std::int64_t first = block * kQueryBlock;
        hot_.find_neighbours(tree, queries, which.data() + first, static_cast<int>(std::min(kQueryBlock, n - first)),
                             heap[at(thread)].data(), work[at(thread)]);
    });
    NeighbourWork sum;
    for (const NeighbourWork& part : work) {
        sum.numbers += part.numbers;
        sum.rows += part.rows;
    }
    return sum;
}

std::int32_t NeighbourTree::leaf_of(const float* image) const {
    std::int32_t node = 0;
    while (nodes_.right[at(node)] >= 0)
        node = image[nodes_.feature[at(node)]] <= nodes_.cut[at(node)] ? node + 1 : nodes_.right[at(node)];
    return node;
}

NeighbourNodes NeighbourTree::view() const {
    return {box_.get(),
            nodes_.norm.data(),
            nodes_.lowest.data(),
            nodes_.right.data(),
            nodes_.first.data(),
            nodes_.count.data(),
            lanes_.get(),
            row_of_.data(),
            rows_,
            d_,
            width_,
            scale_};
}

}  // namespace svelto
