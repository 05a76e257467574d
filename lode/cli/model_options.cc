#include "lode/cli/model_options.h"

#include "lode/base/bytes.h"

namespace lode::cli {

std::shared_ptr<ModelOptions> add_model_options(CLI::App* command) {
  auto options = std::make_shared<ModelOptions>();
  command->add_option("DIR", options->folder, "Hugging Face folder of the model")->required();
  command->add_option(
      "--memory", options->memory,
      "Budget for everything, such as 12GiB; default: what is available less a floor");
  command->add_option("--ctx", options->context_tokens,
                      "Tokens of context; default: the model's limit, at most 4096");
  command->add_option("-t,--threads", options->threads, "Compute threads; default: all processors")
      ->check(CLI::Range(1, 1024));
  command
      ->add_option("--compute", options->compute,
                   "exact: f32 throughout; fast: int8 activations against FP4 and int8 weights")
      ->check(CLI::IsMember({"exact", "fast"}))
      ->capture_default_str();
  command
      ->add_option("--kv-dtype", options->kv_dtype,
                   "Keys and values as f32 or f16; default: f16, f32 with --compute exact")
      ->check(CLI::IsMember({"f32", "f16"}));
  command
      ->add_option("--dense", options->dense,
                   "Matrices outside the experts: as-stored, or int8 made while loading")
      ->check(CLI::IsMember({"as-stored", "int8"}))
      ->capture_default_str();
  command->add_option("--chunk", options->chunk_tokens, "Tokens of one pass over a prompt")
      ->check(CLI::Range(1, 8192))
      ->capture_default_str();
  command->add_option("--load-threads", options->load_workers, "Threads that prepare weights")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  return options;
}

void add_load_options(CLI::App* command, const std::shared_ptr<ModelOptions>& options) {
  command->add_option("--receipt", options->receipt, "Write the receipt as JSON to this file");
  command
      ->add_option("--progress", options->progress,
                   "text or json on standard error; default: text on a terminal, else none")
      ->check(CLI::IsMember({"text", "json", "none"}));
}

Result<engine::Settings> settings_of(const ModelOptions& options) {
  engine::Settings settings;
  if (options.memory) {
    auto bytes = parse_bytes(*options.memory);
    if (!bytes) return at("--memory", std::move(bytes).error());
    settings.memory_bytes = *bytes;
  }
  settings.context_tokens = options.context_tokens;
  settings.threads = options.threads;
  settings.chunk_tokens = options.chunk_tokens;
  settings.mode = options.compute == "exact" ? ops::Mode::kExact : ops::Mode::kFast;
  if (!options.kv_dtype.empty()) {
    settings.kv_format = options.kv_dtype == "f16" ? ops::KvFormat::kF16 : ops::KvFormat::kF32;
  }
  settings.load.workers = options.load_workers;
  if (options.dense == "int8") settings.load.dense = loader::DenseFormat::kInt8;
  return settings;
}

}  // namespace lode::cli
