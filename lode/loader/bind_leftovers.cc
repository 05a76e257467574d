#include "lode/loader/bind_leftovers.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace lode::loader {
namespace {

using checkpoint::TensorRecord;

struct Rule {
  std::string_view pattern;
  std::string_view reason;
};

// Tensors that a text model in weight-only arithmetic does not need. Not a guess: each is named in
// checkpoints_models.md 2.5, 2.6 or 2.8.
constexpr std::array kIgnored{
    Rule{"*.rotary_emb.inv_freq", "computed from the config"},
    Rule{"*.input_scale", "scale of activations, which stay unquantised"},
    Rule{"*_input_scale", "scale of activations, which stay unquantised"},
    Rule{"*.input_scales", "scale of activations, which stay unquantised"},
    Rule{"*.input_global_scale", "scale of activations, which stay unquantised"},
    Rule{"*_input_global_scale", "scale of activations, which stay unquantised"},
    Rule{"*.act_scale", "scale of activations, which stay unquantised"},
    Rule{"*.k_scale", "scale of a quantised KV cache"},
    Rule{"*.v_scale", "scale of a quantised KV cache"},
    Rule{"*.k_proj.k_bias", "offset of a quantised KV cache"},
    Rule{"*.v_proj.v_bias", "offset of a quantised KV cache"},
    Rule{"model.visual.*", "vision"},
    Rule{"visual.*", "vision"},
    Rule{"model.vision_tower.*", "vision"},
    Rule{"vision_tower.*", "vision"},
    Rule{"model.vision_model.*", "vision"},
    Rule{"vision_model.*", "vision"},
    Rule{"model.embed_vision.*", "vision"},
    Rule{"embed_vision.*", "vision"},
    Rule{"model.multi_modal_projector.*", "vision"},
    Rule{"multi_modal_projector.*", "vision"},
    Rule{"model.audio_tower.*", "audio"},
    Rule{"audio_tower.*", "audio"},
    Rule{"model.embed_audio.*", "audio"},
    Rule{"embed_audio.*", "audio"},
    Rule{"mtp.*", "multi-token prediction"},
    Rule{"model.mtp*", "multi-token prediction"},
};

// Tensors that change the result: without them the numbers would be wrong without a word.
constexpr std::array kRefused{
    Rule{"*pre_quant_scale", "AWQ's factors on activations"},
    Rule{"*weight_zero_point", "zero points"},
    Rule{"*weight_g_idx", "an order of groups"},
    Rule{"*lora_A*", "an adapter"},
    Rule{"*lora_B*", "an adapter"},
};

// Patterns begin or end with a `*`, or both.
bool fits(std::string_view pattern, std::string_view name) {
  const bool open_start = pattern.front() == '*';
  const bool open_end = pattern.back() == '*';
  if (open_start) pattern.remove_prefix(1);
  if (open_end) pattern.remove_suffix(1);
  if (open_start && open_end) return name.find(pattern) != std::string_view::npos;
  return open_start ? name.ends_with(pattern) : name.starts_with(pattern);
}

const Rule* match(std::span<const Rule> rules, std::string_view name) {
  for (const Rule& rule : rules) {
    if (fits(rule.pattern, name)) return &rule;
  }
  return nullptr;
}

// Layers numbered num_layers and above predict further tokens (families.md, deepseek_v3), and show
// it: they join the embedding of the next token to the hidden state. One that does not is a layer
// that the config has forgotten.
bool is_prediction_layer(const BindContext& context, std::string_view name) {
  const std::string start = context.prefix + "layers.";
  if (!name.starts_with(start)) return false;
  const std::string_view rest = name.substr(start.size());
  std::uint64_t layer = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), layer);
  const bool whole = error == std::errc() && end != rest.data() + rest.size() && *end == '.';
  if (!whole || layer < context.spec.num_layers) return false;
  const std::string module = start + std::to_string(layer) + ".";
  return context.index.find(module + "enorm.weight") != nullptr ||
         !context.index.with_prefix(module + "eh_proj.").empty();
}

Error unexpected(const BindContext& context, const TensorRecord& tensor) {
  const Rule* const refused = match(kRefused, tensor.name);
  if (refused != nullptr) {
    Error error = misfit(context.index, tensor, "weights without " + std::string(refused->reason));
    error.code = Code::kUnsupported;
    return error;
  }
  return misfit(context.index, tensor, "no tensor of this name",
                "a " + context.spec.family +
                    " model with this config has no place for it, and no rule ignores it");
}

std::string line(std::string_view pattern, std::uint64_t count, std::string_view reason) {
  return std::string(pattern) + ": " + std::to_string(count) +
         (count == 1 ? " tensor (" : " tensors (") + std::string(reason) + ")";
}

}  // namespace

Result<std::vector<std::string>> account_for_leftovers(const BindContext& context) {
  std::array<std::uint64_t, kIgnored.size()> counts{};
  std::uint64_t beyond = 0;
  const auto tensors = context.index.tensors();
  for (std::size_t position = 0; position < tensors.size(); ++position) {
    if (context.use.is_taken(position)) continue;
    const TensorRecord& tensor = tensors[position];
    const Rule* const rule = match(kIgnored, tensor.name);
    if (rule != nullptr) {
      ++counts[static_cast<std::size_t>(rule - kIgnored.data())];
    } else if (is_prediction_layer(context, tensor.name)) {
      ++beyond;
    } else {
      return unexpected(context, tensor);
    }
  }
  std::vector<std::string> lines;
  for (std::size_t row = 0; row < kIgnored.size(); ++row) {
    if (counts[row] == 0) continue;
    lines.push_back(line(kIgnored[row].pattern, counts[row], kIgnored[row].reason));
  }
  if (beyond != 0) {
    lines.push_back(line(
        context.prefix + "layers.{" + std::to_string(context.spec.num_layers) + " and above}.*",
        beyond, "multi-token prediction"));
  }
  return lines;
}

}  // namespace lode::loader
