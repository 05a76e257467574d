#include "lode/cli/balance_inputs.h"

#include <utility>

#include "lode/cli/text_file.h"
#include "lode/json/json.h"

namespace lode::cli {
namespace {

/// What `read` makes of a file's JSON.
template <class Read>
auto read_json_file(const std::string& path, std::size_t most_bytes, const Read& read)
    -> decltype(read(std::declval<const json::Value&>())) {
  LODE_TRY(const std::string text, read_text_file(path, most_bytes));
  auto value = json::parse(text);
  if (!value) return at(path, std::move(value).error());
  auto made = read(*value);
  if (!made) return at(path, std::move(made).error());
  return made;
}

}  // namespace

Result<engine::BalanceLoads> read_loads_file(const std::string& path, std::size_t most_bytes) {
  return read_json_file(path, most_bytes, engine::read_balance_loads);
}

Result<std::vector<placement::ExpertMap>> read_maps_file(const std::string& path,
                                                         std::size_t most_bytes) {
  return read_json_file(path, most_bytes, engine::read_balance_maps);
}

}  // namespace lode::cli
