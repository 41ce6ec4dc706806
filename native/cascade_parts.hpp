// What a cascade asks of its parts. The objects that Python holds are such parts.
#pragma once

#include <cstdint>
#include <span>

#include "row_packer.hpp"
#include "rows.hpp"
#include "runner.hpp"

namespace svelto {

// Answers rows it is sure about.
class LabelStage {
  public:
    LabelStage() = default;
    LabelStage(const LabelStage&) = delete;
    LabelStage& operator=(const LabelStage&) = delete;
    virtual ~LabelStage() = default;

    virtual int width() const noexcept = 0;  // features of a row

    // labels[row] in vote order where the score exceeds `caution` times its error scale, else kUndecided. The outcome
    // counts rows with a label exactly: buffers are sized by it.
    virtual StageOutcome settle(const RowSource& rows, double caution, int n_threads, std::int32_t* labels) const = 0;
};

// A stage that may also be a map of another stage's errors.
class ErrorMap : public LabelStage {
  public:
    virtual int n_scores() const noexcept = 0;

    // errors: [n_rows][n_scores].
    virtual StageOutcome errors(const RowSource& rows, int n_threads, double* errors) const = 0;
};

// Marks rows that no stage may answer.
class RowMarker {
  public:
    RowMarker() = default;
    RowMarker(const RowMarker&) = delete;
    RowMarker& operator=(const RowMarker&) = delete;
    virtual ~RowMarker() = default;

    virtual int width() const noexcept = 0;

    // outside[row] = 1 where the row is unlike the known ones, else 0.
    virtual StageOutcome mark(const RowSource& rows, int n_threads, std::uint8_t* outside) const = 0;
};

// Answers every row.
class WholeSum {
  public:
    WholeSum() = default;
    WholeSum(const WholeSum&) = delete;
    WholeSum& operator=(const WholeSum&) = delete;
    virtual ~WholeSum() = default;

    virtual int width() const noexcept = 0;
    virtual int n_scores() const noexcept = 0;
    virtual const RowScaling& scaling() const noexcept = 0;

    // labels[row] of the rows with these numbers.
    virtual Outcome labels(const RowSource& rows, std::span<const std::int64_t> numbers, Precision first, int n_threads,
                           std::int32_t* labels) const = 0;

    // scores: [n_rows][n_scores].
    virtual Outcome scores(const RowSource& rows, Precision precision, int n_threads, double* scores) const = 0;
};

// Threads for so many rows, where each is to have `rows_each`.
inline int useful_threads(std::int64_t n_rows, double rows_each, int n_threads) noexcept {
    const double useful = static_cast<double>(n_rows) / rows_each + 1.0;
    return useful < static_cast<double>(n_threads) ? static_cast<int>(useful) : n_threads;
}

// Below this many rows a second thread costs a stage more than it brings, and a guard.
constexpr int kStageRowsPerThread = 256;
constexpr int kGuardRowsPerThread = 1024;

}  // namespace svelto
