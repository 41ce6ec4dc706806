// A loop over blocks on a few threads (crew.hpp); all of them are done with it before it returns.
//
// Waking a thread costs five microseconds, on some virtual machines fifty; callers ask for one thread where the work is
// smaller than that.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>

#include "crew.hpp"

namespace svelto {

// Calls work(thread, block) for every block in [0, n_blocks); the first exception is rethrown here.
template <class Work>
void for_blocks(std::int64_t n_blocks, int n_threads, Work work) {
    if (n_threads > n_blocks) n_threads = static_cast<int>(n_blocks);
    if (n_threads <= 1) {
        for (std::int64_t block = 0; block < n_blocks; ++block) work(0, block);
        return;
    }
    struct Loop {
        Work& work;
        std::int64_t n_blocks;
        std::atomic<std::int64_t> next{0};
        std::mutex guard{};
        std::exception_ptr failure{};
    } shared{work, n_blocks};
    run_on_threads(
        n_threads,
        [](void* context, int thread) noexcept {
            Loop& loop = *static_cast<Loop*>(context);
            try {
                for (std::int64_t block = loop.next.fetch_add(1); block < loop.n_blocks; block = loop.next.fetch_add(1))
                    loop.work(thread, block);
            } catch (...) {
                const std::lock_guard lock(loop.guard);
                if (!loop.failure) loop.failure = std::current_exception();
                loop.next.store(loop.n_blocks);
            }
        },
        &shared);
    if (shared.failure) std::rethrow_exception(shared.failure);
}

}  // namespace svelto
