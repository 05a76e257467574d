#include "lode/families/all.h"

#include <array>
#include <string>

namespace lode::families {
namespace {

std::string known_architectures() {
  std::string list;
  for (const Family* family : all_families()) {
    if (!list.empty()) list += ", ";
    list += family->architecture;
  }
  return list;
}

// The language model's own type counts first: wrappers have another one outside.
const Family* by_model_type(const checkpoint::HfConfig& config) {
  for (const std::string& type : {config.text_model_type(), config.model_type()}) {
    for (const Family* family : all_families()) {
      if (family->model_type == type) return family;
    }
  }
  return nullptr;
}

const Family* by_architecture(const checkpoint::HfConfig& config) {
  for (const Family* family : all_families()) {
    if (family->architecture == config.architecture()) return family;
  }
  return nullptr;
}

}  // namespace

std::span<const Family* const> all_families() noexcept {
  static const std::array kFamilies{&qwen3_moe(), &gpt_oss()};
  return kFamilies;
}

Result<const Family*> find_family(const checkpoint::HfConfig& config) {
  const Family* const typed = by_model_type(config);
  const Family* const built = by_architecture(config);
  if (typed != nullptr && built != nullptr && typed != built) {
    return Error{.code = Code::kInvalidSource,
                 .thing = "model_type",
                 .wanted = std::string(built->model_type) + ", as architectures says",
                 .found = std::string(typed->model_type),
                 .where = "config.json"};
  }
  if (typed != nullptr) return typed;
  if (built != nullptr) return built;
  return Error{
      .code = Code::kUnsupported,
      .thing = "architecture",
      .wanted = "one of " + known_architectures(),
      .found = "'" + config.architecture() + "' (model_type '" + config.model_type() + "')",
      .where = "config.json"};
}

}  // namespace lode::families
