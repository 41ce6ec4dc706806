// A loop over blocks on a few threads, made for the call and joined before it returns.
//
// No thread outlives the call, so there is nothing to break after fork() and nothing to configure. Starting a thread
// costs some ten microseconds; callers ask for one thread where the work is smaller than that.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace svelto {

// Calls work(thread, block) for every block in [0, n_blocks); the first exception is rethrown here.
template <class Work>
void for_blocks(std::int64_t n_blocks, int n_threads, Work work) {
    if (n_threads > n_blocks) n_threads = static_cast<int>(n_blocks);
    if (n_threads <= 1) {
        for (std::int64_t block = 0; block < n_blocks; ++block) work(0, block);
        return;
    }
    std::atomic<std::int64_t> next{0};
    std::exception_ptr failure;
    std::mutex guard;
    const auto loop = [&](int thread) {
        try {
            for (std::int64_t block = next.fetch_add(1); block < n_blocks; block = next.fetch_add(1))
                work(thread, block);
        } catch (...) {
            const std::lock_guard lock(guard);
            if (!failure) failure = std::current_exception();
            next.store(n_blocks);
        }
    };
    {
        std::vector<std::jthread> helpers;
        helpers.reserve(static_cast<std::size_t>(n_threads - 1));
        for (int thread = 1; thread < n_threads; ++thread) {
            // A process at its thread limit still gets its answer, only slower.
            try {
                helpers.emplace_back(loop, thread);
            } catch (const std::system_error&) {
                break;
            }
        }
        loop(0);
    }
    if (failure) std::rethrow_exception(failure);
}

}  // namespace svelto
