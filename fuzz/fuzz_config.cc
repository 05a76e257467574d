// config.json, generation_config.json and the quantisation settings, all from one text; and the
// text as a name pattern.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "lode/base/check.h"
#include "lode/checkpoint/generation_config.h"
#include "lode/checkpoint/hf_config.h"
#include "lode/checkpoint/module_set.h"
#include "lode/checkpoint/quant_config.h"
#include "lode/checkpoint/rope_config.h"
#include "lode/json/json.h"

namespace {

using namespace lode::checkpoint;

void ask_modules(const QuantConfig& quant) {
  for (const std::string_view module :
       {"lm_head", "model.layers.1.mlp.experts.0.gate_proj", "", ".", "model.", "a..b"}) {
    (void)quant.is_excluded(module);
    (void)quant.rule_of(module);
  }
  LODE_CHECK(quant.block[0] > 0 && quant.block[1] > 0, "blocks have sides");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(data, data + size);
  ModuleSet set(Cover::kAnywhere);
  if (set.add("re:" + text)) (void)set.matches("model.layers.1.mlp.experts.0.gate_proj");
  if (set.add(text)) (void)set.matches("model.layers.1.mlp.experts.0.gate_proj");

  const auto value = lode::json::parse(text);
  if (!value) return 0;
  const auto again = lode::json::parse(lode::json::dump(*value));
  LODE_CHECK(again.has_value() && *again == *value, "what is dumped parses to the same");
  const auto config = HfConfig::parse(text);
  LODE_CHECK(config.has_value() == (value->as_object() != nullptr), "an object is a config");
  if (!config) return 0;
  (void)config->get_extent({"num_hidden_layers", "a.b.c"});
  (void)config->get_ints({"eos_token_id"});
  (void)config->get_strings({"layer_types"});
  (void)config->architecture();
  (void)config->text_model_type();
  (void)read_rope(*config);
  (void)read_rope(*config, "full_attention");
  (void)config->unread_keys();
  const auto generation = parse_generation_config(text);
  if (generation) (void)stop_ids(*generation, *config, 3);
  const auto* in_config = config->find({"quantization_config", "compression_config"});
  if (const auto quant = parse_quant_config(in_config, nullptr)) ask_modules(*quant);
  if (const auto quant = parse_quant_config(&*value, nullptr)) ask_modules(*quant);
  if (const auto quant = parse_quant_config(nullptr, &*value)) ask_modules(*quant);
  return 0;
}
