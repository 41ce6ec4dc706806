// Threads that wait between calls, so that a call of a millisecond does not pay for starting them.
//
// A helper is started when it is first needed, and then belongs to one call at a time; calls on several threads have
// helpers of their own. As many as there are cores wait for the next call: they look for it for a tenth of a
// millisecond, then they sleep. They hear no signals, and keep the cores that the first caller was allowed. The process
// may exit under them. A child made by fork() has none of them, and starts its own.
#pragma once

namespace svelto {

// Calls job(context, number) for number 0 on this thread and for some of 1 .. n_threads - 1 on helpers, and returns
// when all calls have. There may be fewer: at the process's limit of threads, and where a helper was given no core
// before the caller was done. So one call must be able to do all the work. The job must not throw.
void run_on_threads(int n_threads, void (*job)(void* context, int number) noexcept, void* context);

}  // namespace svelto
