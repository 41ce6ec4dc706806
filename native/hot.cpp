// The hot functions of one instruction level: compiled once per level, reached through the level's table.
#include "hot.hpp"

#include "chain_tile.hpp"
#include "dense_tile.hpp"
#include "guard_tile.hpp"
#include "hinge_tile.hpp"
#include "kernel_ops.hpp"
#include "local_tile.hpp"
#include "look_up_tile.hpp"
#include "neighbour_tile.hpp"
#include "pack_tile.hpp"
#include "packed_guard_tile.hpp"
#include "panel_tile.hpp"
#include "path_column_tile.hpp"
#include "path_tile.hpp"
#include "sparse_tile.hpp"
#include "tree_tile.hpp"
#include "vote_tile.hpp"

namespace svelto::SVELTO_NAMESPACE {
namespace {

template <class T, KernelKind kernel, PairKind pair>
struct OpTag {
    using Op = KernelOp<T, kernel, pair>;
};

// Calls visit with the operation that the panels ask for.
template <class T, class Visit>
[[gnu::always_inline]] inline void with_op(const Panels<T>& sv, Visit visit) {
    using enum KernelKind;
    switch (sv.kernel) {
        case rbf:
            if (sv.pair == PairKind::dot) return visit(OpTag<T, rbf, PairKind::dot>{});
            return visit(OpTag<T, rbf, PairKind::sq_diff>{});
        case exponential:
            return visit(OpTag<T, exponential, PairKind::sq_diff>{});
        case laplacian:
            return visit(OpTag<T, laplacian, PairKind::abs_diff>{});
        case poly:
            return visit(OpTag<T, poly, PairKind::dot>{});
        case sigmoid:
            return visit(OpTag<T, sigmoid, PairKind::dot>{});
        case linear:
            return visit(OpTag<T, linear, PairKind::dot>{});
    }
}

template <class T>
void dense(const Panels<T>& sv, const DenseRows<T>& rows, T* scratch, double* parts) noexcept {
    with_op<T>(sv, [&](auto tag) { dense_rows<T, typename decltype(tag)::Op>(sv, rows, scratch, parts); });
}

template <class T>
void sparse(const Panels<T>& sv, const SparseRows<T>& rows, T* scratch, double* parts) noexcept {
    with_op<T>(sv, [&](auto tag) { sparse_rows<T, typename decltype(tag)::Op>(sv, rows, scratch, parts); });
}

template <class T>
void listed(const Panels<T>& sv, const DenseRows<T>& rows, const std::int32_t* list, int n_list, T* scratch,
            double* parts) noexcept {
    with_op<T>(sv,
               [&](auto tag) { chosen_panels<T, typename decltype(tag)::Op>(sv, rows, list, n_list, scratch, parts); });
}

void finish(const Panels<double>& sv, const double* products, double row_const, double* scratch,
            double* parts) noexcept {
    with_op<double>(
        sv, [&](auto tag) { finish_row<double, typename decltype(tag)::Op>(sv, products, row_const, scratch, parts); });
}

template <class T>
void exp2_array(const T* in, T* out, std::size_t n) noexcept {
    constexpr std::size_t W = kLanes<T>;
    std::size_t i = 0;
    for (; i + W <= n; i += W) {
        Vec<T> v;
        __builtin_memcpy(&v, in + i, sizeof v);
        v = exp2_clamped(v);
        __builtin_memcpy(out + i, &v, sizeof v);
    }
    for (; i < n; ++i) out[i] = exp2_clamped(broadcast(in[i]))[0];
}

constexpr const char* kLevelName = SVELTO_LEVEL == 2 ? "avx512" : SVELTO_LEVEL == 1 ? "avx2" : "baseline";

}  // namespace

const HotTable table = {
    kLevelName,
    kTileRows<float>,
    kTileRows<double>,
    kLanes<float>,
    kLanes<double>,
    dense<float>,
    dense<double>,
    sparse<float>,
    sparse<double>,
    listed<float>,
    listed<double>,
    nearest_centres,
    finish,
    exp2_array<float>,
    exp2_array<double>,
    walk_rows,
    evaluate_leaves,
    square_distances,
    project_rows,
    add_to_columns,
    walk_paths,
    evaluate_paths,
    pack_rows<float>,
    pack_rows<double>,
    pack_features<float, std::int32_t>,
    pack_features<float, std::int64_t>,
    pack_features<double, std::int32_t>,
    pack_features<double, std::int64_t>,
    turn_rows,
    peel_chain,
    knock_out,
    evaluate_hinges,
    meet_classes,
    best_classes,
    look_up,
    place_rows,
    pair_row,
    kernel_row,
    move_pair,
    best_partner,
    subtract_row,
    find_neighbours,
    pair_distances,
    mark_outside,
};

}  // namespace svelto::SVELTO_NAMESPACE
