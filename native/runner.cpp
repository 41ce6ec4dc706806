#include "runner.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "bounds.hpp"
#include "parallel.hpp"
#include "plain_arithmetic.hpp"
#include "reference.hpp"
#include "vote.hpp"
#include "workspace.hpp"

namespace svelto {
namespace {

// Everything one thread needs; the parts are made when they are first used.
class Worker {
  public:
    Worker(const Machine& machine, const HotTable& hot, const RowSource& rows)
        : machine_(machine),
          hot_(hot),
          rows_(rows),
          scores_(static_cast<std::size_t>(machine.n_scores)),
          bounds_(static_cast<std::size_t>(machine.n_scores)),
          votes_(static_cast<std::size_t>(2 * machine.n_classes)) {}

    // Each tier answers what it can and hands the rest on. False where a row cannot be read.
    bool predict(std::int64_t first, int n, Precision tier, std::int32_t* labels) {
        numbers_.resize(static_cast<std::size_t>(n));
        for (int i = 0; i < n; ++i) numbers_[static_cast<std::size_t>(i)] = first + i;
        return predict_numbers(tier, labels);
    }

    bool predict(const std::int64_t* numbers, int n, Precision tier, std::int32_t* labels) {
        numbers_.assign(numbers, numbers + n);
        return predict_numbers(tier, labels);
    }

    bool score(std::int64_t first, int n, Precision precision, double* scores, double* bounds) {
        numbers_.resize(static_cast<std::size_t>(n));
        for (int i = 0; i < n; ++i) numbers_[static_cast<std::size_t>(i)] = first + i;
        precision = first_useful(precision);
        if (precision == Precision::float32) {
            if (!write(single(), scores, bounds, outcome.settled_f32)) return false;
            precision = Precision::float64;  // for the rows whose float32 scores are not finite
        }
        if (precision == Precision::float64) {
            if (!write(full(), scores, bounds, outcome.settled_f64)) return false;
        }
        for (const std::int64_t row : numbers_) {
            if (!reference(row)) return false;
            std::copy(scores_.begin(), scores_.end(), scores + row * machine_.n_scores);
            if (bounds != nullptr) std::fill_n(bounds + row * machine_.n_scores, machine_.n_scores, 0.0);
            ++outcome.settled_reference;
        }
        return true;
    }

    int capacity() { return machine_.has_f32 ? single().capacity() : full().capacity(); }

    Outcome outcome;

  private:
    bool predict_numbers(Precision tier, std::int32_t* labels) {
        tier = first_useful(tier);
        if (tier == Precision::float32) {
            if (!settle(single(), labels, outcome.settled_f32)) return false;
            tier = Precision::float64;
        }
        if (tier == Precision::float64) {
            if (!settle(full(), labels, outcome.settled_f64)) return false;
        }
        for (const std::int64_t row : numbers_) {
            if (!reference(row)) return false;
            labels[row] = label_of(machine_, scores_.data(), votes_.data());
            ++outcome.settled_reference;
        }
        return true;
    }

    // float32 differences visit every feature of a row; for CSR rows float64 products of the stored ones are cheaper.
    Precision first_useful(Precision tier) const {
        const bool dense_only = rows_.is_csr && machine_.f32.pair == PairKind::sq_diff;
        return tier == Precision::float32 && dense_only ? Precision::float64 : tier;
    }

    RowBlock<float>& single() {
        if (!single_) single_.emplace(machine_, hot_);
        return *single_;
    }
    RowBlock<double>& full() {
        if (!full_) full_.emplace(machine_, hot_);
        return *full_;
    }

    RowBound bound(const RowBlock<float>& block, int row) const { return bound_f32(machine_, hot_, block.norms(row)); }
    RowBound bound(const RowBlock<double>& block, int row) const { return bound_f64(machine_, block.norms(row)); }

    // Runs visit(row number) with scores_ and bounds_ of every row in numbers_; keeps those it returns false for.
    template <class T, class Visit>
    bool each_row(RowBlock<T>& block, Visit visit) {
        const double scale = std::is_same_v<T, float> ? machine_.weight_scale : 1.0;
        std::size_t kept = 0;
        for (std::size_t at = 0; at < numbers_.size();) {
            const int n = static_cast<int>(std::min(numbers_.size() - at, static_cast<std::size_t>(block.capacity())));
            const std::int64_t bad = block.load(rows_, numbers_.data() + at, n, outcome.fault);
            if (bad >= 0) {
                outcome.bad_row = bad;
                return false;
            }
            block.run();
            outcome.passes += n;
            for (int i = 0; i < n; ++i) {
                assemble(machine_, block.parts(i), scale, bound(block, i), scores_.data(), bounds_.data());
                const std::int64_t row = numbers_[at + static_cast<std::size_t>(i)];
                if (!visit(row)) numbers_[kept++] = row;
            }
            at += static_cast<std::size_t>(n);
        }
        numbers_.resize(kept);
        return true;
    }

    template <class T>
    bool settle(RowBlock<T>& block, std::int32_t* labels, std::int64_t& settled) {
        return each_row(block, [&](std::int64_t row) {
            const int label = decide(machine_, scores_.data(), bounds_.data(), votes_.data());
            if (label == kUndecided) return false;
            labels[row] = label;
            ++settled;
            return true;
        });
    }

