#pragma once

#include <string>
#include <vector>

namespace lode::cli {

/// Lines of text in columns: every column as wide as its widest cell, two spaces between. The
/// columns named in `right` (by position) are flushed right.
class Table {
 public:
  explicit Table(std::vector<std::string> header, std::vector<std::size_t> right = {});
  void add(std::vector<std::string> row);
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
  std::vector<std::size_t> right_;
};

}  // namespace lode::cli
