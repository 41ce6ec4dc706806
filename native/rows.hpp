// Query rows as the caller holds them (dense with any strides, or CSR), read one at a time into doubles.
#pragma once

#include <cstddef>
#include <cstdint>

namespace svelto {

enum class ScalingForm : int { none = 0, divide = 1, multiply = 2 };

// The scaler in front of the machine; repeats scikit-learn's float64 operations bit for bit.
struct RowScaling {
    ScalingForm form = ScalingForm::none;
    const double* shift = nullptr;
    const double* factor = nullptr;
    double low = 0.0;
    double high = 0.0;
};

enum class ElementType : int { float32 = 0, float64 = 1 };

struct RowSource {
    ElementType type = ElementType::float64;
    bool is_csr = false;
    bool wide_indices = false;  // CSR with 64-bit indices
    const void* data = nullptr;
    std::ptrdiff_t row_stride = 0;  // dense, in elements
    std::ptrdiff_t col_stride = 0;
    const void* indices = nullptr;
    const void* row_start = nullptr;
    std::int64_t n_rows = 0;
    std::int64_t n_stored = 0;
    int d = 0;
    RowScaling scaling;
};

// Rows [first, first + n) of a source, where they are.
RowSource rows_from(const RowSource& rows, std::int64_t first, std::int64_t n) noexcept;

enum class Fault : int { none = 0, not_finite = 1, bad_index = 2 };

// Reads row `row` into out[0..d). Reports a NaN or infinity, or a CSR column outside [0, d).
Fault read_dense(const RowSource& rows, std::int64_t row, double* out) noexcept;

// What `read_dense` (dense rows) or `read_stored` (CSR rows) would report, without the reading.
Fault check_row(const RowSource& rows, std::int64_t row) noexcept;

// Number of stored elements of a CSR row, or -1 if the row's bounds contradict the arrays.
std::int64_t stored_count(const RowSource& rows, std::int64_t row) noexcept;

// Number of elements that are not zero, of a dense row before scaling; at least `enough` once that many are found.
std::int64_t nonzero_count(const RowSource& rows, std::int64_t row, std::int64_t enough) noexcept;

// Reads the stored elements of a CSR row (of a dense row those that are not zero; room for d is needed), zeros left
// out; `n` receives how many there are.
Fault read_stored(const RowSource& rows, std::int64_t row, std::int32_t* columns, double* values, int& n) noexcept;

}  // namespace svelto
