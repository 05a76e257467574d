#include "lode/checkpoint/rope_config.h"

#include <array>

#include "lode/base/fmt.h"

namespace lode::checkpoint {
namespace {

// Where the settings lie: one object in either form, and the older keys beside it.
std::string prefix_of(const HfConfig& config, std::string_view layer_type) {
  if (!layer_type.empty()) {
    std::string nested = fmt::format("rope_parameters.{}", layer_type);
    const json::Value* const value = config.find({nested});
    if (value != nullptr && value->as_object() != nullptr) return nested;
  }
  return config.has({"rope_parameters"}) ? "rope_parameters" : "rope_scaling";
}

// Settings of a kind that we do not read would be taken for none.
Status check_object(const HfConfig& config, const std::string& prefix) {
  const json::Value* const value = config.find({prefix});
  if (value == nullptr || value->as_object() != nullptr) return {};
  return Error{.code = Code::kInvalidSource,
               .thing = fmt::format("{} in the config", prefix),
               .wanted = "an object",
               .found = std::string(value->kind())};
}

Status read_float(const HfConfig& config, Keys keys, std::optional<double>& out) {
  if (!config.has(keys)) return {};
  LODE_TRY(out, config.get_float(keys));
  return {};
}

struct NumberField {
  std::string_view key;
  std::optional<double> RopeConfig::*field;
};

constexpr std::array kNumbers = {
    NumberField{"factor", &RopeConfig::factor},
    NumberField{"attention_factor", &RopeConfig::attention_factor},
    NumberField{"beta_fast", &RopeConfig::beta_fast},
    NumberField{"beta_slow", &RopeConfig::beta_slow},
    NumberField{"mscale", &RopeConfig::mscale},
    NumberField{"mscale_all_dim", &RopeConfig::mscale_all_dim},
    NumberField{"low_freq_factor", &RopeConfig::low_freq_factor},
    NumberField{"high_freq_factor", &RopeConfig::high_freq_factor},
    NumberField{"alpha", &RopeConfig::alpha},
};

}  // namespace

Result<RopeConfig> read_rope(const HfConfig& config, std::string_view layer_type) {
  RopeConfig rope;
  const std::string prefix = prefix_of(config, layer_type);
  const auto in = [&](std::string_view key) { return fmt::format("{}.{}", prefix, key); };
  LODE_TRY_STATUS(check_object(config, prefix));
  LODE_TRY(rope.type, config.get_string({in("rope_type"), in("type")}, "default"));
  if (rope.type == "su") rope.type = "longrope";
  if (rope.type == "mrope") rope.type = "default";
  LODE_TRY_STATUS(read_float(config, {in("rope_theta"), "rope_theta"}, rope.theta));
  LODE_TRY_STATUS(read_float(config, {in("partial_rotary_factor"), "partial_rotary_factor"},
                             rope.partial_rotary_factor));
  LODE_TRY_STATUS(read_float(
      config, {in("original_max_position_embeddings"), "original_max_position_embeddings"},
      rope.original_max_positions));
  for (const NumberField& number : kNumbers) {
    LODE_TRY_STATUS(read_float(config, {in(number.key)}, rope.*number.field));
  }
  LODE_TRY(rope.truncate, config.get_bool({in("truncate")}, true));
  LODE_TRY(rope.short_factor, config.get_floats({in("short_factor")}));
  LODE_TRY(rope.long_factor, config.get_floats({in("long_factor")}));
  return rope;
}

}  // namespace lode::checkpoint
