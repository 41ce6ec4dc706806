// The kernel matrix of a neighbourhood: rows are computed when a solver first asks for them, and kept in float32 as
// LIBSVM keeps them.
//
// Rows of the data are packed about one of them where the kernel allows it (rbf: distances do not change; linear:
// neither does the dual), so that neighbours that lie close together and far from the origin keep their digits.
// Features that are equal in all rows then are zeros and left out.
#pragma once

#include <cstdint>
#include <vector>

#include "hot.hpp"
#include "workspace.hpp"

namespace svelto {

// Row-major training rows, float64 or float32.
struct LocalRows {
    const void* data = nullptr;
    bool is_float32 = false;
    std::int64_t n_rows = 0;
    int n_features = 0;
};

struct LocalKernel {
    KernelKind kind = KernelKind::rbf;  // rbf, poly or linear
    int degree = 3;
    double coef0 = 0.0;
};

class LocalGram {
  public:
    // Packs these rows. `keep_pairs` keeps products or distances when the kernel changes. Throws std::overflow_error
    // where squares of the values are too large for a double, or the values are not finite.
    void load(const LocalRows& rows, const std::int64_t* numbers, int n, const LocalKernel& kernel, bool keep_pairs,
              const HotTable& hot);

    // Forgets all kernel values. Throws std::overflow_error where those of a polynomial are out of range.
    void set_gamma(double gamma);

    // Kernel values of row i with all rows, over factor(). Valid until the next set_gamma or load.
    const float* row(int i) {
        if (ready_[static_cast<std::size_t>(i)] == 0) compute(i);
        return kernel_.get() + static_cast<std::ptrdiff_t>(i) * n_padded();
    }
    const float* diagonal() const { return diagonal_.get(); }
    // What the matrix has to be multiplied with; a power of two, 1 with rbf.
    double factor() const { return factor_; }
    int size() const { return n_; }
    int n_padded() const { return packed_.n_blocks * kLocalBlock; }

    // <x_i - c, c> for the point c about which a linear kernel's rows are packed: what the intercept is corrected by.
    double centre_product(int i) const;

  private:
    void compute(int i);
    template <class T>
    void pack(const T* data, std::int64_t stride, const std::int64_t* numbers);
    void measure();

    const HotTable* hot_ = nullptr;
    LocalKernel kernel_form_;
    PairKernel pair_kernel_;
    bool keep_pairs_ = false;
    int n_ = 0;
    double largest_norm_ = 0.0, factor_ = 1.0;
    PackedRows packed_;
    std::vector<int> features_;   // those that are packed
    std::vector<double> centre_;  // [n_features], of all of them
    AlignedBuffer<double> blocks_, sq_norms_;
    AlignedBuffer<float> pairs_, kernel_, pair_diagonal_, diagonal_;
    std::vector<std::uint8_t> pairs_ready_, ready_;
};

// The matrix of some of the rows. Its rows are gathered when first asked for; that of all rows is used as it is.
class SubGram {
  public:
    // Positions in the full matrix, ascending.
    void select(LocalGram& full, const std::vector<int>& positions);
    const float* row(int i) {
        if (whole_) return full_->row(i);
        if (ready_[static_cast<std::size_t>(i)] == 0) gather(i);
        return rows_.get() + static_cast<std::ptrdiff_t>(i) * n_padded_;
    }
    const float* diagonal() const { return whole_ ? full_->diagonal() : diagonal_.get(); }
    double factor() const { return full_->factor(); }
    int size() const { return static_cast<int>(positions_.size()); }
    int n_padded() const { return n_padded_; }
    int position(int i) const { return positions_[static_cast<std::size_t>(i)]; }
    LocalGram& full() const { return *full_; }

  private:
    void gather(int i);

    LocalGram* full_ = nullptr;
    bool whole_ = true;
    int n_padded_ = 0;
    std::vector<int> positions_;
    AlignedBuffer<float> rows_, diagonal_;
    std::vector<std::uint8_t> ready_;
};

}  // namespace svelto
