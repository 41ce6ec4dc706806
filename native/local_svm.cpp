#include "local_svm.hpp"

#include <algorithm>
#include <limits>

#include "parallel.hpp"
#include "plain_arithmetic.hpp"
#include "smo.hpp"

namespace svelto {
namespace {

// The rows of a neighbourhood, sorted by class.
struct ClassRows {
    std::vector<std::int32_t> classes;  // codes, ascending
    std::vector<int> start;             // [n_classes + 1], into the next two
    std::vector<std::int64_t> numbers;
    std::vector<std::int64_t> given;  // where the row was in the problem's list

    int n_classes() const { return static_cast<int>(classes.size()); }

    void load(const LocalProblems& problems, std::int64_t problem) {
        const std::int64_t first = problems.start[problem], last = problems.start[problem + 1];
        const auto is_left_out = [&](std::int64_t row) {
            return problems.weight != nullptr && !(problems.weight[row] > 0.0);
        };
        classes.clear();
        std::size_t n = 0;
        for (std::int64_t k = first; k < last; ++k) {
            const std::int64_t row = problems.numbers[k];
            if (is_left_out(row)) continue;
            ++n;
            const std::int32_t code = problems.y[row];
            const auto place = std::lower_bound(classes.begin(), classes.end(), code);
            if (place == classes.end() || *place != code) classes.insert(place, code);
        }
        start.assign(classes.size() + 1, 0);
        numbers.resize(n);
        given.resize(n);
        if (classes.size() < 2) return;
        const auto class_of = [&](std::int64_t row) {
            return static_cast<std::size_t>(std::lower_bound(classes.begin(), classes.end(), problems.y[row]) -
                                            classes.begin());
        };
        for (std::int64_t k = first; k < last; ++k)
            if (!is_left_out(problems.numbers[k])) ++start[class_of(problems.numbers[k]) + 1];
        for (std::size_t c = 0; c < classes.size(); ++c) start[c + 1] += start[c];
        std::vector<int> next(start.begin(), start.end() - 1);
        for (std::int64_t k = first; k < last; ++k) {
            if (is_left_out(problems.numbers[k])) continue;
            const auto place = static_cast<std::size_t>(next[class_of(problems.numbers[k])]++);
            numbers[place] = problems.numbers[k];
            given[place] = k;
        }
    }
};

struct Workspace {
    ClassRows rows;
    LocalGram gram;
    SubGram sub;
    SmoSolver solver;
    std::vector<int> positions;
    std::vector<double> bounds;
    std::vector<double> scores;
    std::vector<int> votes;
};

struct PairModel {
    SmoReport report;
    std::vector<std::int32_t> support;
    std::vector<double> coef;
};

struct Model {
    std::vector<std::int32_t> classes;
    std::vector<PairModel> pairs;
};

// Solves the machine of the rows that `space.sub` selects; the result is in space.solver.
SmoReport solve_pair(const LocalProblems& problems, Workspace& space, int n_positive, double C, const HotTable& hot) {
    const int n = space.sub.size();
    space.bounds.resize(static_cast<std::size_t>(n));
    for (int i = 0; i < n; ++i) {
        const std::int64_t row = space.rows.numbers[static_cast<std::size_t>(space.sub.position(i))];
        space.bounds[static_cast<std::size_t>(i)] = problems.weight == nullptr ? C : C * problems.weight[row];
    }
    return space.solver.solve(space.sub, n_positive, space.bounds.data(), problems.tol, problems.max_steps, hot);
}

// A linear kernel's rows are packed about a point, and the decision function is not.
double intercept_of(const LocalProblems& problems, const Workspace& space, const SmoReport& report) {
    if (problems.kernel.kind != KernelKind::linear) return report.intercept;
    double shift = 0.0;
    for (int i = 0; i < space.sub.size(); ++i) {
        const double coef = space.solver.coef(i);
        if (coef != 0.0) shift += coef * space.gram.centre_product(space.sub.position(i));
    }
    return report.intercept - shift;
}

void fit_problem(const LocalProblems& problems, std::int64_t problem, double C, double gamma, Workspace& space,
                 const HotTable& hot, Model& model) {
    ClassRows& rows = space.rows;
    rows.load(problems, problem);
    model.classes = rows.classes;
    if (rows.n_classes() < 2) return;
    space.gram.load(problems.rows, rows.numbers.data(), static_cast<int>(rows.numbers.size()), problems.kernel, false,
                    hot);
    space.gram.set_gamma(gamma);
    for (std::size_t a = 0; a < rows.classes.size(); ++a) {
        for (std::size_t b = a + 1; b < rows.classes.size(); ++b) {
            space.positions.clear();
            for (int k = rows.start[a]; k < rows.start[a + 1]; ++k) space.positions.push_back(k);
            for (int k = rows.start[b]; k < rows.start[b + 1]; ++k) space.positions.push_back(k);
            space.sub.select(space.gram, space.positions);
            PairModel& pair = model.pairs.emplace_back();
            pair.report = solve_pair(problems, space, rows.start[a + 1] - rows.start[a], C, hot);
            pair.report.intercept = intercept_of(problems, space, pair.report);
            for (int i = 0; i < space.sub.size(); ++i) {
                const double coef = space.solver.coef(i);
                if (coef == 0.0) continue;
                const auto position = static_cast<std::size_t>(space.sub.position(i));
                pair.support.push_back(static_cast<std::int32_t>(rows.numbers[position]));
                pair.coef.push_back(coef);
            }
        }
    }
}

// One fold of a cross-validation, for one gamma and all C: the votes of the pairs for the rows held out.
class Fold {
  public:
    Fold(const LocalProblems& problems, const LocalGrid& grid, Workspace& space, const HotTable& hot)
        : problems_(problems), grid_(grid), space_(space), hot_(hot) {}

