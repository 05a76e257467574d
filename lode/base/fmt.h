#pragma once

// The one door to the formatting library: rooms say fmt::format and include this.
#include <fmt/format.h>
#include <fmt/ranges.h>
