#include "lode/cli/stage_chart.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/cli/svg.h"

namespace lode::cli {
namespace {

constexpr double kLeft = 84;
constexpr double kTop = 104;
constexpr double kPlotWidth = 780;
constexpr double kPlotHeight = 330;
constexpr double kBottom = kTop + kPlotHeight;
constexpr double kRight = kLeft + kPlotWidth;
constexpr double kWidth = kRight + 28;
constexpr double kHeight = kBottom + 88;
constexpr double kHalfLabel = 56;  // of "peak 1023.9 MiB"
constexpr double kNameEvery = 16;  // points between two names below the axis, at least

// One colour a tag in each theme, told apart by people who do not see red from green, too.
struct Colour {
  const char* light;
  const char* dark;
};
constexpr std::array<Colour, memory::kNumTags> kColours = {{{"#2f6db5", "#5b9be6"},
                                                            {"#e08a1e", "#f0a94a"},
                                                            {"#3f9e6b", "#62c08d"},
                                                            {"#8a5fb8", "#b08ada"},
                                                            {"#7d848c", "#a3abb5"},
                                                            {"#c2486a", "#e57898"}}};

// Without a theme the colours are those of a light page.
std::string style() {
  std::string light;
  std::string dark;
  for (std::size_t i = 0; i < kColours.size(); ++i) {
    light += fmt::format(".t{}{{fill:{}}}", i, kColours[i].light);
    dark += fmt::format(".t{}{{fill:{}}}", i, kColours[i].dark);
  }
  return fmt::format(
      "<style>text{{fill:#1f2328}}.soft{{fill:#59636e}}.page{{fill:#ffffff}}.grid{{stroke:#d8dee4}}"
      ".axis{{stroke:#8c959f}}.budget{{stroke:#c62828}}.over{{fill:#c62828}}"
      ".halo{{paint-order:stroke;stroke:#ffffff;stroke-width:4;stroke-linejoin:round}}{}"
      "@media (prefers-color-scheme: dark){{text{{fill:#e6edf3}}.soft{{fill:#9da7b3}}"
      ".page{{fill:#0d1117}}.grid{{stroke:#2b323b}}.axis{{stroke:#6e7681}}.budget{{stroke:#ff7b72}}"
      ".over{{fill:#ff7b72}}.halo{{stroke:#0d1117}}{}}}</style>\n",
      light, dark);
}

std::string head(const std::string& title, const std::string& below) {
  return svg_head({kWidth, kHeight, kLeft, 30}, title, style()) +
         svg_text(kLeft, 50, "class=\"soft\"", below);
}

// "kv cache", everywhere in the picture.
std::string shown_name(std::size_t tag) {
  std::string name(memory::name(static_cast<memory::Tag>(tag)));
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

// Only of what the chart shows.
std::string legend(std::span<const memory::StageUse> stages) {
  std::string out;
  double x = kLeft;
  for (std::size_t i = 0; i < memory::kNumTags; ++i) {
    const bool used = std::any_of(stages.begin(), stages.end(), [i](const memory::StageUse& stage) {
      return stage.peak_bytes[i] > 0;
    });
    if (!used) continue;
    const std::string name = shown_name(i);
    out += fmt::format(
        "<rect class=\"t{}\" x=\"{:.1f}\" y=\"66\" width=\"12\" height=\"12\" rx=\"2\"/>\n", i, x);
    out += svg_text(x + 18, 76, "", name);
    x += 40 + 6.6 * static_cast<double>(name.size());
  }
  return out;
}

class Scale {
 public:
  explicit Scale(std::uint64_t most)
      : most_(static_cast<double>(std::max<std::uint64_t>(most, 1))) {}
  double height(std::uint64_t bytes) const {
    return static_cast<double>(bytes) / most_ * kPlotHeight;
  }
  double y(std::uint64_t bytes) const { return kBottom - height(bytes); }

 private:
  double most_;
};

// The least of 1, 2, 5, 10, 20, 50, ... of a unit that makes at most six lines.
std::uint64_t tick_bytes(std::uint64_t most) {
  const std::uint64_t unit = most >= 2 * kGiB ? kGiB : most >= 2 * kMiB ? kMiB : kKiB;
  std::uint64_t power = unit;
  for (;; power *= 10) {
    for (const std::uint64_t times : {1U, 2U, 5U}) {
      if (most / (power * times) <= 6) return power * times;
    }
  }
}

std::string tick_text(std::uint64_t bytes) {
  if (bytes == 0) return "0";
  if (bytes % kGiB == 0) return fmt::format("{} GiB", bytes / kGiB);
  return bytes % kMiB == 0 ? fmt::format("{} MiB", bytes / kMiB)
                           : fmt::format("{} KiB", bytes / kKiB);
}

std::string axis(const Scale& scale, std::uint64_t most) {
  std::string out;
  const std::uint64_t step = tick_bytes(most);
  for (std::uint64_t bytes = 0; bytes <= most; bytes += step) {
    out += fmt::format(
        "<line class=\"{}\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke-width=\"1\"/>\n",
        bytes == 0 ? "axis" : "grid", kLeft, kRight, scale.y(bytes), scale.y(bytes));
    out += svg_text(kLeft - 8, scale.y(bytes) + 4, "class=\"soft\" text-anchor=\"end\"",
                    tick_text(bytes));
  }
  return out;
}

// What a tag peaked at, but never more in sum than the stage's own peak.
std::string bar(const memory::StageUse& stage, const Scale& scale, double x, double width) {
  std::string out;
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < memory::kNumTags; ++i) {
    const std::uint64_t bytes = std::min(stage.peak_bytes[i], stage.peak_total_bytes - below);
    below += bytes;
    if (bytes == 0) continue;
    out += fmt::format(
        "<rect class=\"t{}\" x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\">"
        "<title>{}: {} {} ({} bytes)</title></rect>\n",
        i, x, scale.y(below), width, scale.height(bytes), svg_escaped(stage.name), shown_name(i),
        human_bytes(bytes), bytes);
  }
  return out;
}

// Stages from left to right with names where there is room for them; the last is always named.
std::string bars(std::span<const memory::StageUse> stages, const Scale& scale) {
  std::string out;
  const double step = kPlotWidth / static_cast<double>(std::max<std::size_t>(stages.size(), 1));
  const double gap = std::min(step * 0.2, 6.0);
  const auto every = static_cast<std::size_t>(kNameEvery / step) + 1;
  const std::size_t last = stages.size() - 1;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const double x = kLeft + step * static_cast<double>(i);
    out += bar(stages[i], scale, x + gap / 2, step - gap);
    if (i != last && (i % every != 0 || i + every > last)) continue;
    out += fmt::format(
        "<text class=\"soft\" font-size=\"11\" transform=\"translate({:.1f} {}) rotate(45)\">{}"
        "</text>\n",
        x + step / 2 - 3, kBottom + 16, svg_escaped(stages[i].name));
  }
  return out;
}

// The budget as a line, and red over what is above it; or in words where it is far above all.
std::string budget_line(const Scale& scale, std::uint64_t budget_bytes, std::uint64_t peak_bytes,
                        bool in_chart) {
  const std::string text = fmt::format("budget {}", human_bytes(budget_bytes));
  if (!in_chart) {
    return svg_text(kRight, kTop - 10, "class=\"soft\" text-anchor=\"end\"", text + ", far above");
  }
  const double y = scale.y(budget_bytes);
  std::string out;
  if (peak_bytes > budget_bytes) {
    out += fmt::format(
        "<rect class=\"over\" opacity=\"0.13\" x=\"{}\" y=\"{:.1f}\" width=\"{}\" height=\"{:.1f}\""
        "/>\n",
        kLeft, scale.y(peak_bytes), kPlotWidth, y - scale.y(peak_bytes));
  }
  return out +
         fmt::format(
             "<line class=\"budget\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" "
             "stroke-width=\"1.5\" stroke-dasharray=\"7 4\"/>\n",
             kLeft, kRight, y, y) +
         svg_text(kLeft + 6, y - 6, "class=\"over halo\" font-weight=\"600\"", text);
}

}  // namespace

