#include "dispatch.hpp"

namespace svelto {

std::vector<std::string> available_levels() {
    std::vector<std::string> levels{"baseline"};
#ifdef SVELTO_X86_LEVELS
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) levels.emplace_back("avx2");
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma"))
        levels.emplace_back("avx512");
#endif
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
