#include "lode/cli/balance_chart.h"

#include <algorithm>
#include <string_view>

#include "lode/base/fmt.h"
#include "lode/cli/svg.h"

namespace lode::cli {
namespace {

constexpr double kLeft = 64;
constexpr double kTop = 112;
constexpr double kPanelWidth = 400;
constexpr double kGap = 72;
constexpr double kPlotHeight = 360;
constexpr double kBottom = kTop + kPlotHeight;
constexpr double kWidth = kLeft + 2 * kPanelWidth + kGap + 28;
constexpr double kHeight = kBottom + 56;
constexpr double kFull = 1.0;  // a rank is fully orange at twice the mean, fully blue at nothing
constexpr double kTextEvery = 18;

// A theme changes the page below the cells; they are one colour each, more or less see-through.
constexpr std::string_view kStyle =
    "<style>text{fill:#1f2328}.soft{fill:#59636e}.page{fill:#ffffff}.frame{fill:none;"
    "stroke:#8c959f}.hot{fill:#d9480f}.cold{fill:#2f6db5}"
    "@media (prefers-color-scheme: dark){text{fill:#e6edf3}.soft{fill:#9da7b3}"
    ".page{fill:#0d1117}.frame{stroke:#6e7681}.hot{fill:#ff8a3d}.cold{fill:#5b9be6}}</style>\n";

struct Panel {
  double left;
  std::size_t layers;
  std::size_t ranks;
  double width() const {
    return kPanelWidth / static_cast<double>(std::max<std::size_t>(layers, 1));
  }
  double height() const { return kPlotHeight / static_cast<double>(ranks); }
  double x(std::size_t layer) const { return left + width() * static_cast<double>(layer); }
  double y(std::size_t rank) const { return kTop + height() * static_cast<double>(rank); }
};

std::string cell(const Panel& panel, std::size_t layer, std::size_t rank, double of_mean) {
  const double off = std::min(std::abs(of_mean - 1), kFull);
  return fmt::format(
      "<rect class=\"{}\" opacity=\"{:.2f}\" x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" "
      "height=\"{:.2f}\"><title>layer {}, rank {}: {:.2f} of the mean</title></rect>\n",
      of_mean > 1 ? "hot" : "cold", off, panel.x(layer), panel.y(rank), panel.width(),
      panel.height(), layer, rank, of_mean);
}

std::string cells(const Panel& panel, const engine::RankRows& rows) {
  std::string out;
  for (std::size_t layer = 0; layer < rows.layers(); ++layer) {
    const auto of_layer = rows.layer(layer);
    const double mean = placement::balance_of_counts(of_layer, rows.ranks).mean;
    for (std::size_t rank = 0; rank < rows.ranks; ++rank)
      out += cell(panel, layer, rank, mean > 0 ? of_layer[rank] / mean : 1);
  }
  return out;
}

// Numbers beside the cells where there is room for them; the last has its own.
template <class Place>
std::string numbers(std::size_t count, double size, std::string_view attributes, Place&& place) {
  std::string out;
  const auto every = static_cast<std::size_t>(kTextEvery / size) + 1;
  for (std::size_t i = 0; i < count; ++i) {
    if (i + 1 != count && (i % every != 0 || i + every >= count + every / 2)) continue;
    const auto [x, y] = place(i);
    out += svg_text(x, y, attributes, fmt::format("{}", i));
  }
  return out;
}

std::string panel_svg(double left, std::string_view name, const engine::RankRows& rows) {
  const Panel panel{left, rows.layers(), rows.ranks};
  const double balancedness = rows.balance().balancedness();
  std::string out = svg_text(left, kTop - 14, "font-weight=\"600\"",
                             fmt::format("{}: balancedness {:.3f}", name, balancedness));
  out += cells(panel, rows);
  out += fmt::format(
      "<rect class=\"frame\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" stroke-width=\"1\"/>\n",
      left, kTop, kPanelWidth, kPlotHeight);
  constexpr std::string_view kSide = "class=\"soft\" font-size=\"11\" text-anchor=\"end\"";
  constexpr std::string_view kBelow = "class=\"soft\" font-size=\"11\" text-anchor=\"middle\"";
  out += numbers(rows.ranks, panel.height(), kSide, [&](std::size_t rank) {
    return std::pair(left - 6, panel.y(rank) + panel.height() / 2 + 4);
  });
  out += numbers(rows.layers(), panel.width(), kBelow, [&](std::size_t layer) {
    return std::pair(panel.x(layer) + panel.width() / 2, kBottom + 16);
  });
  out += svg_text(left + kPanelWidth / 2, kBottom + 36, "text-anchor=\"middle\"", "layer");
  return out + fmt::format(
                   "<text transform=\"translate({:.1f} {:.1f}) rotate(-90)\" "
                   "text-anchor=\"middle\">rank</text>\n",
                   left - 32, kTop + kPlotHeight / 2);
}

// What the colours mean, from idle to twice the mean.
std::string legend() {
  std::string out = svg_text(kLeft, 76, "class=\"soft\"", "load of a rank: none");
  double x = kLeft + 130;
  for (int step = -4; step <= 4; ++step, x += 22) {
    out += fmt::format(
        "<rect class=\"{}\" opacity=\"{:.2f}\" x=\"{:.1f}\" y=\"66\" width=\"22\" "
        "height=\"12\"/>\n",
        step > 0 ? "hot" : "cold", std::abs(step) / 4.0, x);
  }
  out += fmt::format("<rect class=\"frame\" x=\"{:.1f}\" y=\"66\" width=\"198\" height=\"12\"/>\n",
                     kLeft + 130);
  return out +
         svg_text(x + 8, 76, "class=\"soft\"", "twice the mean or more; the middle is the mean");
}

}  // namespace

std::string balance_chart_svg(const engine::RankRows& before, const engine::RankRows& after,
                              const std::string& title) {
  return svg_head({kWidth, kHeight, kLeft, 34}, title, kStyle) + legend() +
         panel_svg(kLeft, "before", before) +
         panel_svg(kLeft + kPanelWidth + kGap, "after", after) + "</svg>\n";
}

}  // namespace lode::cli
