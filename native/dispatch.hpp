// Which instruction level runs: the best the CPU has, or the one the caller names.
#pragma once

#include <string>
#include <vector>

#include "hot.hpp"

namespace svelto {

// Levels this build has and this CPU can run, slowest first.
const std::vector<std::string>& available_levels();

// The table of a level by name, or null where it is not available.
const HotTable* find_level(const std::string& name);

}  // namespace svelto
