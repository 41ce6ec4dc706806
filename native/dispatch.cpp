#include "dispatch.hpp"

#if defined(SVELTO_X86_LEVELS) && defined(_MSC_VER)
#include <intrin.h>
#endif

namespace svelto {

#ifdef SVELTO_X86_LEVELS
namespace {

struct Levels {
    bool avx2, avx512;
};

#ifdef _MSC_VER
// clang-cl has __builtin_cpu_supports, but links no library that answers it. The processor's own words: what it can
// do, and which registers the system saves between threads (xgetbv).
__attribute__((target("xsave"))) Levels levels_of_this_cpu() {
    const auto bit = [](int word, int place) { return ((static_cast<unsigned>(word) >> place) & 1u) != 0; };
    int leaf[4];  // eax, ebx, ecx, edx
    __cpuid(leaf, 0);
    if (leaf[0] < 7) return {false, false};
    __cpuid(leaf, 1);
    const bool fma = bit(leaf[2], 12), saves = bit(leaf[2], 27);
    const unsigned long long saved = saves ? _xgetbv(0) : 0;
    __cpuidex(leaf, 7, 0);
    const int ebx = leaf[1];
    const bool avx2 = fma && bit(ebx, 5) && (saved & 0x6) == 0x6;
    const bool wide = bit(ebx, 16) && bit(ebx, 17) && bit(ebx, 30) && bit(ebx, 31);  // f, dq, bw, vl
    return {avx2, fma && wide && (saved & 0xe6) == 0xe6};
}
#else
Levels levels_of_this_cpu() {
    __builtin_cpu_init();
    const bool fma = __builtin_cpu_supports("fma");
    return {fma && __builtin_cpu_supports("avx2"),
            fma && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")};
}
#endif

}  // namespace
#endif

namespace {

std::vector<std::string> find_levels() {
    std::vector<std::string> levels{"baseline"};
#ifdef SVELTO_X86_LEVELS
    const Levels found = levels_of_this_cpu();
    if (found.avx2) levels.emplace_back("avx2");
    if (found.avx512) levels.emplace_back("avx512");
#endif
    return levels;
}

}  // namespace

const std::vector<std::string>& available_levels() {
    static const std::vector<std::string> levels = find_levels();
    return levels;
}

const HotTable* find_level(const std::string& name) {
    for (const std::string& level : available_levels()) {
        if (level != name) continue;
#ifdef SVELTO_X86_LEVELS
        if (name == "avx512") return &avx512::table;
        if (name == "avx2") return &avx2::table;
#endif
        return &baseline::table;
    }
    return nullptr;
}

}  // namespace svelto
