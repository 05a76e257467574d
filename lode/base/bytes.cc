#include "lode/base/bytes.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "lode/base/fmt.h"

namespace lode {
namespace {

struct Unit {
  std::string_view name;
  std::uint64_t bytes;
};
constexpr std::array kUnits = {
    Unit{"", 1},
    Unit{"B", 1},
    Unit{"K", kKiB},
    Unit{"KiB", kKiB},
    Unit{"M", kMiB},
    Unit{"MiB", kMiB},
    Unit{"G", kGiB},
    Unit{"GiB", kGiB},
    Unit{"T", 1024 * kGiB},
    Unit{"TiB", 1024 * kGiB},
    Unit{"KB", 1000},
    Unit{"MB", 1000 * 1000},
    Unit{"GB", 1000ULL * 1000 * 1000},
    Unit{"TB", 1000ULL * 1000 * 1000 * 1000},
};

// Capitals do not matter: nobody means bits.
bool same_unit(std::string_view a, std::string_view b) {
  const auto small = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char x, char y) { return small(x) == small(y); });
}

Error not_a_size(std::string_view text) {
  return Error{.code = Code::kUsage,
               .thing = "size in bytes",
               .wanted = "a number with an optional unit such as 12GiB or 900MB",
               .found = fmt::format("\"{}\"", text)};
}

}  // namespace

Result<std::uint64_t> parse_bytes(std::string_view text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, fault] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (fault != std::errc{} || !(number >= 0)) return not_a_size(text);
  std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  for (const Unit& known : kUnits) {
    if (!same_unit(known.name, unit)) continue;
    const double bytes = std::floor(number * static_cast<double>(known.bytes));
    if (!(bytes < 9.2e18)) return not_a_size(text);
    return static_cast<std::uint64_t>(bytes);
  }
  return not_a_size(text);
}

std::string human_bytes(std::uint64_t bytes) {
  if (bytes < kKiB) return fmt::format("{} B", bytes);
  const auto value = static_cast<double>(bytes);
  if (bytes < kMiB) return fmt::format("{:.1f} KiB", value / static_cast<double>(kKiB));
  if (bytes < kGiB) return fmt::format("{:.1f} MiB", value / static_cast<double>(kMiB));
  return fmt::format("{:.2f} GiB", value / static_cast<double>(kGiB));
}

std::string count_of(std::uint64_t count, std::string_view thing) {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
}

}  // namespace lode
