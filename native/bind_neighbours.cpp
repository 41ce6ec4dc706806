// Nearest neighbours, for Python: checks shapes once, lets the interpreter go, computes nothing.
#include <utility>

#include "binding.hpp"
#include "neighbour_tree.hpp"

namespace svelto::binding {
namespace {

using Indices = nb::ndarray<std::int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Distances = nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class T>
void check_aligned(const T* data) {
    require(reinterpret_cast<std::uintptr_t>(data) % 64 == 0, "images are not 64-byte aligned");
}

std::size_t padded(std::size_t d) {
    return (d + kExactLanes - 1) / kExactLanes * kExactLanes;
}

// Keeps the rows that every search reads.
class Tree {
  public:
    Tree(const std::string& level, const Matrix<float>& images, Matrix<double> rows, double scale, int leaf_rows,
         int n_threads)
        : rows_(std::move(rows)), width_(images.shape(1)), tree_(make(level, images, scale, leaf_rows, n_threads)) {}

    // Numbers of images that were read, and rows whose distance was computed.
    std::tuple<std::int64_t, std::int64_t> search(const Matrix<double>& queries, const Matrix<float>& images,
                                                  const Vector<double>& norms, Indices index, Scores sq_dist,
                                                  int n_threads) const {
        const std::size_t n = queries.shape(0), k = index.shape(1);
        require(queries.shape(1) == padded(rows_.shape(1)), "queries are not padded to whole lanes");
        require(images.shape(0) == n && images.shape(1) == width_ && norms.shape(0) == n,
                "queries and their images disagree in shape");
        require(index.shape(0) == n && sq_dist.shape(0) == n && sq_dist.shape(1) == k, "outputs disagree in shape");
        require(k >= 1 && k <= rows_.shape(0), "k is not between 1 and the number of rows");
        require(n < std::size_t{1} << 31, "there are too many queries for one call");
        check_aligned(images.data());
        const NeighbourQueries asked{queries.data(), images.data(),  norms.data(),
                                     index.data(),   sq_dist.data(), static_cast<int>(k)};
        const nb::gil_scoped_release nogil;
        const NeighbourWork work = tree_.search(asked, static_cast<std::int64_t>(n), n_threads);
        return {work.numbers, work.rows};
    }

    std::int64_t n_slots() const { return tree_.n_slots(); }

  private:
    NeighbourTree make(const std::string& level, const Matrix<float>& images, double scale, int leaf_rows,
                       int n_threads) const {
        const std::size_t n = rows_.shape(0), d = rows_.shape(1);
        require(n >= 1 && d >= 1 && n < std::size_t{1} << 30, "there are no rows, or too many");
        require(images.shape(0) == n && width_ >= 1 && width_ % kNeighbourLanes == 0,
                "rows and images disagree in shape");
        require(leaf_rows >= 1 && n_threads >= 1, "leaf_rows and n_threads are at least 1");
        const HotTable& hot = level_table(level);
        const nb::gil_scoped_release nogil;
        return NeighbourTree(hot, images.data(), rows_.data(), static_cast<std::int64_t>(n), static_cast<int>(d),
                             static_cast<int>(width_), scale, leaf_rows, n_threads);
    }

    Matrix<double> rows_;
    std::size_t width_;
    NeighbourTree tree_;
};

// The distances that decide: of rows[row_of[i]] and queries[query_of[i]].
void pair_distances(const std::string& level, const Matrix<double>& rows, const Matrix<double>& queries,
                    const Vector<std::int32_t>& row_of, const Vector<std::int32_t>& query_of, Distances out) {
    const HotTable& hot = level_table(level);
    const std::size_t n = row_of.shape(0);
    require(queries.shape(1) == padded(rows.shape(1)), "queries are not padded to whole lanes");
    require(query_of.shape(0) == n && out.shape(0) == n, "pairs disagree in length");
    for (std::size_t i = 0; i < n; ++i) {
        const std::int32_t row = row_of.data()[i], query = query_of.data()[i];
        require(row >= 0 && static_cast<std::size_t>(row) < rows.shape(0) && query >= 0 &&
                    static_cast<std::size_t>(query) < queries.shape(0),
                "a pair is outside of the rows");
    }
    const nb::gil_scoped_release nogil;
    hot.pair_distances(rows.data(), queries.data(), static_cast<int>(rows.shape(1)), row_of.data(), query_of.data(),
                       static_cast<std::int64_t>(n), out.data());
}

}  // namespace

void bind_neighbours(nb::module_& m) {
    m.attr("NEIGHBOUR_LANES") = kNeighbourLanes;
    m.attr("EXACT_LANES") = kExactLanes;
    m.def("pair_distances", &pair_distances, "level"_a, "rows"_a.noconvert(), "queries"_a.noconvert(),
          "row_of"_a.noconvert(), "query_of"_a.noconvert(), "out"_a.noconvert());
    nb::class_<Tree>(m, "NeighbourTree")
        .def(nb::init<const std::string&, const Matrix<float>&, Matrix<double>, double, int, int>(), "level"_a,
             "images"_a.noconvert(), "rows"_a.noconvert(), "scale"_a, "leaf_rows"_a, "n_threads"_a)
        .def("search", &Tree::search, "queries"_a.noconvert(), "images"_a.noconvert(), "norms"_a.noconvert(),
             "index"_a.noconvert(), "sq_dist"_a.noconvert(), "n_threads"_a)
        .def("n_slots", &Tree::n_slots);
}

}  // namespace svelto::binding
