#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace lode::checkpoint {

/// Edit distance of two names if it is at most `limit`; none beyond. Time: limit x length.
std::optional<std::size_t> edit_distance(std::string_view a, std::string_view b, std::size_t limit);

}  // namespace lode::checkpoint
