// One kernel value per lane: how a feature is added to the running pair sum, and what is made of the finished sum.
#pragma once

#include "model.hpp"
#include "simd.hpp"

namespace svelto::SVELTO_NAMESPACE {
namespace {

template <class T>
[[gnu::always_inline]] inline Vec<T> power(Vec<T> base, int times) {
    Vec<T> result = broadcast(T{1});
    for (int t = times; t > 0; t /= 2) {
        if (t % 2 == 1) result = result * base;
        base = base * base;
    }
    return result;
}

// tanh through exp(-2|z|): absolute error of a few units in the last place of 1, which is all the bound asks for.
template <class T, bool kFused = true>
[[gnu::always_inline]] inline Vec<T> tanh_lanes(Vec<T> z) {
    constexpr T kTwoOverLn2 = static_cast<T>(2.885390081777926814719849362);
    const Vec<T> e = exp2_clamped<kFused>(vabs(z) * -kTwoOverLn2);
    const Vec<T> magnitude = (T{1} - e) / (T{1} + e);
    return z < T{0} ? -magnitude : magnitude;
}

template <class T, KernelKind kernel, PairKind pair>
struct KernelOp {
    [[gnu::always_inline]] static inline Vec<T> add_feature(Vec<T> sum, Vec<T> x, Vec<T> s) {
        if constexpr (pair == PairKind::dot) {
            return fmadd(x, s, sum);
        } else if constexpr (pair == PairKind::sq_diff) {
            const Vec<T> difference = x - s;
            return fmadd(difference, difference, sum);
        } else {
            return sum + vabs(x - s);
        }
    }

    // The same for a CSR query, whose missing features are zeros: squared distances come from products and norms, and
    // |s|, which vector_const holds for all features, is taken off where a feature is stored.
    [[gnu::always_inline]] static inline Vec<T> add_stored(Vec<T> sum, Vec<T> x, Vec<T> s) {
        if constexpr (pair == PairKind::abs_diff) {
            return sum + (vabs(x - s) - vabs(s));
        } else {
            return fmadd(x, s, sum);
        }
    }

    [[gnu::always_inline]] static inline Vec<T> value(Vec<T> sum, Vec<T> vector_const, T row_const,
                                                      const Panels<T>& sv) {
        if constexpr (kernel == KernelKind::linear) {
            return sum;
        } else if constexpr (kernel == KernelKind::poly) {
            return power<T>(sum + sv.coef0, sv.degree);
        } else if constexpr (kernel == KernelKind::sigmoid) {
            return tanh_lanes<T>(sum + sv.coef0);
        } else if constexpr (pair == PairKind::dot) {
            return exp2_clamped((sum - vector_const) - row_const);
        } else if constexpr (kernel == KernelKind::exponential) {
            return exp2_clamped(vsqrt(sum) * sv.scale);
        } else {
            return exp2_clamped(sum * sv.scale);
        }
    }

    // After add_stored: the norms are still missing from the distance.
    [[gnu::always_inline]] static inline Vec<T> stored_value(Vec<T> sum, Vec<T> vector_const, T row_const,
                                                             const Panels<T>& sv) {
        if constexpr (pair == PairKind::abs_diff) {
            return exp2_clamped((sum + vector_const) * sv.scale);
        } else if constexpr (pair == PairKind::sq_diff) {
            const Vec<T> sq_dist = vmax((vector_const + row_const) - T{2} * sum, Vec<T>{});
            return value(sq_dist, vector_const, row_const, sv);
        } else {
            return value(sum, vector_const, row_const, sv);
        }
    }
};

}  // namespace
}  // namespace svelto::SVELTO_NAMESPACE
