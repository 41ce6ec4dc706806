#include "cascade.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "vote.hpp"

namespace svelto {
namespace {

// Where the guard keeps no more than one row in so many, the first stage reads all rows where they are, and its answers
// for those few are thrown away: copying the others would cost more (a tenth of a Taylor tree's time).
constexpr std::int64_t kFewGuarded = 10;

}  // namespace

CascadeRun::CascadeRun(const Cascade& cascade, const RowSource& rows, int n_threads, std::int32_t* labels,
                       std::size_t first_stage, bool guarded)
    : cascade_(cascade),
      rows_(rows),
      n_threads_(n_threads),
      labels_(labels),
      next_(first_stage),
      n_open_(rows.n_rows),
      guarded_(guarded),
      settled_(cascade.stages.size() + 1) {}

bool CascadeRun::ask_stages() {
    const int threads = useful_threads(rows_.n_rows, kStageRowsPerThread, n_threads_);
    if (threads > 1) return ask_stages_on(threads);
    while (has_stage())
        if (!ask_stage()) return false;
    return true;
}

bool CascadeRun::ask_stage() {
    const CascadeStage& asked = cascade_.stages[next_++];
    if (n_open_ == 0 || std::isinf(asked.caution)) return true;
    if (!asked.guards_itself && !ask_guard()) return false;
    if (n_open_ == 0) return true;
    const std::int64_t before = n_open_;
    const bool few_kept = static_cast<std::int64_t>(kept_.size()) * kFewGuarded <= rows_.n_rows;
    if (!(!answered_ && few_kept ? ask_everywhere(asked) : ask_open(asked))) return false;
    settled_[next_ - 1] = before - n_open_;
    return true;
}

// The first stage that is asked reads the rows where they are.
bool CascadeRun::ask_everywhere(const CascadeStage& asked) {
    const int threads = useful_threads(rows_.n_rows, kStageRowsPerThread, n_threads_);
    const StageOutcome outcome = asked.stage->settle(rows_, asked.caution, threads, labels_);
    if (outcome.bad_row >= 0) return name_row(outcome.bad_row, outcome.fault);
    answered_ = true;
    if (kept_.empty() && outcome.settled == rows_.n_rows) {
        n_open_ = 0;
        return true;
    }
    listed_ = true;
    for (const std::int64_t row : kept_) labels_[row] = 0;  // they are not open, whatever the stage says
    const std::int64_t n_open =
        kept_.empty() ? rows_.n_rows - outcome.settled : std::count(labels_, labels_ + rows_.n_rows, kUndecided);
    // Without a branch: nobody can predict which rows are open. Where one is not, the next takes its place.
    open_.resize(static_cast<std::size_t>(n_open) + 1);
    std::size_t at = 0;
    for (std::int64_t row = 0; row < rows_.n_rows; ++row) {
        open_[at] = row;
        at += labels_[row] == kUndecided;
    }
    open_.resize(at);
    n_open_ = static_cast<std::int64_t>(at);
    taken_ = false;
    return true;
}

bool CascadeRun::ask_open(const CascadeStage& asked) {
    const RowSource& part = open_rows();
    answers_.resize(static_cast<std::size_t>(n_open_));
    const int threads = useful_threads(n_open_, kStageRowsPerThread, n_threads_);
    const StageOutcome outcome = asked.stage->settle(part, asked.caution, threads, answers_.data());
    if (outcome.bad_row >= 0) return name_row(number_of(outcome.bad_row), outcome.fault);
    answered_ = true;
    keep_open(answers_.data());
    return true;
}

// Writes the answers of open rows; those without one stay open.
void CascadeRun::keep_open(const std::int32_t* answers) {
    list_open();
    std::size_t left = 0;
    for (std::size_t i = 0; i < open_.size(); ++i) {
        labels_[open_[i]] = answers[i];
        if (answers[i] == kUndecided) open_[left++] = open_[i];
    }
    taken_ = taken_ && left == open_.size();
    open_.resize(left);
    n_open_ = static_cast<std::int64_t>(left);
}

// The guard looks at the rows once: before the first stage that does not guard itself.
bool CascadeRun::ask_guard() {
    if (cascade_.guard == nullptr || guarded_) return true;
    guarded_ = true;
    const RowSource& part = open_rows();
    std::vector<std::uint8_t> outside(static_cast<std::size_t>(n_open_));
    const int threads = useful_threads(n_open_, kGuardRowsPerThread, n_threads_);
    const StageOutcome outcome = cascade_.guard->mark(part, threads, outside.data());
    if (outcome.bad_row >= 0) return name_row(number_of(outcome.bad_row), outcome.fault);
    if (outcome.settled == 0) return true;
    std::vector<std::int64_t> known;
    for (std::int64_t i = 0; i < n_open_; ++i)
        (outside[static_cast<std::size_t>(i)] != 0 ? kept_ : known).push_back(number_of(i));
    open_ = std::move(known);
    listed_ = true;
    n_open_ = static_cast<std::int64_t>(open_.size());
    taken_ = false;
    return true;
}

bool CascadeRun::ask_exact(std::int64_t most_rows) {
    gather_rest();
    const std::size_t n = std::min(open_.size() - rest_at_, static_cast<std::size_t>(most_rows));
    if (n == 0) return true;
    const std::span<const std::int64_t> numbers(open_.data() + rest_at_, n);
    const int threads = useful_threads(static_cast<std::int64_t>(n), cascade_.exact_rows_per_thread, n_threads_);
    const Outcome outcome = cascade_.exact->labels(rows_, numbers, cascade_.first, threads, labels_);
    if (outcome.bad_row >= 0) return name_row(outcome.bad_row, outcome.fault);
    rest_at_ += n;
    n_open_ -= static_cast<std::int64_t>(n);
    settled_.back() += static_cast<std::int64_t>(n);
    return true;
}

// Rows that no stage has settled and rows that the guard has kept, in their order.
void CascadeRun::gather_rest() {
    if (gathered_) return;
    gathered_ = true;
    list_open();
    const auto middle = static_cast<std::ptrdiff_t>(open_.size());
    open_.insert(open_.end(), kept_.begin(), kept_.end());
    std::inplace_merge(open_.begin(), open_.begin() + middle, open_.end());
    kept_.clear();
    n_open_ = static_cast<std::int64_t>(open_.size());
}

const RowSource& CascadeRun::open_rows() {
    if (n_open_ == rows_.n_rows) return rows_;
    if (!taken_) open_copies_.take(rows_, open_);
    taken_ = true;
    return open_copies_.source();
}

std::int64_t CascadeRun::number_of(std::int64_t place) const {
    return listed_ ? open_[static_cast<std::size_t>(place)] : place;
}

void CascadeRun::list_rows(std::vector<std::int64_t>& open, std::vector<std::int64_t>& kept) {
    list_open();
    open = open_;
    kept = kept_;
}

void CascadeRun::list_open() {
    if (listed_) return;
    listed_ = true;
    open_.resize(static_cast<std::size_t>(n_open_));
    std::iota(open_.begin(), open_.end(), std::int64_t{0});
}

bool CascadeRun::name_row(std::int64_t row, Fault why) noexcept {
    bad_row = row;
    fault = why;
    return false;
}

}  // namespace svelto