std::string stage_chart_svg(std::span<const memory::StageUse> stages, std::uint64_t budget_bytes,
                            const std::string& title) {
  if (stages.empty()) return head(title, "no stages") + "</svg>\n";
  const auto peak = std::max_element(
      stages.begin(), stages.end(),
      [](const auto& a, const auto& b) { return a.peak_total_bytes < b.peak_total_bytes; });
  const std::uint64_t most = peak->peak_total_bytes;
  // A budget far above everything would press the bars flat: then it is only written.
  const bool in_chart = budget_bytes <= most + most / 2;
  const std::uint64_t shown = (in_chart ? std::max(most, budget_bytes) : most) / 100 * 106;
  const Scale scale(shown);
  const std::string below =
      fmt::format("peak {} in stage \u201C{}\u201D, budget {}: {}", human_bytes(most), peak->name,
                  human_bytes(budget_bytes),
                  most <= budget_bytes
                      ? fmt::format("fits, {} to spare", human_bytes(budget_bytes - most))
                      : fmt::format("does not fit, {} over", human_bytes(most - budget_bytes)));
  const double step = kPlotWidth / static_cast<double>(stages.size());
  const double x = kLeft + step * (static_cast<double>(peak - stages.begin()) + 0.5);
  return head(title, below) + legend(stages) + axis(scale, shown) + bars(stages, scale) +
         budget_line(scale, budget_bytes, most, in_chart) +
         svg_text(std::clamp(x, kLeft + kHalfLabel, kRight - kHalfLabel), scale.y(most) - 6,
                  "class=\"halo\" text-anchor=\"middle\" font-weight=\"600\"",
                  "peak " + human_bytes(most)) +
         "</svg>\n";
}

}  // namespace lode::cli
