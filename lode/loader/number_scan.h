#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "lode/formats/format.h"

namespace lode::loader {

/// What kinds of numbers a tensor holds, counted.
struct NumberCounts {
  std::uint64_t non_finite = 0;
  std::uint64_t not_positive = 0;  // finite, and zero or below it
  std::uint64_t zero = 0;
  std::uint64_t denormal = 0;  // smaller than the format's normal numbers
  std::uint64_t negative = 0;
  std::optional<std::uint64_t> first_non_finite;  // which element of the tensor
  std::optional<std::uint64_t> first_not_positive;

  void add(const NumberCounts& other);
};

/// Looks for numbers that are no numbers, eight bytes a step; `first_element` is the element of the
/// tensor that `bytes` begins with. Formats that have none, and those that panels do not hold, are
/// not looked at.
///
/// Shapes: bytes [n]
void count_non_finite(formats::Format format, std::span<const std::byte> bytes,
                      std::uint64_t first_element, NumberCounts& counts);

/// Counts everything, number by number: for scales.
///
/// Shapes: bytes [n]
void count_numbers(formats::Format format, std::span<const std::byte> bytes,
                   std::uint64_t first_element, NumberCounts& counts);

}  // namespace lode::loader
