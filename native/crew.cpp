#include "crew.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#ifndef _WIN32
#include <pthread.h>
#include <signal.h>
#endif

namespace svelto {
namespace {

using Job = void (*)(void*, int) noexcept;

// How long a thread looks for a change before it sleeps. On a virtual machine waking one takes some fifty microseconds,
// a third of a call of 2,000 rows; calls mostly follow each other, and threads of a call end about together.
constexpr std::chrono::microseconds kAwake{100};

void pause_briefly() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

// Looks at `value` until it is no longer `old`, but not for long; whoever else wants the core gets it meanwhile.
template <class T>
T look_for_change(const std::atomic<T>& value, T old) {
    const auto end = std::chrono::steady_clock::now() + kAwake;
    do {
        for (int i = 0; i < 64; ++i) {
            if (const T now = value.load(); now != old) return now;
            pause_briefly();
        }
        std::this_thread::yield();
    } while (std::chrono::steady_clock::now() < end);
    return old;
}

// One thread. Its atomics are its own, not the caller's: the caller may be gone when it is woken.
class Helper {
  public:
    // Throws std::system_error where no thread can be had.
    Helper() { std::thread(&Helper::live, this).detach(); }

    void start(Job job, void* context, int number) {
        job_ = job;
        context_ = context;
        number_ = number;
        state_.store(State::offered);
        state_.notify_one();
    }

    // Returns when the job is done, or at once where the helper has not begun: on a busy computer it may be long
    // until it is given a core, and the caller has done its share meanwhile.
    void finish() {
        State offered = State::offered;
        if (state_.compare_exchange_strong(offered, State::idle)) return;
        if (look_for_change(state_, State::working) == State::idle) return;
        for (State now = state_.load(); now != State::idle; now = state_.load()) state_.wait(now);
    }

    // Its thread ends, and frees it. Only for a helper without a job.
    void dismiss() {
        const std::lock_guard lock(leaving_);
        state_.store(State::dismissed);
        state_.notify_one();
    }

  private:
    enum class State : std::uint32_t { idle, offered, working, dismissed };

    void live() {
        for (;;) {
            if (look_for_change(state_, State::idle) == State::idle) state_.wait(State::idle);
            State offered = State::offered;
            if (state_.compare_exchange_strong(offered, State::working)) {
                job_(context_, number_);
                state_.store(State::idle);
                state_.notify_one();
            } else if (offered == State::dismissed) {
                leaving_.lock();  // `dismiss` is still at work on this object until it can be had
                leaving_.unlock();
                delete this;
                return;
            }
        }
    }

    std::atomic<State> state_{State::idle};
    std::mutex leaving_;
    Job job_ = nullptr;
    void* context_ = nullptr;
    int number_ = 0;
};

// No signal handler runs on a thread that is started while this lives, but for faults of the thread itself.
class SignalsBlocked {
  public:
#ifndef _WIN32
    SignalsBlocked() {
        sigset_t others;
        sigfillset(&others);
        for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) sigdelset(&others, fault);
        pthread_sigmask(SIG_SETMASK, &others, &before_);
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
            idle_.reserve(most_idle_);  // so that nothing can fail when they are given back
        }
        try {
            for (; n > 0; --n) taken.push_back(new_helper());
        } catch (const std::exception&) {
            // A process at its thread limit still gets its answer, only slower.
        }
        return taken;
    }

    // As many as there are cores wait for the next call; what more callers needed at once goes.
    void give_back(const std::vector<Helper*>& helpers) noexcept {
        const std::lock_guard lock(mutex_);
        for (Helper* helper : helpers) {
            if (idle_.size() < most_idle_)
                idle_.push_back(helper);
            else
                helper->dismiss();
        }
    }

  private:
    static Helper* new_helper() {
        [[maybe_unused]] const SignalsBlocked blocked;
        return std::make_unique<Helper>().release();  // its thread frees it
    }

    const std::size_t most_idle_ = std::max(std::thread::hardware_concurrency(), 4u);
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

void run_on_threads(int n_threads, Job job, void* context) {
    Crew& mine = crew();
    const std::vector<Helper*> helpers = mine.take(n_threads - 1);
    int number = 0;
    for (Helper* helper : helpers) helper->start(job, context, ++number);
    job(context, 0);
    for (Helper* helper : helpers) helper->finish();
    mine.give_back(helpers);
}

}  // namespace svelto
