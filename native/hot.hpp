// The functions that exist once per instruction level, as a table of pointers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "chains.hpp"
#include "guard.hpp"
#include "hinges.hpp"
#include "local_rows.hpp"
#include "model.hpp"
#include "neighbours.hpp"
#include "packed_guard.hpp"
#include "path_tree.hpp"
#include "tree.hpp"
#include "votes.hpp"

namespace svelto {

// Rows of a tile: how many queries share one pass over a panel. Levels differ in registers.
constexpr int kMaxTileRows = 8;

// CSR rows that pass over a pair of blocks while those are in the first-level cache: with one column of weights, where
// only a sum a row is kept, and with many, where a chunk of kernel values a row is.
constexpr int kSparseRunRows = 64;
constexpr int kSparseTileRows = 16;

// Packed dense queries: tiles of `tile_rows` rows, each feature by feature: [n_tiles][d][tile_rows].
template <class T>
struct DenseRows {
    const T* tiles;
    const T* row_const;  // [n_tiles * tile_rows]
    int n_rows;
};

// Packed CSR queries. `offset` is feature * panel width.
template <class T>
struct SparseRows {
    const std::int64_t* start;  // [n_rows + 1]
    const std::int32_t* offset;
    const T* value;
    const T* row_const;
    int n_rows;
};

struct HotTable {
    const char* name;
    int tile_rows_f32;
    int tile_rows_f64;
    int lanes_f32;
    int lanes_f64;
    // parts[row][group][col] += sum of weight * kernel value over the group's vectors. With kernel == linear the
    // panel's "vectors" are the scores' weight vectors themselves and parts[row][col] is the product. scratch: at least
    // scratch_size(...) elements of T, 64-byte aligned.
    void (*dense_f32)(const Panels<float>&, const DenseRows<float>&, float* scratch, double* parts) noexcept;
    void (*dense_f64)(const Panels<double>&, const DenseRows<double>&, double* scratch, double* parts) noexcept;
    void (*sparse_f32)(const Panels<float>&, const SparseRows<float>&, float* scratch, double* parts) noexcept;
    void (*sparse_f64)(const Panels<double>&, const SparseRows<double>&, double* scratch, double* parts) noexcept;
    // The same over the panels of an ascending list.
    void (*panels_f32)(const Panels<float>&, const DenseRows<float>&, const std::int32_t* list, int n_list,
                       float* scratch, double* parts) noexcept;
    void (*panels_f64)(const Panels<double>&, const DenseRows<double>&, const std::int32_t* list, int n_list,
                       double* scratch, double* parts) noexcept;
    // nearest[row] = argmax of x.c - vector_const over the vectors of the panels.
    void (*nearest_f32)(const Panels<float>&, const DenseRows<float>&, std::int32_t* nearest) noexcept;
    // One very sparse query; `products` holds what the stored features add up to for every packed vector.
    void (*finish_f64)(const Panels<double>&, const double* products, double row_const, double* scratch,
                       double* parts) noexcept;
    void (*exp2_f32)(const float* in, float* out, std::size_t n) noexcept;
    void (*exp2_f64)(const double* in, double* out, std::size_t n) noexcept;
    // Metric trees; depth may be null.
    void (*walk_rows)(const Tree&, const TreeRows&, std::int32_t* leaf, std::int32_t* depth) noexcept;
    void (*evaluate_leaves)(const Tree&, const LeafModels&, const TreeRows&, const std::int32_t* leaf, float* scores,
                            float* sq_dist) noexcept;
    // rows: [n][stride] floats, 64-byte aligned.
    void (*square_distances)(const float* row, const float* rows, int stride, const std::int32_t* index, int n,
                             float* out) noexcept;
    void (*project_rows)(const float* normal, const float* rows, int stride, const std::int32_t* index, int n,
                         float* out) noexcept;
    // sums[0][c] += factor[i][0] rows[i][c]^2, sums[p][c] += factor[i][p] rows[i][c] for p = 1 .. n_products.
    void (*add_to_columns)(const float* const* rows, const float* factor, int n_rows, int n_products, int n_columns,
                           float* sums, int width) noexcept;
    // Trees of kernel values.
    void (*walk_paths)(const PathTree&, const TreeRows&, const PathValues&) noexcept;
    void (*evaluate_paths)(const PathTree&, const PathLeaves&, const TreeRows&, const PathValues&,
                           float* scores) noexcept;
    // Contiguous rows to padded floats; n_ahead <= n rows behind them will be asked for next.
    bool (*pack_f32)(const float* from, std::ptrdiff_t row_stride, int n, int n_ahead, int d, const double* shift,
                     float* to, int stride) noexcept;
    bool (*pack_f64)(const double* from, std::ptrdiff_t row_stride, int n, int n_ahead, int d, const double* shift,
                     float* to, int stride) noexcept;
    // Rows in CSR form to stored features.
    bool (*features_f32_i32)(const float*, const std::int32_t*, std::int64_t n, int d, StoredFeature* to,
                             std::int64_t& n_steps) noexcept;
    bool (*features_f32_i64)(const float*, const std::int64_t*, std::int64_t n, int d, StoredFeature* to,
                             std::int64_t& n_steps) noexcept;
    bool (*features_f64_i32)(const double*, const std::int32_t*, std::int64_t n, int d, StoredFeature* to,
                             std::int64_t& n_steps) noexcept;
    bool (*features_f64_i64)(const double*, const std::int64_t*, std::int64_t n, int d, StoredFeature* to,
                             std::int64_t& n_steps) noexcept;
    // Chains of hyperplanes.
    bool (*turn_rows)(const Chains&, const TreeRows&, float* columns) noexcept;
    int (*peel_chain)(const Chains&, int first, int last, const TreeRows&, const float* columns, std::int32_t* list,
                      int n, const ChainAnswers&) noexcept;
    void (*knock_out)(const Knockout&, const TreeRows&, std::int32_t* place, std::int32_t* work) noexcept;
    // Hinging hyperplanes and bumps; scratch: the rows by the widths of all layers and one. scores: [n][padded].
    void (*evaluate_hinges)(const Hinges&, const TreeRows&, float* scratch, float* scores) noexcept;
    // Votes of n_rows rows of scores, `stride` apart. limit: beyond which each pair is sure; scratch: [n_classes][16].
    void (*meet_classes)(int n_classes, const float* limit, const float* scores, int stride, int n_rows,
                         std::int32_t* scratch, const ClassDuels&) noexcept;
    void (*best_classes)(int n_classes, const float* scores, int stride, int n_rows, const BestClasses&) noexcept;
    // out[i] = table[index[i]]; false where an index is outside the table, and then nothing is written.
    bool (*look_up)(const std::int64_t* table, std::int64_t n_table, const std::int32_t* index, std::size_t n,
                    std::int64_t* out) noexcept;
    // Where rows are by the stage's guard (Place).
    void (*place_rows)(const PackedGuard&, const TreeRows&, std::uint8_t* places) noexcept;
    // Small SVMs.
    void (*pair_row)(const PackedRows&, int row, bool squared, float* out) noexcept;
    void (*kernel_row)(const PairKernel&, const float* pairs, int n_padded, float* out) noexcept;
    Extremes (*move_pair)(const SolverState&, const float* row_i, const float* row_j, double amount) noexcept;
    int (*best_partner)(const SolverState&, const float* row_i, const float* diagonal, int i, double slope_i) noexcept;
    void (*subtract_row)(double* slope, const float* row, double amount, int n_padded) noexcept;
    // Nearest neighbours of the queries that `which` names; heap: [k]. Squared distances of pairs.
    void (*find_neighbours)(const NeighbourNodes&, const NeighbourQueries&, const std::int32_t* which, int n,
                            Neighbour* heap, NeighbourWork&) noexcept;
    void (*pair_distances)(const double* rows, const double* queries, int d, const std::int32_t* row_of,
                           const std::int32_t* query_of, std::int64_t n, double* out) noexcept;
    // Rows [first, first + n) that a guard does not know, or that cannot be read: 1, else 0.
    void (*mark_outside)(const Guard&, const RowSource&, std::int64_t first, int n, std::uint8_t* outside) noexcept;
};

// Elements of scratch a call needs: kernel values of one tile and one chunk, and the tile's column sums.
template <class T>
constexpr std::size_t scratch_size(const Panels<T>& sv) {
    const std::size_t values = static_cast<std::size_t>(kSparseTileRows) * kChunkPanels * kPanelWidth<T>;
    return values + static_cast<std::size_t>(kSparseTileRows) * static_cast<std::size_t>(sv.padded_cols + 16);
}

namespace baseline {
extern const HotTable table;
}
namespace avx2 {
extern const HotTable table;
}
namespace avx512 {
extern const HotTable table;
}

}  // namespace svelto
