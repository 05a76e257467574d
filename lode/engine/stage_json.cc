#include "lode/engine/stage_json.h"

#include <utility>

#include "lode/base/fmt.h"

namespace lode::engine {
namespace {

Error bad_stage(std::size_t idx, std::string_view member, std::string_view wanted,
                const json::Value* found) {
  return Error{.code = Code::kInvalidSource,
               .thing = fmt::format("receipt: stage {}: {}", idx, member),
               .wanted = std::string(wanted),
               .found = std::string(found == nullptr ? "nothing of that name" : found->kind())};
}

Result<std::uint64_t> bytes_of(const json::Value& object, std::size_t idx, std::string_view name) {
  const json::Value* const value = object.find(name);
  const std::int64_t* const bytes = value == nullptr ? nullptr : value->as_int();
  if (bytes == nullptr || *bytes < 0) return bad_stage(idx, name, "a number of bytes", value);
  return static_cast<std::uint64_t>(*bytes);
}

Result<memory::TagBytes> tags_of(const json::Value& stage, std::size_t idx,
                                 std::string_view member) {
  const json::Value* const object = stage.find(member);
  if (object == nullptr) return bad_stage(idx, member, "bytes by tag", object);
  memory::TagBytes bytes{};
  for (std::size_t i = 0; i < memory::kNumTags; ++i) {
    LODE_TRY(bytes[i], bytes_of(*object, idx, memory::name(static_cast<memory::Tag>(i))));
  }
  return bytes;
}

}  // namespace

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

Result<std::vector<memory::StageUse>> stages_of(const json::Value& list) {
  if (list.as_array() == nullptr) return bad_stage(0, "stages", "a list", &list);
  std::vector<memory::StageUse> stages;
  for (const json::Value& one : *list.as_array()) {
    const std::size_t idx = stages.size();
    const json::Value* const name = one.find("name");
    if (name == nullptr || name->as_string() == nullptr) {
      return bad_stage(idx, "name", "a text", name);
    }
    memory::StageUse stage;
    stage.name = *name->as_string();
    LODE_TRY(stage.held_bytes, tags_of(one, idx, "held_bytes"));
    LODE_TRY(stage.peak_bytes, tags_of(one, idx, "peak_bytes"));
    LODE_TRY(stage.peak_total_bytes, bytes_of(one, idx, "peak_total_bytes"));
    stages.push_back(std::move(stage));
  }
  return stages;
}

}  // namespace lode::engine
