#include "lode/cli/text_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>

#include "lode/base/fmt.h"
#include "lode/json/json.h"

namespace lode::cli {
namespace {

struct Close {
  void operator()(std::FILE* file) const noexcept {
    if (file != stdin && file != stdout) std::fclose(file);
  }
};
using File = std::unique_ptr<std::FILE, Close>;

Error file_error(const std::string& path, const char* wanted) {
  return Error{.code = errno == ENOSPC ? Code::kNoSpace : Code::kIo,
               .thing = path,
               .wanted = wanted,
               .found = errno != 0 ? std::strerror(errno) : "an error while writing"};
}

}  // namespace

Result<std::string> read_text_file(const std::string& path, std::size_t max_bytes) {
  const bool standard = path.empty() || path == "-";
  const File file(standard ? stdin : std::fopen(path.c_str(), "rb"));
  if (file == nullptr) return file_error(path, "a file to read");
  std::string text;
  char piece[65536];
  while (const std::size_t count = std::fread(piece, 1, sizeof piece, file.get())) {
    if (count > max_bytes - text.size()) {
      return Error{.code = Code::kUsage,
                   .thing = standard ? "standard input" : path,
                   .wanted = fmt::format("at most {} bytes", max_bytes),
                   .found = "more"};
    }
    text.append(piece, count);
  }
  if (std::ferror(file.get()) != 0) return file_error(standard ? "standard input" : path, "text");
  return text;
}

Status check_writable(const std::string& path) {
  std::error_code unknown;
  const bool was_there = std::filesystem::exists(path, unknown) || unknown;
  const File file(std::fopen(path.c_str(), "ab"));
  if (file == nullptr) return file_error(path, "a file to write");
  if (!was_there) std::filesystem::remove(path, unknown);
  return {};
}

Status write_text_file(const std::string& path, std::string_view text) {
  File file(std::fopen(path.c_str(), "wb"));
  if (file == nullptr) return file_error(path, "a file to write");
  const bool written = std::fwrite(text.data(), 1, text.size(), file.get()) == text.size();
  if (std::fclose(file.release()) != 0 || !written) return file_error(path, "room to write");
  return {};
}

Status write_standard_output(std::string_view text) {
  errno = 0;
  const bool failed_before = std::ferror(stdout) != 0;
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (std::fflush(stdout) == 0 && written && !failed_before) return {};
  return file_error("standard output", "all of the answer written");
}

void write_standard_error(std::string_view text) noexcept {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

Result<std::vector<std::int32_t>> parse_ids(std::string_view json_text) {
  LODE_TRY(const json::Value value, json::parse(json_text));
  const json::Value* const list = value.as_object() != nullptr ? value.find("ids") : &value;
  if (list == nullptr || list->as_array() == nullptr) {
    return Error{.code = Code::kInvalidSource,
                 .thing = "token ids",
                 .wanted = "a JSON list of ids, or an object with such a list under \"ids\"",
                 .found = std::string(value.kind())};
  }
  std::vector<std::int32_t> ids;
  for (const json::Value& item : *list->as_array()) {
    const std::int64_t* const id = item.as_int();
    if (id == nullptr || *id < 0 || *id > std::numeric_limits<std::int32_t>::max()) {
      return Error{.code = Code::kUsage,
                   .thing = fmt::format("token id at place {}", ids.size()),
                   .wanted = "a whole number from 0",
                   .found = json::dump(item)};
    }
    ids.push_back(static_cast<std::int32_t>(*id));
  }
  return ids;
}

}  // namespace lode::cli
