// Threads that wait between calls, so that a call of a millisecond does not pay for starting them.
//
// A helper is started when it is first needed, and then belongs to one call at a time; calls on several threads have
// helpers of their own. Waiting ones sleep, hear no signals, and are never ended: the process may exit under them. A
// child made by fork() has none of them, and starts its own.
#pragma once

namespace svelto {

// Calls job(context, number) for number 0 on this thread and for 1 .. n_threads - 1 on helpers, and returns when all
// of them have. At the process's limit of threads there are fewer numbers, but always 0. The job must not throw.
void run_on_threads(int n_threads, void (*job)(void* context, int number) noexcept, void* context);

}  // namespace svelto
