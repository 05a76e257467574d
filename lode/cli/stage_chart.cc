#include "lode/cli/stage_chart.h"

#include <algorithm>
#include <array>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"

namespace lode::cli {
namespace {

constexpr double kLeft = 90;
constexpr double kTop = 70;
constexpr double kPlotWidth = 760;
constexpr double kPlotHeight = 320;
constexpr double kWidth = kLeft + kPlotWidth + 30;
constexpr double kHeight = kTop + kPlotHeight + 90;

// One colour a tag, told apart in either theme and by people who do not see red from green.
constexpr std::array<const char*, memory::kNumTags> kColours = {"#3b78c3", "#e08e2b", "#55a868",
                                                                "#9467bd", "#8c8c8c", "#c44e52"};

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string head(const std::string& title) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" "
      "font-family=\"system-ui, sans-serif\" font-size=\"12\">\n"
      "<style>text{{fill:#222}}.axis{{stroke:#888}}.page{{fill:#fff}}"
      "@media (prefers-color-scheme: dark){{text{{fill:#ddd}}.page{{fill:#161616}}}}</style>\n"
      "<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n"
      "<text x=\"{2}\" y=\"24\" font-size=\"16\">{3}</text>\n",
      kWidth, kHeight, kLeft, escaped(title));
}

std::string legend() {
  std::string out;
  double x = kLeft;
  for (std::size_t i = 0; i < memory::kNumTags; ++i) {
    const std::string_view name = memory::name(static_cast<memory::Tag>(i));
    out += fmt::format(
        "<rect x=\"{}\" y=\"38\" width=\"11\" height=\"11\" fill=\"{}\"/>"
        "<text x=\"{}\" y=\"48\">{}</text>\n",
        x, kColours[i], x + 16, name);
    x += 34 + 7.2 * static_cast<double>(name.size());
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
  double y(std::uint64_t bytes) const { return kTop + kPlotHeight - height(bytes); }

 private:
  double most_;
};

std::string axis(const Scale& scale, std::uint64_t most) {
  std::string out;
  for (std::uint64_t quarter = 0; quarter <= 4; ++quarter) {
    const std::uint64_t bytes = most / 4 * quarter;
    out += fmt::format(
        "<line class=\"axis\" x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" "
        "stroke-width=\"0.5\"/><text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5}</text>\n",
        kLeft, kLeft + kPlotWidth, scale.y(bytes), kLeft - 6, scale.y(bytes) + 4,
        human_bytes(bytes));
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
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\">"
        "<title>{}: {} {} bytes</title></rect>\n",
        x, scale.y(below), width, scale.height(bytes), kColours[i], escaped(stage.name),
        memory::name(static_cast<memory::Tag>(i)), bytes);
  }
  return out;
}

std::string budget_line(double y, std::uint64_t budget_bytes, bool in_chart) {
  std::string line;
  if (in_chart) {
    line = fmt::format(
        "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"#d62728\" "
        "stroke-width=\"1.5\" stroke-dasharray=\"6 3\"/>",
        kLeft, kLeft + kPlotWidth, y);
  }
  return line + fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">budget {}{}</text>\n",
                            kLeft + kPlotWidth, y - 5, human_bytes(budget_bytes),
                            in_chart ? "" : ", above this chart");
}

}  // namespace

std::string stage_chart_svg(std::span<const memory::StageUse> stages, std::uint64_t budget_bytes,
                            const std::string& title) {
  std::uint64_t most = 0;
  for (const memory::StageUse& stage : stages) most = std::max(most, stage.peak_total_bytes);
  // A budget far above everything would press the bars flat: then it is only written.
  const bool in_chart = budget_bytes <= most + most / 2;
  if (in_chart) most = std::max(most, budget_bytes);
  const Scale scale(most);
  std::string out = head(title) + legend() + axis(scale, most);
  const double step = kPlotWidth / static_cast<double>(std::max<std::size_t>(stages.size(), 1));
  // Names are written where there is room for them: each at most once every 16 points.
  const auto every = static_cast<std::size_t>(16.0 / step) + 1;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const double x = kLeft + step * static_cast<double>(i);
    out += bar(stages[i], scale, x + step * 0.1, step * 0.8);
    if (i % every != 0) continue;
    out += fmt::format("<text transform=\"translate({:.1f} {}) rotate(50)\">{}</text>\n",
                       x + step * 0.3, kTop + kPlotHeight + 14, escaped(stages[i].name));
  }
  return out + budget_line(in_chart ? scale.y(budget_bytes) : kTop - 10, budget_bytes, in_chart) +
         "</svg>\n";
}

}  // namespace lode::cli
