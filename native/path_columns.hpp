// What growing a tree of kernel values asks of its matrix of values: sums of columns over the rows of a node, and the
// node's rows sorted into its children.
#pragma once

#include <cstdint>

namespace svelto {

// Rows of a node: row i has side 0 or 1 (anything else: left out), a weight and n_products residuals.
struct ColumnRows {
    const float* values = nullptr;  // [n_rows][n_columns]
    std::int64_t n_rows = 0;
    std::int64_t n_columns = 0;
    const std::uint8_t* side = nullptr;  // [n_rows]
    const double* weight = nullptr;      // [n_rows]
    const double* residuals = nullptr;   // [n_rows][n_products]
    int n_products = 0;
};

// norms[s][j] = sum of w_i v_ij^2 and products[s][p][j] = sum of w_i r_ip v_ij over the rows i of side s. Runs of rows
// are added in float32, the runs in double; every column is summed in the order of the rows, whatever the threads.
// Weights, and weights times residuals, must be within the range of float32.
void column_sums(const ColumnRows& rows, int n_threads, double* norms, double* products);

// Moves the rows of side 0 before those of side 1, and the elements of `order` with them; returns how many there are.
// Every row moves at most once.
std::int64_t partition_rows(float* values, std::int64_t* order, std::int64_t n_rows, std::int64_t n_columns,
                            const std::uint8_t* side) noexcept;

}  // namespace svelto
