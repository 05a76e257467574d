#include "tools/docs/markdown.h"

namespace lode::docs {

Markdown::Markdown(const std::vector<std::string>& header) {
  add(header);
  add(std::vector<std::string>(header.size(), "---"));
}

void Markdown::add(const std::vector<std::string>& cells) {
  text_ += '|';
  for (const std::string& cell : cells) {
    text_ += ' ';
    for (const char letter : cell)
      text_ += letter == '|' ? std::string("\\|") : std::string(1, letter);
    text_ += cell.empty() ? "|" : " |";
  }
  text_ += '\n';
}

std::string code(std::string_view text) {
  return text.empty() ? std::string() : "`" + std::string(text) + "`";
}

}  // namespace lode::docs
