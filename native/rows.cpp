#include "rows.hpp"

#include <algorithm>
#include <cmath>

// This file is compiled without contraction: x * factor + shift must round twice, as NumPy does.

namespace svelto {
namespace {

double element(const RowSource& rows, std::ptrdiff_t at) noexcept {
    if (rows.type == ElementType::float32) return static_cast<double>(static_cast<const float*>(rows.data)[at]);
    return static_cast<const double*>(rows.data)[at];
}

std::int64_t integer(const void* array, bool wide, std::int64_t at) noexcept {
    return wide ? static_cast<const std::int64_t*>(array)[at] : static_cast<const std::int32_t*>(array)[at];
}

template <class T>
bool copy_row(const T* from, std::ptrdiff_t stride, int d, double* out) noexcept {
    // x - x is 0 for finite x and NaN otherwise; one sum of them tells whether the whole row is finite.
    double trace = 0.0;
    for (int k = 0; k < d; ++k) {
        const double x = static_cast<double>(from[k * stride]);
        out[k] = x;
        trace += x - x;
    }
    return trace == 0.0;
}

double scaled(const RowScaling& s, int k, double x) noexcept {
    x = s.form == ScalingForm::divide ? (x - s.shift[k]) / s.factor[k] : x * s.factor[k] + s.shift[k];
    return std::min(std::max(x, s.low), s.high);
}

void scale_row(const RowScaling& s, int d, double* x) noexcept {
    if (s.form == ScalingForm::divide) {
        for (int k = 0; k < d; ++k) x[k] = (x[k] - s.shift[k]) / s.factor[k];
    } else {
        for (int k = 0; k < d; ++k) x[k] = x[k] * s.factor[k] + s.shift[k];
    }
    for (int k = 0; k < d; ++k) x[k] = std::min(std::max(x[k], s.low), s.high);
}

bool all_finite(const double* x, int d) noexcept {
    double trace = 0.0;
    for (int k = 0; k < d; ++k) trace += x[k] - x[k];
    return trace == 0.0;
}

}  // namespace

RowSource rows_from(const RowSource& rows, std::int64_t first, std::int64_t n) noexcept {
    const auto at = [](const void* from, std::size_t size, std::int64_t place) {
        return static_cast<const void*>(static_cast<const char*>(from) + static_cast<std::ptrdiff_t>(size) * place);
    };
    RowSource part = rows;
    part.n_rows = n;
    if (rows.is_csr)
        part.row_start = at(rows.row_start, rows.wide_indices ? sizeof(std::int64_t) : sizeof(std::int32_t), first);
    else
        part.data =
            at(rows.data, rows.type == ElementType::float32 ? sizeof(float) : sizeof(double), first * rows.row_stride);
    return part;
}

std::int64_t stored_count(const RowSource& rows, std::int64_t row) noexcept {
    const std::int64_t first = integer(rows.row_start, rows.wide_indices, row);
    const std::int64_t last = integer(rows.row_start, rows.wide_indices, row + 1);
    if (first < 0 || last < first || last > rows.n_stored) return -1;
    return last - first;
}

std::int64_t nonzero_count(const RowSource& rows, std::int64_t row, std::int64_t enough) noexcept {
    std::int64_t count = 0;
    for (int k = 0; k < rows.d && count < enough; ++k)
        count += element(rows, row * rows.row_stride + k * rows.col_stride) != 0.0;
    return count;
}

Fault read_dense(const RowSource& rows, std::int64_t row, double* out) noexcept {
    bool finite = true;
    if (rows.is_csr) {
        const std::int64_t count = stored_count(rows, row);
        if (count < 0) return Fault::bad_index;
        const std::int64_t first = integer(rows.row_start, rows.wide_indices, row);
        std::fill(out, out + rows.d, 0.0);
        for (std::int64_t i = first; i < first + count; ++i) {
            const std::int64_t column = integer(rows.indices, rows.wide_indices, i);
            if (column < 0 || column >= rows.d) return Fault::bad_index;
            const double x = element(rows, i);
            if (!std::isfinite(x)) return Fault::not_finite;
            out[column] += x;
        }
    } else if (rows.type == ElementType::float32) {
        finite = copy_row(static_cast<const float*>(rows.data) + row * rows.row_stride, rows.col_stride, rows.d, out);
    } else {
        finite = copy_row(static_cast<const double*>(rows.data) + row * rows.row_stride, rows.col_stride, rows.d, out);
    }
    if (!finite) return Fault::not_finite;
    if (rows.scaling.form != ScalingForm::none) {
        scale_row(rows.scaling, rows.d, out);
        if (!all_finite(out, rows.d)) return Fault::not_finite;
    }
    return Fault::none;
}

Fault check_row(const RowSource& rows, std::int64_t row) noexcept {
    if (rows.is_csr) {
        const std::int64_t count = stored_count(rows, row);
        if (count < 0) return Fault::bad_index;
        const std::int64_t first = integer(rows.row_start, rows.wide_indices, row);
        std::int64_t previous = -1;
        for (std::int64_t i = first; i < first + count; ++i) {
            const std::int64_t column = integer(rows.indices, rows.wide_indices, i);
            if (column <= previous || column >= rows.d) return Fault::bad_index;
            if (!std::isfinite(element(rows, i))) return Fault::not_finite;
            previous = column;
        }
        return Fault::none;
    }
    for (int k = 0; k < rows.d; ++k) {
        double x = element(rows, row * rows.row_stride + k * rows.col_stride);
        if (!std::isfinite(x)) return Fault::not_finite;
        if (rows.scaling.form == ScalingForm::none) continue;
        x = scaled(rows.scaling, k, x);
        if (!std::isfinite(x)) return Fault::not_finite;
    }
    return Fault::none;
}

Fault read_stored(const RowSource& rows, std::int64_t row, std::int32_t* columns, double* values, int& n) noexcept {
    n = 0;
    if (!rows.is_csr) {
        const Fault fault = read_dense(rows, row, values);  // scaled, where there is a scaler; then closed up in place
        if (fault != Fault::none) return fault;
        for (int k = 0; k < rows.d; ++k) {
            const double x = values[k];
            if (x == 0.0) continue;
            columns[n] = k;
            values[n++] = x;
        }
        return Fault::none;
    }
    const std::int64_t count = stored_count(rows, row);
    if (count < 0) return Fault::bad_index;
    const std::int64_t first = integer(rows.row_start, rows.wide_indices, row);
    std::int64_t previous = -1;
    for (std::int64_t i = first; i < first + count; ++i) {
        const std::int64_t column = integer(rows.indices, rows.wide_indices, i);
        const double x = element(rows, i);
        if (column <= previous || column >= rows.d) return Fault::bad_index;  // sorted, no duplicates, inside the row
        if (!std::isfinite(x)) return Fault::not_finite;
        previous = column;
        if (x == 0.0) continue;
        columns[n] = static_cast<std::int32_t>(column);
        values[n++] = x;
    }
    return Fault::none;
}

}  // namespace svelto