    // Adds to right[n_C].
    void run(std::int32_t fold, const double* C, double* right) {
        const ClassRows& rows = space_.rows;
        const std::size_t n_classes = rows.classes.size(), n_grid = static_cast<std::size_t>(grid_.n_C);
        held_.clear();
        training_.assign(n_classes, {});
        for (std::size_t c = 0; c < n_classes; ++c) {
            for (int k = rows.start[c]; k < rows.start[c + 1]; ++k) {
                if (grid_.fold[rows.given[static_cast<std::size_t>(k)]] == fold)
                    held_.push_back(k);
                else
                    training_[c].push_back(k);
            }
        }
        space_.votes.assign(n_grid * held_.size() * n_classes, 0);
        for (std::size_t c = 0; c < n_classes; ++c) {
            if (training_[c].empty()) continue;
            // So that a class alone, without any pair, is an answer.
            for (std::size_t h = 0; h < n_grid * held_.size(); ++h) ++space_.votes[h * n_classes + c];
            for (std::size_t other = c + 1; other < n_classes; ++other)
                if (!training_[other].empty()) vote(c, other, C);
        }
        for (std::size_t g = 0; g < n_grid; ++g) {
            for (std::size_t h = 0; h < held_.size(); ++h) {
                const int* votes = space_.votes.data() + (g * held_.size() + h) * n_classes;
                const auto best = static_cast<std::size_t>(std::max_element(votes, votes + n_classes) - votes);
                const std::int64_t row = rows.numbers[static_cast<std::size_t>(held_[h])];
                if (votes[best] > 0 && rows.classes[best] == problems_.y[row])
                    right[g] += grid_.worth == nullptr ? 1.0 : grid_.worth[row];
            }
        }
    }

  private:
    void vote(std::size_t a, std::size_t b, const double* C) {
        space_.positions = training_[a];
        space_.positions.insert(space_.positions.end(), training_[b].begin(), training_[b].end());
        space_.sub.select(space_.gram, space_.positions);
        // From this C on the machine is the last one solved: none of its weights ever met C.
        double same_from = std::numeric_limits<double>::infinity();
        for (int g = 0; g < grid_.n_C; ++g) {
            if (C[g] >= same_from) {
                count(a, b, g);
                continue;
            }
            const SmoReport report = solve_pair(problems_, space_, static_cast<int>(training_[a].size()), C[g], hot_);
            same_from = report.met_bound ? std::numeric_limits<double>::infinity() : C[g];
            space_.scores.assign(held_.size(), report.intercept);
            const double factor = space_.gram.factor();
            for (int i = 0; i < space_.sub.size(); ++i) {
                const double coef = space_.solver.coef(i) * factor;
                if (coef == 0.0) continue;
                const float* row = space_.gram.row(space_.sub.position(i));
                for (std::size_t h = 0; h < held_.size(); ++h)
                    space_.scores[h] += coef * static_cast<double>(row[held_[h]]);
            }
            count(a, b, g);
        }
    }

    // The pair's vote on every held-out row, by its scores.
    void count(std::size_t a, std::size_t b, int g) {
        const std::size_t n_classes = space_.rows.classes.size();
        int* votes = space_.votes.data() + static_cast<std::size_t>(g) * held_.size() * n_classes;
        for (std::size_t h = 0; h < held_.size(); ++h) ++votes[h * n_classes + (space_.scores[h] > 0.0 ? a : b)];
    }

