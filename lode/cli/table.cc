#include "lode/cli/table.h"

#include <algorithm>

#include "lode/base/check.h"
#include "lode/base/fmt.h"

namespace lode::cli {

Table::Table(std::vector<std::string> header, std::vector<std::size_t> right)
    : rows_{std::move(header)}, right_(std::move(right)) {}

void Table::add(std::vector<std::string> row) {
  LODE_CHECK(row.size() == rows_.front().size(), "a row has as many cells as the header");
  rows_.push_back(std::move(row));
}

std::string Table::text() const {
  std::vector<std::size_t> widths(rows_.front().size(), 0);
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const bool right = std::find(right_.begin(), right_.end(), i) != right_.end();
      line += i == 0 ? "" : "  ";
      line += right ? fmt::format("{:>{}}", row[i], widths[i])
                    : fmt::format("{:<{}}", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  return out;
}

}  // namespace lode::cli
