#include "lode/engine/stage_json.h"

#include <utility>

namespace lode::engine {

json::Value as_json(const memory::TagBytes& bytes) {
  json::Object members;
  for (std::size_t i = 0; i < memory::kNumTags; ++i) {
    members.emplace_back(std::string(memory::name(static_cast<memory::Tag>(i))), bytes[i]);
  }
  return json::Value(std::move(members));
}

json::Value as_json(std::span<const memory::StageUse> stages) {
  json::Array list;
  for (const memory::StageUse& stage : stages) {
    list.push_back(json::object({{"name", stage.name},
                                 {"held_bytes", as_json(stage.held_bytes)},
                                 {"peak_bytes", as_json(stage.peak_bytes)},
                                 {"peak_total_bytes", stage.peak_total_bytes}}));
  }
  return json::Value(std::move(list));
}

}  // namespace lode::engine
