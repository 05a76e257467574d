#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lode::text {

// The generated tables behind unicode_classes.h; tools/make_unicode_tables.py says how they are
// made. A run is a letter (a = kClassSets[0], b = kClassSets[1], ...) and its length, 1 if absent.
extern const std::uint16_t kClassSets[];
extern const std::size_t kNumClassSets;
extern const std::string_view kClassRuns;

}  // namespace lode::text
