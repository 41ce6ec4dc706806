// The floating-point mode that all bounds assume.
#pragma once

#if defined(__SSE2__)
#include <immintrin.h>
#else
#include <cfenv>
#endif

namespace svelto {

// Round to nearest, denormals as they are, whatever the caller's thread was set to; restored at the end.
class PlainArithmetic {
  public:
#if defined(__SSE2__)
    PlainArithmetic() : saved_(_mm_getcsr()) { _mm_setcsr(0x1f80); }
    ~PlainArithmetic() { _mm_setcsr(saved_); }

  private:
    unsigned saved_;
#else
    PlainArithmetic() {
        std::fegetenv(&saved_);
        std::fesetenv(FE_DFL_ENV);
    }
    ~PlainArithmetic() { std::fesetenv(&saved_); }

  private:
    std::fenv_t saved_;
#endif
  public:
    PlainArithmetic(const PlainArithmetic&) = delete;
    PlainArithmetic& operator=(const PlainArithmetic&) = delete;
};

}  // namespace svelto
