// Few sparse rows as a dense block, for calls that answer one row.
#include "binding.hpp"

namespace svelto::binding {
namespace {

template <class T>
using Block = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// False where the rows are not plain CSR (damaged, unsorted, doubled entries); the block then holds nothing of use.
template <class T>
bool spread_rows(const Vector<T>& data, const Vector<std::int32_t>& indices, const Vector<std::int32_t>& row_start,
                 Block<T> out) {
    const auto n = static_cast<std::int64_t>(out.shape(0));
    const auto d = static_cast<std::int64_t>(out.shape(1));
    const std::int32_t* at = indices.data();
    const std::int32_t* start = row_start.data();
    if (static_cast<std::int64_t>(row_start.shape(0)) != n + 1 || indices.shape(0) != data.shape(0) || start[0] != 0)
        return false;
    std::fill_n(out.data(), n * d, T{0});
    for (std::int64_t row = 0; row < n; ++row) {
        const std::int64_t end = start[row + 1];
        if (end < start[row] || end > static_cast<std::int64_t>(data.shape(0))) return false;
        std::int64_t last = -1;
        T* values = out.data() + row * d;
        for (std::int64_t k = start[row]; k < end; ++k) {
            if (at[k] <= last || at[k] >= d) return false;
            last = at[k];
            values[last] = data.data()[k];
        }
    }
    return true;
}

}  // namespace

void bind_rows(nb::module_& m) {
    m.def("spread_rows", &spread_rows<double>, "data"_a.noconvert(), "indices"_a.noconvert(), "row_start"_a.noconvert(),
          "out"_a.noconvert());
    m.def("spread_rows", &spread_rows<float>, "data"_a.noconvert(), "indices"_a.noconvert(), "row_start"_a.noconvert(),
          "out"_a.noconvert());
}

}  // namespace svelto::binding
