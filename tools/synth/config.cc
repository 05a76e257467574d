#include "tools/synth/config.h"

#include "tools/synth/files.h"

namespace lode::synth {
namespace {

/// Modules that stay as they were, in the words of most dialects.
json::Array ignored_modules(const Recipe& recipe, const Resolved& resolved) {
  json::Array modules{prefixed(recipe, "model.embed_tokens")};
  if (!recipe.dense_fp8) modules.emplace_back("lm_head");
  for (std::uint64_t layer = 0; layer < recipe.shape.layers; ++layer) {
    bool attention = false;
    for (const TensorRow& row : resolved.family->tensors) {
      if (row.kind == Kind::kRouter) {
        modules.emplace_back(prefixed(recipe, module_of(filled(row.name, layer))));
      }
      attention = attention || row.kind == Kind::kDense;
    }
    if (attention && !recipe.dense_fp8) {
      modules.emplace_back(prefixed(recipe, filled("model.layers.{L}.self_attn*", layer)));
    }
  }
  return modules;
}

json::Value modelopt_mixed(const Recipe& recipe, const Resolved& resolved) {
  json::Object layers;
  const auto nvfp4 = json::object({{"quant_algo", "W4A16_NVFP4"}, {"group_size", 16}});
  const auto fp8 = json::object({{"quant_algo", "FP8_PB_WO"}});
  for (std::uint64_t layer = 0; layer < recipe.shape.layers; ++layer) {
    for (const TensorRow& row : resolved.family->tensors) {
      if (row.kind != Kind::kDense) continue;
      layers.emplace_back(prefixed(recipe, module_of(filled(row.name, layer))), fp8);
    }
    const std::string stack = filled(resolved.family->experts.down_stack, layer);
    layers.emplace_back(prefixed(recipe, stack.substr(0, stack.rfind('.'))), nvfp4);
  }
  if (!recipe.shape.tied) layers.emplace_back("lm_head", fp8);
  return json::object({{"quant_method", "modelopt"},
                       {"quant_algo", "MIXED_PRECISION"},
                       {"ignore", json::Array{}},
                       {"quantized_layers", std::move(layers)},
                       {"producer", json::object({{"name", "modelopt"}, {"version", "0.47.0"}})}});
}

json::Value modelopt(const Recipe& recipe, const Resolved& resolved) {
  if (recipe.dense_fp8) return modelopt_mixed(recipe, resolved);
  const bool fp8 = recipe.format == WeightFormat::kFp8Tensor;
  const auto weights =
      fp8 ? json::object({{"dynamic", false}, {"num_bits", 8}, {"type", "float"}})
          : json::object(
                {{"dynamic", false}, {"num_bits", 4}, {"type", "float"}, {"group_size", 16}});
  const auto group =
      json::object({{"weights", weights}, {"targets", json::Array{json::Value("Linear")}}});
  return json::object({{"quant_method", "modelopt"},
                       {"quant_algo", fp8 ? "FP8" : "W4A16_NVFP4"},
                       {"config_groups", json::object({{"group_0", group}})},
                       {"ignore", ignored_modules(recipe, resolved)},
                       {"producer", json::object({{"name", "modelopt"}, {"version", "0.47.0"}})}});
}

json::Value compressed_tensors(const Recipe& recipe) {
  const bool nvfp4 = recipe.format == WeightFormat::kNvfp4Ct;
  const char* format = nvfp4 ? "nvfp4-pack-quantized" : "mxfp4-pack-quantized";
  const auto weights = json::object({{"num_bits", 4},
                                     {"type", "float"},
                                     {"symmetric", true},
                                     {"dynamic", false},
                                     {"group_size", nvfp4 ? 16 : 32},
                                     {"strategy", nvfp4 ? "tensor_group" : "group"}});
  json::Array targets{json::Value("re:.*experts.*")};
  json::Object groups{
      {"group_0",
       json::object({{"format", format}, {"weights", weights}, {"targets", std::move(targets)}})}};
  json::Array ignore{json::Value("re:.*mlp.gate$"), json::Value("re:.*embed_tokens.*")};
  if (!recipe.dense_fp8) {
    ignore.emplace_back("re:.*self_attn.*");
    ignore.emplace_back("lm_head");
  } else {
    const auto fp8 = json::object({{"num_bits", 8},
                                   {"type", "float"},
                                   {"symmetric", true},
                                   {"dynamic", false},
                                   {"strategy", "block"},
                                   {"block_structure", json::Array{128, 128}}});
    json::Array dense{json::Value("re:.*self_attn.*"), json::Value("lm_head")};
    groups.emplace_back("group_1", json::object({{"format", "float-quantized"},
                                                 {"weights", fp8},
                                                 {"targets", std::move(dense)}}));
  }
  return json::object({{"quant_method", "compressed-tensors"},
                       {"format", recipe.dense_fp8 ? "mixed-precision" : format},
                       {"quantization_status", "compressed"},
                       {"config_groups", std::move(groups)},
                       {"ignore", std::move(ignore)}});
}

json::Value fp8(const Recipe& recipe, const Resolved& resolved) {
  json::Array ignored = ignored_modules(recipe, resolved);
  if (recipe.format == WeightFormat::kBf16) {
    for (std::uint64_t layer = 0; layer < recipe.shape.layers; ++layer) {
      const std::string stack = filled(resolved.family->experts.down_stack, layer);
      ignored.emplace_back(prefixed(recipe, stack.substr(0, stack.rfind('.'))));
    }
  }
  return json::object({{"quant_method", "fp8"},
                       {"fmt", "e4m3"},
                       {"activation_scheme", "dynamic"},
                       {"weight_block_size", json::Array{128, 128}},
                       {"modules_to_not_convert", std::move(ignored)}});
}

json::Value mxfp4(const Recipe& recipe) {
  json::Array kept{json::Value(prefixed(recipe, "model.layers.*.mlp.router")),
                   json::Value(prefixed(recipe, "model.embed_tokens"))};
  if (!recipe.dense_fp8) {
    kept.emplace_back(prefixed(recipe, "model.layers.*.self_attn"));
    kept.emplace_back("lm_head");
  }
  return json::object({{"quant_method", "mxfp4"}, {"modules_to_not_convert", std::move(kept)}});
}

json::Value index_of(const Recipe& recipe, const Plan& plan) {
  json::Object map;
  std::uint64_t total = 0;
  for (const PlannedTensor& tensor : plan.tensors) {
    map.emplace_back(tensor.name, shard_name(tensor.shard, recipe.shards));
    total += tensor.bytes;
  }
  return json::object(
      {{"metadata", json::object({{"total_size", total}})}, {"weight_map", std::move(map)}});
}

/// hf_quant_config.json says the same in ModelOpt's older words.
json::Value beside(const Recipe& recipe, const json::Value& config) {
  json::Object inner{{"quant_algo", *config.find("quant_algo")}, {"kv_cache_quant_algo", nullptr}};
  if (const json::Value* layers = config.find("quantized_layers")) {
    inner.emplace_back("quantized_layers", *layers);
  } else {
    if (recipe.format == WeightFormat::kNvfp4) inner.emplace_back("group_size", 16);
    inner.emplace_back("exclude_modules", *config.find("ignore"));
  }
  return json::object({{"producer", *config.find("producer")}, {"quantization", std::move(inner)}});
}

json::Object config_json(const Recipe& recipe, const Resolved& resolved) {
  json::Object config = config_of(*resolved.family, recipe.shape);
  if (recipe.prefix == "model.") return config;
  json::Object outer{{"architectures", json::Array{json::Value(resolved.family->architecture)}},
                     {"model_type", resolved.family->name},
                     {"tie_word_embeddings", recipe.shape.tied}};
  outer.emplace_back("text_config", std::move(config));
  return outer;
}

Status write_json(const std::filesystem::path& path, const json::Value& value) {
  return write_text(path, json::dump(value, 2) + "\n");
}

}  // namespace

std::optional<json::Value> quantization_config(const Recipe& recipe, const Resolved& resolved) {
  switch (recipe.format) {
    case WeightFormat::kBf16:
      if (!recipe.dense_fp8) return std::nullopt;
      return fp8(recipe, resolved);
    case WeightFormat::kFp8Block:
      return fp8(recipe, resolved);
    case WeightFormat::kNvfp4:
    case WeightFormat::kFp8Tensor:
      return modelopt(recipe, resolved);
    case WeightFormat::kMxfp4:
      return resolved.storage == Storage::kInterleaved ? mxfp4(recipe) : compressed_tensors(recipe);
    case WeightFormat::kNvfp4Ct:
      return compressed_tensors(recipe);
  }
  return std::nullopt;
}

Status write_configs(const std::filesystem::path& folder, const Recipe& recipe,
                     const Resolved& resolved, const Plan& plan,
                     const std::optional<json::Object>& base) {
  json::Object config = base ? *base : config_json(recipe, resolved);
  if (const auto quantised = quantization_config(recipe, resolved)) {
    config.emplace_back("quantization_config", *quantised);
    if (recipe.format == WeightFormat::kNvfp4 || recipe.format == WeightFormat::kFp8Tensor) {
      LODE_TRY_STATUS(write_json(folder / "hf_quant_config.json", beside(recipe, *quantised)));
    }
  }
  LODE_TRY_STATUS(write_json(folder / "config.json", json::Value(std::move(config))));
  if (!base) {
    const auto generation =
        json::object({{"eos_token_id", recipe.shape.vocab - 1}, {"do_sample", false}});
    LODE_TRY_STATUS(write_json(folder / "generation_config.json", generation));
  }
  if (recipe.shards == 1) return {};
  return write_json(folder / "model.safetensors.index.json", index_of(recipe, plan));
}

}  // namespace lode::synth
