#include "crew.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#ifndef _WIN32
#include <pthread.h>
#include <signal.h>
#endif

namespace svelto {
namespace {

// One thread. Its atomics are its own, not the caller's: the caller may be gone when it is woken.
class Helper {
  public:
    // Throws std::system_error where no thread can be had.
    Helper() { std::thread(&Helper::live, this).detach(); }

    void start(void (*job)(void*, int) noexcept, void* context, int number) {
        job_ = job;
        context_ = context;
        number_ = number;
        given_.fetch_add(1, std::memory_order_release);
        given_.notify_one();
    }

    void wait_until_done() const {
        const std::uint32_t given = given_.load(std::memory_order_relaxed);
        for (std::uint32_t done = done_.load(std::memory_order_acquire); done != given;
             done = done_.load(std::memory_order_acquire))
            done_.wait(done, std::memory_order_acquire);
    }

  private:
    [[noreturn]] void live() {
        for (std::uint32_t seen = 0;;) {
            given_.wait(seen, std::memory_order_acquire);
            seen = given_.load(std::memory_order_acquire);
            job_(context_, number_);
            done_.store(seen, std::memory_order_release);
            done_.notify_one();
        }
    }

    std::atomic<std::uint32_t> given_{0}, done_{0};
    void (*job_)(void*, int) noexcept = nullptr;
    void* context_ = nullptr;
    int number_ = 0;
};

// No signal handler of the process runs on a thread that is started while this lives.
class SignalsBlocked {
  public:
#ifndef _WIN32
    SignalsBlocked() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;

  private:
    sigset_t before_;
#endif
};

class Crew {
  public:
    // Up to n helpers that are now the caller's.
    std::vector<Helper*> take(int n) {
        std::vector<Helper*> taken;
        taken.reserve(static_cast<std::size_t>(n));
        {
            const std::lock_guard lock(mutex_);
            for (; n > 0 && !idle_.empty(); --n) {
                taken.push_back(idle_.back());
                idle_.pop_back();
            }
        }
        try {
            for (; n > 0; --n) taken.push_back(new_helper());
        } catch (const std::system_error&) {
            // A process at its thread limit still gets its answer, only slower.
        }
        return taken;
    }

    void give_back(const std::vector<Helper*>& helpers) {
        const std::lock_guard lock(mutex_);
        idle_.insert(idle_.end(), helpers.begin(), helpers.end());
    }

  private:
    static Helper* new_helper() {
        const SignalsBlocked blocked;
        return std::make_unique<Helper>().release();  // its thread never ends, so it is never freed
    }

    std::mutex mutex_;
    std::vector<Helper*> idle_;
};

// Never freed: helpers of a call may outlive static objects at exit. A forked child forgets its parent's.
std::atomic<Crew*> current{nullptr};

Crew& crew() {
#ifndef _WIN32
    static const int registered = pthread_atfork(nullptr, nullptr, [] { current.store(nullptr); });
    static_cast<void>(registered);
#endif
    Crew* known = current.load(std::memory_order_acquire);
    if (known != nullptr) return *known;
    auto made = std::make_unique<Crew>();
    if (current.compare_exchange_strong(known, made.get())) known = made.release();
    return *known;
}

}  // namespace

void run_on_threads(int n_threads, void (*job)(void*, int) noexcept, void* context) {
    Crew& mine = crew();
    const std::vector<Helper*> helpers = mine.take(n_threads - 1);
    int number = 0;
    for (Helper* helper : helpers) helper->start(job, context, ++number);
    job(context, 0);
    for (const Helper* helper : helpers) helper->wait_until_done();
    mine.give_back(helpers);
}

}  // namespace svelto
