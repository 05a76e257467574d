#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lode::docs {

/// A table in Markdown, cells as they are but for the bars in them.
class Markdown {
 public:
  explicit Markdown(const std::vector<std::string>& header);
  void add(const std::vector<std::string>& cells);
  const std::string& text() const noexcept { return text_; }

 private:
  std::string text_;
};

/// `text` between back quotes; nothing stays nothing.
std::string code(std::string_view text);

}  // namespace lode::docs
