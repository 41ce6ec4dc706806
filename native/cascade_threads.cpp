// A cascade on several threads. Stage by stage they would have to meet, be woken and wait for each other several times
// in a call of a millisecond. Here a thread takes steps of rows through the first stage, as long as there are any, and
// then all that these left open through the others; only the whole sum is again everybody's.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

#include "cascade.hpp"
#include "parallel.hpp"
#include "vote.hpp"

namespace svelto {
namespace {

// Rows in steps that get smaller towards the end, so that threads finish together; none so small that its buffers would
// cost more than its rows.
class Steps {
  public:
    Steps(std::int64_t n_rows, int n_threads) : n_rows_(n_rows), part_(2 * n_threads) {}

    // The next step: its first row and the row behind it; equal where none is left.
    std::pair<std::int64_t, std::int64_t> next() {
        std::int64_t first = at_.load(), end = first;
        do {
            const std::int64_t even = (n_rows_ - first) / part_ / kBlockRows * kBlockRows;
            end = std::min(first + std::clamp(even, kLeast, kMost), n_rows_);
        } while (first < end && !at_.compare_exchange_weak(first, end));
        return {first, end};
    }

  private:
    static constexpr std::int64_t kLeast = 4 * kBlockRows, kMost = 64 * kBlockRows;

    std::int64_t n_rows_, part_;
    std::atomic<std::int64_t> at_{0};
};

// What one thread has taken.
class Share {
  public:
    Share(const Cascade& cascade, const RowSource& rows, std::size_t first_stage, std::int32_t* labels)
        : settled(cascade.stages.size() + 1),
          cascade_(cascade),
          rows_(rows),
          first_stage_(first_stage),
          labels_(labels) {}

    // Asks the first stage about rows [first, first + n). False where one cannot be read.
    bool take(std::int64_t first, std::int64_t n) {
        const RowSource part = rows_from(rows_, first, n);
        CascadeRun run(cascade_, part, 1, labels_ + first, first_stage_);
        if (!run.ask_stage()) return name_row(first + run.bad_row, run.fault);
        settled[first_stage_] += run.settled()[first_stage_];
        run.list_rows(open_, kept_);
        for (const std::int64_t row : open_) waiting_.push_back(first + row);
        for (const std::int64_t row : kept_) rest.push_back(first + row);
        return true;
    }

    // Asks the other stages about all that is open.
    bool finish() {
        if (!waiting_.empty()) {
            TakenRows taken;
            taken.take(rows_, waiting_);
            answers_.assign(waiting_.size(), kUndecided);
            const bool guarded = !cascade_.stages[first_stage_].guards_itself;
            CascadeRun run(cascade_, taken.source(), 1, answers_.data(), first_stage_ + 1, guarded);
            if (!run.ask_stages()) return name_row(waiting_[static_cast<std::size_t>(run.bad_row)], run.fault);
            for (std::size_t i = first_stage_ + 1; i < settled.size(); ++i) settled[i] += run.settled()[i];
            for (std::size_t i = 0; i < waiting_.size(); ++i) labels_[waiting_[i]] = answers_[i];
            run.list_rows(open_, kept_);
            for (const std::int64_t i : open_) rest.push_back(waiting_[static_cast<std::size_t>(i)]);
            for (const std::int64_t i : kept_) rest.push_back(waiting_[static_cast<std::size_t>(i)]);
        }
        return true;
    }

    std::vector<std::int64_t> rest;     // numbers of the rows for the whole sum
    std::vector<std::int64_t> settled;  // by stage
    std::int64_t bad_row = -1;
    Fault fault = Fault::none;

  private:
    bool name_row(std::int64_t row, Fault why) noexcept {
        bad_row = row;
        fault = why;
        return false;
    }

    const Cascade& cascade_;
    const RowSource& rows_;
    std::size_t first_stage_;
    std::int32_t* labels_;
    std::vector<std::int64_t> waiting_, open_, kept_;
    std::vector<std::int32_t> answers_;
};

}  // namespace

bool CascadeRun::ask_stages_on(int n_threads) {
    while (has_stage() && std::isinf(cascade_.stages[next_].caution)) ++next_;
    if (!has_stage()) return true;
    std::vector<Share> shares(static_cast<std::size_t>(n_threads), Share(cascade_, rows_, next_, labels_));
    Steps steps(rows_.n_rows, n_threads);
    for_blocks(n_threads, n_threads, [&](int, std::int64_t number) {
        Share& share = shares[static_cast<std::size_t>(number)];
        for (auto [first, end] = steps.next(); first < end; std::tie(first, end) = steps.next())
            if (!share.take(first, end - first)) return;
        share.finish();
    });
    open_.clear();
    for (const Share& share : shares) {
        for (std::size_t i = 0; i < settled_.size(); ++i) settled_[i] += share.settled[i];
        open_.insert(open_.end(), share.rest.begin(), share.rest.end());
        if (share.bad_row >= 0 && (bad_row < 0 || share.bad_row < bad_row)) name_row(share.bad_row, share.fault);
    }
    std::sort(open_.begin(), open_.end());
    listed_ = true;
    n_open_ = static_cast<std::int64_t>(open_.size());
    next_ = cascade_.stages.size();
    return bad_row < 0;
}

}  // namespace svelto
