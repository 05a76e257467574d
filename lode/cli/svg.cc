#include "lode/cli/svg.h"

#include "lode/base/fmt.h"

namespace lode::cli {
std::string svg_escaped(std::string_view text) {
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

std::string svg_text(double x, double y, std::string_view attributes, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, attributes,
                     svg_escaped(text));
}

std::string svg_head(const SvgPage& page, const std::string& title, std::string_view style) {
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
             "height=\"{1}\" font-family=\"system-ui, -apple-system, Segoe UI, sans-serif\" "
             "font-size=\"12\">\n<title>{2}</title>\n",
             page.width, page.height, svg_escaped(title)) +
         std::string(style) + "<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n" +
         svg_text(page.headline_x, page.headline_y, "font-size=\"18\" font-weight=\"600\"", title);
}

}  // namespace lode::cli
