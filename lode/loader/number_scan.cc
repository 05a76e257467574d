#include "lode/loader/number_scan.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lode/formats/dequantise.h"

namespace lode::loader {
namespace {

using formats::Format;

// How a word of eight bytes shows that one of its numbers is not finite: with all bits of `ones`
// set in a number, adding `carry` sets its topmost bit, and no other way does. Where that bit is
// part of what must be set, the word's own must be set, too.
struct FiniteRule {
  std::uint64_t ones = 0;
  std::uint64_t carry = 0;
  std::uint64_t top = 0;
  bool top_counts = false;
};

constexpr std::uint64_t each(std::uint64_t number, unsigned bits) noexcept {
  std::uint64_t word = number;
  for (unsigned at = bits; at < 64; at += bits) word |= number << at;
  return word;
}

constexpr FiniteRule rule(std::uint64_t ones, std::uint64_t lowest, unsigned bits,
                          bool top_counts = false) noexcept {
  return {each(ones, bits), each(lowest, bits), each(std::uint64_t{1} << (bits - 1), bits),
          top_counts};
}

std::optional<FiniteRule> rule_of(Format format) noexcept {
  switch (format) {
    case Format::kF32:
      return rule(0x7F800000, 0x00800000, 32);
    case Format::kF16:
      return rule(0x7C00, 0x0400, 16);
    case Format::kBf16:
      return rule(0x7F80, 0x0080, 16);
    case Format::kE4m3:
      return rule(0x7F, 0x01, 8);
    case Format::kE5m2:
      return rule(0x7C, 0x04, 8);
    case Format::kE8m0:
      return rule(0x7F, 0x01, 8, true);
    default:
      return std::nullopt;
  }
}

std::uint64_t non_finite_bits(const FiniteRule& rule, std::uint64_t word) noexcept {
  const std::uint64_t marked = ((word & rule.ones) + rule.carry) & rule.top;
  return rule.top_counts ? marked & word : marked;
}

std::uint64_t word_at(std::span<const std::byte> bytes, std::size_t at) noexcept {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes.data() + at, std::min(sizeof word, bytes.size() - at));
  return word;
}

bool any_non_finite(const FiniteRule& rule, std::span<const std::byte> bytes) noexcept {
  std::uint64_t marked = 0;
  const std::size_t whole = bytes.size() / sizeof marked * sizeof marked;
  for (std::size_t at = 0; at < whole; at += sizeof marked) {
    marked |= non_finite_bits(rule, word_at(bytes, at));
  }
  if (whole < bytes.size()) marked |= non_finite_bits(rule, word_at(bytes, whole));
  return marked != 0;
}

// Below the least normal number of the format; not asked of zero.
bool is_denormal(Format format, float value) noexcept {
  const float size = std::abs(value);
  switch (format) {
    case Format::kE4m3:
      return size < 0x1p-6F;
    case Format::kE5m2:
    case Format::kF16:
      return size < 0x1p-14F;
    default:
      return size < 0x1p-126F;
  }
}

void keep_first(std::optional<std::uint64_t>& first, std::uint64_t element) noexcept {
  first = std::min(first.value_or(element), element);
}

}  // namespace

void NumberCounts::add(const NumberCounts& other) {
  non_finite += other.non_finite;
  not_positive += other.not_positive;
  zero += other.zero;
  denormal += other.denormal;
  negative += other.negative;
  if (other.first_non_finite) keep_first(first_non_finite, *other.first_non_finite);
  if (other.first_not_positive) keep_first(first_not_positive, *other.first_not_positive);
}

void count_non_finite(Format format, std::span<const std::byte> bytes, std::uint64_t first_element,
                      NumberCounts& counts) {
  const auto rule = rule_of(format);
  if (!rule || !any_non_finite(*rule, bytes)) return;
  const std::size_t number_bytes = formats::info(format).bits / 8;
  for (std::size_t i = 0; i < bytes.size() / number_bytes; ++i) {
    if (std::isfinite(formats::number_at(format, bytes, i))) continue;
    counts.non_finite += 1;
    keep_first(counts.first_non_finite, first_element + i);
  }
}

void count_numbers(Format format, std::span<const std::byte> bytes, std::uint64_t first_element,
                   NumberCounts& counts) {
  if (!rule_of(format)) return;
  const std::size_t number_bytes = formats::info(format).bits / 8;
  for (std::size_t i = 0; i < bytes.size() / number_bytes; ++i) {
    const float value = formats::number_at(format, bytes, i);
    if (!std::isfinite(value)) {
      counts.non_finite += 1;
      keep_first(counts.first_non_finite, first_element + i);
      continue;
    }
    if (value <= 0) {
      counts.not_positive += 1;
      keep_first(counts.first_not_positive, first_element + i);
    }
    if (value == 0) {
      counts.zero += 1;
    } else if (is_denormal(format, value)) {
      counts.denormal += 1;
    }
    if (std::signbit(value) && value != 0) counts.negative += 1;
  }
}

}  // namespace lode::loader
