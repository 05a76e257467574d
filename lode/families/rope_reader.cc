#include <cmath>
#include <initializer_list>
#include <optional>
#include <string>

#include "lode/checkpoint/rope_config.h"
#include "lode/families/spec_reader.h"

namespace lode::families {
namespace {

using checkpoint::RopeConfig;

Error bad_rope(std::string_view key, std::string_view wanted, std::string found) {
  return Error{.code = Code::kInvalidSource,
               .thing = "rope_parameters." + std::string(key),
               .wanted = std::string(wanted),
               .found = std::move(found),
               .where = "config.json (or the older rope_scaling)"};
}

struct Named {
  std::string_view key;
  double value;
};

Status check_positive(std::initializer_list<Named> numbers) {
  for (const Named& number : numbers) {
    if (!std::isfinite(number.value) || number.value <= 0.0) {
      return bad_rope(number.key, "a finite number above 0", std::to_string(number.value));
    }
  }
  return {};
}

Result<RopeKind> kind_of(const std::string& type) {
  if (type == "default") return RopeKind::kDefault;
  if (type == "linear") return RopeKind::kLinear;
  if (type == "yarn") return RopeKind::kYarn;
  if (type == "llama3") return RopeKind::kLlama3;
  return Error{.code = Code::kUnsupported,
               .thing = "rope_parameters.rope_type",
               .wanted = "default, linear, yarn or llama3",
               .found = type,
               .where = "config.json (or the older rope_scaling)"};
}

// 0 where absent; a value that is there must be a positive number.
Status take(const std::optional<double>& from, std::string_view key, double& into) {
  if (!from) return {};
  LODE_TRY_STATUS(check_positive({{key, *from}}));
  into = *from;
  return {};
}

Status read_factor(const RopeConfig& config, const ModelSpec& spec, RopeSpec& rope) {
  // transformers modeling_rope_utils: the original length is the model's own unless stated
  rope.original_max_positions = config.original_max_positions.value_or(spec.max_positions);
  if (config.factor) {
    rope.factor = *config.factor;
  } else if (rope.kind == RopeKind::kYarn) {
    rope.factor = spec.max_positions / rope.original_max_positions;
  } else {
    return bad_rope("factor", "a number", "nothing");
  }
  return check_positive(
      {{"factor", rope.factor}, {"original_max_position_embeddings", rope.original_max_positions}});
}

Status read_yarn(const RopeConfig& config, RopeSpec& rope) {
  rope.truncate = config.truncate;
  LODE_TRY_STATUS(take(config.beta_fast, "beta_fast", rope.beta_fast));
  LODE_TRY_STATUS(take(config.beta_slow, "beta_slow", rope.beta_slow));
  LODE_TRY_STATUS(take(config.attention_factor, "attention_factor", rope.attention_factor));
  // transformers asks for truth, so that 0 counts as absent
  if (config.mscale.value_or(0.0) != 0.0) {
    LODE_TRY_STATUS(take(config.mscale, "mscale", rope.mscale));
  }
  if (config.mscale_all_dim.value_or(0.0) != 0.0) {
    LODE_TRY_STATUS(take(config.mscale_all_dim, "mscale_all_dim", rope.mscale_all_dim));
  }
  return {};
}

Status read_llama3(const RopeConfig& config, RopeSpec& rope) {
  if (!config.low_freq_factor || !config.high_freq_factor) {
    return bad_rope("low_freq_factor and high_freq_factor", "stated", "absent");
  }
  LODE_TRY_STATUS(take(config.low_freq_factor, "low_freq_factor", rope.low_freq_factor));
  LODE_TRY_STATUS(take(config.high_freq_factor, "high_freq_factor", rope.high_freq_factor));
  if (rope.high_freq_factor < rope.low_freq_factor) {
    return bad_rope("high_freq_factor", "not below low_freq_factor",
                    std::to_string(rope.high_freq_factor));
  }
  return {};
}

Result<RopeSpec> rope_of(const RopeConfig& config, const ModelSpec& spec, double default_theta) {
  RopeSpec rope;
  LODE_TRY(rope.kind, kind_of(config.type));
  rope.theta = config.theta.value_or(default_theta);
  const double part = config.partial_rotary_factor.value_or(1.0);
  LODE_TRY_STATUS(check_positive({{"rope_theta", rope.theta}, {"partial_rotary_factor", part}}));
  if (rope.theta <= 1.0) return bad_rope("rope_theta", "above 1", std::to_string(rope.theta));
  if (part > 1.0) return bad_rope("partial_rotary_factor", "at most 1", std::to_string(part));
  rope.rotary_dim = static_cast<std::uint32_t>(spec.head_dim * part);
  if (rope.rotary_dim == 0 || rope.rotary_dim % 2 != 0) {
    return bad_rope("partial_rotary_factor", "an even number of features of head_dim",
                    std::to_string(rope.rotary_dim));
  }
  if (rope.kind != RopeKind::kDefault) {
    LODE_TRY_STATUS(read_factor(config, spec, rope));
  }
  if (rope.kind == RopeKind::kYarn) {
    LODE_TRY_STATUS(read_yarn(config, rope));
  }
  if (rope.kind == RopeKind::kLlama3) {
    LODE_TRY_STATUS(read_llama3(config, rope));
  }
  return rope;
}

}  // namespace

Result<RopeSpec> read_rope(const checkpoint::HfConfig& config, const ModelSpec& spec,
                           double default_theta, std::vector<std::string_view> layer_types) {
  if (layer_types.empty()) layer_types.emplace_back();
  std::optional<RopeSpec> first;
  for (const std::string_view layer_type : layer_types) {
    LODE_TRY(const RopeConfig stated, checkpoint::read_rope(config, layer_type));
    LODE_TRY(const RopeSpec rope, rope_of(stated, spec, default_theta));
    if (first && !(*first == rope)) {
      return Error{.code = Code::kUnsupported,
                   .thing = "rope_parameters",
                   .wanted = "the same for all layers of this family",
                   .found = "other numbers for " + std::string(layer_type),
                   .where = "config.json"};
    }
    first = rope;
  }
  return *first;
}

}  // namespace lode::families