    template <class T>
    bool write(RowBlock<T>& block, double* scores, double* bounds, std::int64_t& settled) {
        return each_row(block, [&](std::int64_t row) {
            const auto finite = [](double value) { return std::isfinite(value); };
            if (!std::all_of(scores_.begin(), scores_.end(), finite)) return false;
            std::copy(scores_.begin(), scores_.end(), scores + row * machine_.n_scores);
            if (bounds != nullptr) std::copy(bounds_.begin(), bounds_.end(), bounds + row * machine_.n_scores);
            ++settled;
            return true;
        });
    }

    // scores_ of one row in LIBSVM's order.
    bool reference(std::int64_t row) {
        values_.resize(static_cast<std::size_t>(machine_.n_sv));
        if (machine_.use_postings) {
            const auto most = static_cast<std::size_t>(
                rows_.is_csr ? std::max<std::int64_t>(stored_count(rows_, row), 0) : machine_.d);
            row_.resize(most);
            columns_.resize(most);
            int n = 0;
            outcome.fault = read_stored(rows_, row, columns_.data(), row_.data(), n);
            if (outcome.fault == Fault::none)
                reference_kernel_stored(machine_, columns_.data(), row_.data(), n, values_.data());
        } else {
            row_.resize(static_cast<std::size_t>(machine_.d));
            outcome.fault = read_dense(rows_, row, row_.data());
            if (outcome.fault == Fault::none) reference_kernel(machine_, row_.data(), values_.data());
        }
        if (outcome.fault != Fault::none) {
            outcome.bad_row = row;
            return false;
        }
        reference_scores(machine_, values_.data(), scores_.data());
        ++outcome.passes;
        return true;
    }

    const Machine& machine_;
    const HotTable& hot_;
    const RowSource& rows_;
    std::optional<RowBlock<float>> single_;
    std::optional<RowBlock<double>> full_;
    std::vector<std::int64_t> numbers_;
    std::vector<double> scores_, bounds_, votes_, values_, row_;
    std::vector<std::int32_t> columns_;
};

// Rows of one scheduling step: at most a full block, and equal ones, so that the threads finish together.
int step_rows(std::int64_t n_rows, int capacity, int tile_rows, int n_threads) {
    const auto quotient = [](std::int64_t n, std::int64_t by) { return (n + by - 1) / by; };
    const std::int64_t rounds = quotient(quotient(n_rows, n_threads), capacity);  // steps of each thread
    const std::int64_t step = quotient(n_rows, rounds * n_threads);
    return static_cast<int>(std::min<std::int64_t>(quotient(step, tile_rows) * tile_rows, capacity));
}

// Runs answer(worker, first, n) over n_rows rows and adds up the outcomes.
template <class Answer>
Outcome over_rows(const Machine& machine, const HotTable& hot, const RowSource& rows, std::int64_t n_rows,
                  int n_threads, Answer answer) {
    Outcome total;
    if (n_rows == 0) return total;
    std::vector<std::optional<Worker>> workers(static_cast<std::size_t>(std::max(n_threads, 1)));
    workers[0].emplace(machine, hot, rows);
    const int step = step_rows(n_rows, workers[0]->capacity(), hot.tile_rows_f32, std::max(n_threads, 1));
    const std::int64_t n_steps = (n_rows + step - 1) / step;
    for_blocks(n_steps, n_threads, [&](int thread, std::int64_t block) {
        const PlainArithmetic plain;
        std::optional<Worker>& worker = workers[static_cast<std::size_t>(thread)];
        if (!worker) worker.emplace(machine, hot, rows);
        if (worker->outcome.bad_row >= 0)
            return;  // this thread has met a bad row; earlier blocks are done or under way
        const std::int64_t first = block * step;
        const int n = static_cast<int>(std::min<std::int64_t>(step, n_rows - first));
        answer(*worker, first, n);
    });
    for (const std::optional<Worker>& worker : workers) {
        if (!worker) continue;
        const Outcome& one = worker->outcome;
        total.settled_f32 += one.settled_f32;
        total.settled_f64 += one.settled_f64;
        total.settled_reference += one.settled_reference;
        total.passes += one.passes;
        if (one.bad_row >= 0 && (total.bad_row < 0 || one.bad_row < total.bad_row)) {
            total.bad_row = one.bad_row;
            total.fault = one.fault;
        }
    }
    return total;
}

}  // namespace

Outcome predict_labels(const Machine& machine, const HotTable& hot, const RowSource& rows, Precision first,
                       int n_threads, std::int32_t* labels) {
    return over_rows(machine, hot, rows, rows.n_rows, n_threads,
                     [&](Worker& worker, std::int64_t row, int n) { worker.predict(row, n, first, labels); });
}

Outcome predict_some(const Machine& machine, const HotTable& hot, const RowSource& rows,
                     std::span<const std::int64_t> numbers, Precision first, int n_threads, std::int32_t* labels) {
    return over_rows(
        machine, hot, rows, static_cast<std::int64_t>(numbers.size()), n_threads,
        [&](Worker& worker, std::int64_t at, int n) { worker.predict(numbers.data() + at, n, first, labels); });
}

Outcome compute_scores(const Machine& machine, const HotTable& hot, const RowSource& rows, Precision precision,
                       int n_threads, double* scores, double* bounds) {
    return over_rows(machine, hot, rows, rows.n_rows, n_threads,
                     [&](Worker& worker, std::int64_t row, int n) { worker.score(row, n, precision, scores, bounds); });
}

}  // namespace svelto
