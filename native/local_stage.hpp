// Many local machines over one set of support vectors: each query is answered by the machine that it names.
//
// Queries of one machine are answered together: its vectors are brought together once, as panels, and the tiles of the
// exact engine run over them in double. A machine knows the classes of its neighbourhood, one pair of them after
// another; classes that it never saw lose against all that it knows.
#pragma once

#include <cstdint>

#include "hot.hpp"
#include "row_packer.hpp"

namespace svelto {

struct LocalMachines {
    int d = 0;
    int n_classes = 0;
    std::int64_t n_machines = 0;
    std::int64_t n_vectors = 0;
    KernelKind kernel = KernelKind::rbf;  // rbf, poly, linear
    double coef0 = 0.0;
    int degree = 0;
    const double* vectors = nullptr;              // [n_vectors][d]; linear: the normal of every pair
    const double* gamma = nullptr;                // [n_machines]
    const std::int64_t* class_start = nullptr;    // [n_machines + 1], into classes
    const std::int32_t* classes = nullptr;        // codes in [0, n_classes), ascending in a machine, at least one
    const std::int64_t* pair_start = nullptr;     // [n_machines + 1]: m (m - 1) / 2 pairs for m classes
    const double* intercept = nullptr;            // [n_pairs]
    const std::int64_t* entry_start = nullptr;    // [n_machines + 1], into entries
    const std::int64_t* entries = nullptr;        // numbers of vectors; linear: one for each pair
    const std::int64_t* support_start = nullptr;  // [n_pairs + 1], into place and coef; linear: zeros
    const std::int32_t* place = nullptr;          // of a pair's vectors among its machine's entries
    const double* coef = nullptr;                 // their coefficients
};

// Queries and their machines, in the order of machines.
struct LocalQueries {
    RowSource rows;
    std::int64_t n = 0;
    const std::int64_t* row = nullptr;      // [n]
    const std::int64_t* machine = nullptr;  // [n], ascending
};

// Scores of a query: one for two classes (positive for code 1), else one for each class.
int local_score_width(int n_classes);

// scores[n][width]. Two classes: the value of the only pair, +1 or -1 for a machine that knows one class. More: votes,
// plus a sum of values squashed into (-1/3, 1/3), as scikit-learn's; the value between a class that the machine knows
// and one that it does not is 1.
StageOutcome local_scores(const LocalMachines& machines, const LocalQueries& queries, const HotTable& hot,
                          int n_threads, double* scores);

}  // namespace svelto
