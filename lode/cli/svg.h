#pragma once

#include <string>
#include <string_view>

namespace lode::cli {

/// Text that stands between tags.
std::string svg_escaped(std::string_view text);

/// A line of text at a place: `attributes` as SVG has them, `text` escaped.
std::string svg_text(double x, double y, std::string_view attributes, std::string_view text);

/// How a picture of this size begins: title, `style`, a page behind it all and a headline at
/// (x, y).
struct SvgPage {
  double width = 0;
  double height = 0;
  double headline_x = 0;
  double headline_y = 0;
};
std::string svg_head(const SvgPage& page, const std::string& title, std::string_view style);

}  // namespace lode::cli