    const LocalProblems& problems_;
    const LocalGrid& grid_;
    Workspace& space_;
    const HotTable& hot_;
    std::vector<int> held_;
    std::vector<std::vector<int>> training_;
};

// Rows of a class that is alone in its neighbourhood: right wherever another row is left to learn from.
double single_class_right(const LocalProblems& problems, const LocalGrid& grid, std::int64_t problem) {
    const std::int64_t first = problems.start[problem], last = problems.start[problem + 1];
    std::vector<std::int64_t> kept;
    for (std::int64_t k = first; k < last; ++k)
        if (problems.weight == nullptr || problems.weight[problems.numbers[k]] > 0.0) kept.push_back(k);
    const bool one_fold =
        std::all_of(kept.begin(), kept.end(), [&](std::int64_t k) { return grid.fold[k] == grid.fold[kept.front()]; });
    double right = 0.0;
    for (const std::int64_t k : kept)
        if (grid.fold[k] >= 0 && !one_fold) right += grid.worth == nullptr ? 1.0 : grid.worth[problems.numbers[k]];
    return right;
}

void search_problem(const LocalProblems& problems, const LocalGrid& grid, std::int64_t problem, Workspace& space,
                    const HotTable& hot, double* right) {
    ClassRows& rows = space.rows;
    rows.load(problems, problem);
    std::fill_n(right, grid.n_gamma * grid.n_C, 0.0);
    if (rows.n_classes() < 2) {
        std::fill_n(right, grid.n_gamma * grid.n_C, single_class_right(problems, grid, problem));
        return;
    }
    std::vector<std::int32_t> folds;
    for (const std::int64_t k : rows.given)
        if (grid.fold[k] >= 0) folds.push_back(grid.fold[k]);
    std::sort(folds.begin(), folds.end());
    folds.erase(std::unique(folds.begin(), folds.end()), folds.end());
    space.gram.load(problems.rows, rows.numbers.data(), static_cast<int>(rows.numbers.size()), problems.kernel, true,
                    hot);
    Fold one(problems, grid, space, hot);
    for (int g = 0; g < grid.n_gamma; ++g) {
        space.gram.set_gamma(grid.gamma[problem * grid.n_gamma + g]);
        for (const std::int32_t fold : folds) one.run(fold, grid.C + problem * grid.n_C, right + g * grid.n_C);
    }
}

}  // namespace

LocalModels fit_local(const LocalProblems& problems, const double* C, const double* gamma, int n_threads,
                      const HotTable& hot) {
    std::vector<Model> models(static_cast<std::size_t>(problems.n_problems));
    std::vector<Workspace> spaces(static_cast<std::size_t>(std::max(n_threads, 1)));
    for_blocks(problems.n_problems, n_threads, [&](int thread, std::int64_t problem) {
        const PlainArithmetic plain;
        fit_problem(problems, problem, C[problem], gamma[problem], spaces[static_cast<std::size_t>(thread)], hot,
                    models[static_cast<std::size_t>(problem)]);
    });
    LocalModels all;
    all.class_start.push_back(0);
    all.pair_start.push_back(0);
    all.support_start.push_back(0);
    for (const Model& model : models) {
        all.classes.insert(all.classes.end(), model.classes.begin(), model.classes.end());
        all.class_start.push_back(static_cast<std::int64_t>(all.classes.size()));
        for (const PairModel& pair : model.pairs) {
            all.intercept.push_back(pair.report.intercept);
            all.n_steps.push_back(pair.report.n_steps);
            all.converged.push_back(pair.report.converged ? 1 : 0);
            all.support.insert(all.support.end(), pair.support.begin(), pair.support.end());
            all.coef.insert(all.coef.end(), pair.coef.begin(), pair.coef.end());
            all.support_start.push_back(static_cast<std::int64_t>(all.support.size()));
        }
        all.pair_start.push_back(static_cast<std::int64_t>(all.intercept.size()));
    }
    return all;
}

void search_local(const LocalProblems& problems, const LocalGrid& grid, int n_threads, const HotTable& hot,
                  double* right) {
    std::vector<Workspace> spaces(static_cast<std::size_t>(std::max(n_threads, 1)));
    for_blocks(problems.n_problems, n_threads, [&](int thread, std::int64_t problem) {
        const PlainArithmetic plain;
        search_problem(problems, grid, problem, spaces[static_cast<std::size_t>(thread)], hot,
                       right + problem * grid.n_gamma * grid.n_C);
    });
}

}  // namespace svelto
