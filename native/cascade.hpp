// A cascade in one piece: stages answer what they are sure about, cheapest first, and the whole sum answers the rest.
//
// `src/svelto/cascade.py` is the definition, stage by stage in Python; this gives the same labels without going back
// there between stages.
#pragma once

#include <cstdint>
#include <vector>

#include "cascade_parts.hpp"
#include "taken_rows.hpp"

namespace svelto {

struct CascadeStage {
    const LabelStage* stage = nullptr;
    double caution = 0.0;        // infinite: the stage is not asked
    bool guards_itself = false;  // leaves every row open that the guard would mark
};

struct Cascade {
    std::vector<CascadeStage> stages;
    const RowMarker* guard = nullptr;  // null: every row is like the known ones
    const WholeSum* exact = nullptr;
    Precision first = Precision::float32;  // tier that the whole sum starts with
    double exact_rows_per_thread = 1.0;
};

// One batch on its way. Ask about all stages in turn, then about the rest.
class CascadeRun {
  public:
    // labels: [n_rows], all written in the end. A run may begin behind earlier stages, and behind the guard.
    CascadeRun(const Cascade& cascade, const RowSource& rows, int n_threads, std::int32_t* labels,
               std::size_t first_stage = 0, bool guarded = false);

    bool has_stage() const noexcept { return next_ < cascade_.stages.size(); }

    // Asks the next stage. False where a row cannot be read.
    bool ask_stage();

    // Asks all stages that are left. Of many rows each thread takes some through all stages by itself, so that none
    // waits for another between them.
    bool ask_stages();

    // Whether all rows are answered; asked about behind any stage.
    bool is_done() const noexcept { return n_open_ == 0 && kept_.empty(); }

    // Lets the whole sum answer at most so many of the rows that are left. False where a row cannot be read.
    bool ask_exact(std::int64_t most_rows);

    // Rows settled by each stage, then those of the whole sum.
    const std::vector<std::int64_t>& settled() const noexcept { return settled_; }

    // Numbers of the rows that are open, and of those that the guard keeps for the whole sum.
    void list_rows(std::vector<std::int64_t>& open, std::vector<std::int64_t>& kept);

    std::int64_t bad_row = -1;
    Fault fault = Fault::none;

  private:
    bool ask_stages_on(int n_threads);
    const RowSource& open_rows();
    std::int64_t number_of(std::int64_t place) const;
    void list_open();
    void keep_open(const std::int32_t* answers);
    bool ask_guard();
    bool ask_everywhere(const CascadeStage& asked);
    bool ask_open(const CascadeStage& asked);
    bool name_row(std::int64_t row, Fault why) noexcept;
    void gather_rest();

    const Cascade& cascade_;
    const RowSource& rows_;
    int n_threads_;
    std::int32_t* labels_;
    std::size_t next_;
    std::int64_t n_open_;
    std::vector<std::int64_t> open_;  // numbers of the open rows, where they are listed; else all are
    std::vector<std::int64_t> kept_;  // numbers of the rows that the guard keeps for the whole sum
    bool guarded_, listed_ = false, taken_ = false, answered_ = false, gathered_ = false;
    TakenRows open_copies_;
    std::vector<std::int32_t> answers_;
    std::vector<std::int64_t> settled_;
    std::size_t rest_at_ = 0;
};

}  // namespace svelto
