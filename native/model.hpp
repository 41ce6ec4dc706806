// The arrays of a kernel machine as the native core sees them: pointers and sizes, owned by the caller.
#pragma once

#include <cstddef>
#include <cstdint>

namespace svelto {

enum class KernelKind : int { rbf = 0, exponential = 1, laplacian = 2, poly = 3, sigmoid = 4, linear = 5 };

// How the tile loop combines a query with a support vector, feature by feature.
//   dot       sum x s              one multiply-add; distances by |x|^2 + |s|^2 - 2 x.s
//   sq_diff   sum (x - s)^2        one more subtraction, no cancellation
//   abs_diff  sum |x - s|
enum class PairKind : int { dot = 0, sq_diff = 1, abs_diff = 2 };

// Bytes of a panel row: 32 floats or 16 doubles, a whole number of vectors at every instruction level.
constexpr int kPanelBytes = 128;
template <class T>
constexpr int kPanelWidth = kPanelBytes / static_cast<int>(sizeof(T));

// Panels whose contributions are added in T before they join the double sum.
constexpr int kChunkPanels = 8;

// Features whose terms are added one after the other before their sum joins the pair sum.
constexpr int kFeatureBlock = 64;

// Support vectors packed in panels: panel p holds vectors p*W .. p*W+W-1, feature by feature: [n_panels][d][W].
// Groups are consecutive panels whose weighted sums are kept apart (the classes, or the two signs of the weights), so
// that |sum| of a group is the sum of magnitudes, which the rounding bound needs. Padding vectors have weight zero.
template <class T>
struct Panels {
    PairKind pair = PairKind::dot;
    const T* vectors = nullptr;       // [n_panels][d][W]
    const T* vector_const = nullptr;  // [n_panels * W], what the kernel needs of a support vector (|s|^2 / 2, ...)
    const T* sparse_const = nullptr;  // the same for CSR queries, where the centre is not subtracted from the query
    const T* weights = nullptr;       // by_column: [n_cols][n_panels * W]; else [n_panels * W][padded_cols]
    bool by_column = true;            // few columns: the lanes are vectors; many: the lanes are columns
    const std::int32_t* group_start = nullptr;  // [n_groups + 1], in panels
    int n_groups = 0;
    int n_cols = 0;
    int padded_cols = 0;
    int n_panels = 0;
    int d = 0;
    T scale = 0;     // factor of the distance in the exponent of 2: -gamma / ln 2 (sq_diff and abs_diff)
    T coef0 = 0;     // poly, sigmoid
    int degree = 0;  // poly
    KernelKind kernel = KernelKind::rbf;
};

// The same machine when its vectors are very sparse: for each feature the vectors that have it.
struct Postings {
    const std::int64_t* start = nullptr;   // [d + 1]
    const std::int32_t* vector = nullptr;  // [nnz], packed position
    const double* value = nullptr;         // [nnz]
};

}  // namespace svelto
