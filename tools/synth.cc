// lode-synth: deterministic checkpoints of any storage out of one float model.

#include <CLI/CLI.hpp>
#include <filesystem>
#include <map>
#include <thread>

#include "lode/base/fmt.h"
#include "tools/synth/folder.h"
#include "tools/synth/write.h"

namespace lode::synth {
namespace {

constexpr const char* kAbout =
    R"(Writes a checkpoint folder as Hugging Face models have it: config.json, safetensors, index.

The weights are one float model: a number depends on --seed, the matrix's role, layer, expert,
row and column only. So every storage (--storage, --prefix, --shards, --split-gate-up,
--unaligned) of one shape and seed is the same model, and every --format is quantised from the
same BF16 numbers. With --from the float model is an existing BF16 checkpoint.

Examples:
  lode-synth --preset tiny --format nvfp4 --storage fused --out DIR
  lode-synth --preset qwen3-30b-a3b-layers --format mxfp4 --random-codes --out DIR
  lode-synth --from BF16-DIR --format nvfp4 --out DIR)";

struct Options {
  Recipe recipe;
  std::filesystem::path out;
  std::filesystem::path from;
  std::filesystem::path tokenizer;
  std::string preset = "tiny";
  std::string rule;
  std::string dense;
  ModelShape given;  // sizes that flags set; 0: not given
  unsigned threads = std::max(1U, std::thread::hardware_concurrency());
  bool force = false;
};

template <class Rows, class Value>
std::map<std::string, Value> choices(const Rows& rows, Value Rows::value_type::*member) {
  std::map<std::string, Value> map;
  for (const auto& row : rows) map.emplace(row.name, row.*member);
  return map;
}

/// "name: meaning", a line each.
template <class Rows>
std::string explained(std::string text, const Rows& rows) {
  for (const auto& row : rows) text += fmt::format("\n    {}: {}", row.name, row.meaning);
  return text;
}

void add_shape_flags(CLI::App& app, Options& options) {
  ModelShape& given = options.given;
  given = {"", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false};
  app.add_option("--preset", options.preset, explained("Shape to start from", presets()))
      ->capture_default_str();
  app.add_option("--family", given.family, "qwen3_moe, gpt_oss, mixtral or olmoe");
  app.add_option("--layers", given.layers, "Layers");
  app.add_option("--hidden", given.hidden, "Hidden width");
  app.add_option("--intermediate", given.intermediate, "Width of one expert");
  app.add_option("--experts", given.experts, "Routed experts of a layer");
  app.add_option("--top-k", given.top_k, "Experts a token goes to");
  app.add_option("--heads", given.heads, "Query heads");
  app.add_option("--kv-heads", given.kv_heads, "Key and value heads");
  app.add_option("--head-dim", given.head_dim, "Width of one head");
  app.add_option("--vocab", given.vocab, "Vocabulary");
  app.add_flag("--tied", given.tied, "No output head of its own");
}

void add_storage_flags(CLI::App& app, Options& options) {
  Recipe& recipe = options.recipe;
  const auto formats =
      choices(std::vector(format_rows().begin(), format_rows().end()), &FormatRow::format);
  const auto storages =
      choices(std::vector(storage_rows().begin(), storage_rows().end()), &StorageRow::storage);
  const std::map<std::string, ScaleOver> sharing{
      {"matrix", ScaleOver::kMatrix}, {"expert", ScaleOver::kExpert}, {"layer", ScaleOver::kLayer}};
  app.add_option("--format", recipe.format, explained("Numbers of the experts", format_rows()))
      ->transform(CLI::CheckedTransformer(formats).description(""));
  app.add_option("--rule", options.rule, "Quantiser instead of the format's own");
  app.add_option("--dense", options.dense, "fp8-block: attention and head quantised too")
      ->check(CLI::IsMember({"bf16", "fp8-block"}).description(""));
  app.add_option("--storage", recipe.storage, explained("How experts lie", storage_rows()))
      ->transform(CLI::CheckedTransformer(storages).description(""));
  app.add_option("--scale-over", recipe.scale_over,
                 "What shares NVFP4's scale of the matrix: matrix, expert or layer; by default "
                 "the least that the storage can say")
      ->transform(CLI::CheckedTransformer(sharing).description(""));
  app.add_option("--prefix", recipe.prefix,
                 "Before every name instead of \"model.\", such as model.language_model.");
  app.add_option("--shards", recipe.shards, "Files")->check(CLI::Range(1, 1000));
  app.add_flag("--split-gate-up", recipe.split_gate_up, "Gate and up in different files");
  app.add_flag("--unaligned", recipe.unaligned, "Data begins at an odd offset");
}

void add_flags(CLI::App& app, Options& options) {
  app.add_option("--out", options.out, "Folder to write")->required();
  app.add_option("--from", options.from, "BF16 folder to requantise; sizes are its own");
  app.add_option("--tokenizer", options.tokenizer, "tokenizer.json to copy beside the weights");
  app.add_option("--seed", options.recipe.seed, "Of the float model")->capture_default_str();
  app.add_option("--threads", options.threads, "Threads")->capture_default_str();
  app.add_flag(
      "--even-scales", options.recipe.even_scales,
      "With --random-codes: scales are powers of two, which every engine's rounding keeps");
  app.add_flag("--random-codes", options.recipe.random_codes,
               "Codes and scales straight from the hash: fast, finite, not the float model");
  app.add_flag("--sparse", options.recipe.sparse, "Headers only; the data are holes");
  app.add_flag("--force", options.force, "Into a folder that has weights already");
  add_shape_flags(app, options);
  add_storage_flags(app, options);
}

void take(std::uint64_t given, std::uint64_t& size) {
  if (given != 0) size = given;
}

Status apply_shape(Options& options) {
  const auto base = preset(options.preset);
  if (!base) {
    return Error{.code = Code::kUsage,
                 .thing = "--preset",
                 .found = options.preset,
                 .hint = "lode-synth --help lists them"};
  }
  ModelShape& shape = options.recipe.shape;
  const ModelShape& given = options.given;
  shape = *base;
  if (!given.family.empty()) shape.family = given.family;
  take(given.layers, shape.layers);
  take(given.hidden, shape.hidden);
  take(given.intermediate, shape.intermediate);
  take(given.experts, shape.experts);
  take(given.top_k, shape.top_k);
  take(given.heads, shape.heads);
  take(given.kv_heads, shape.kv_heads);
  take(given.head_dim, shape.head_dim);
  take(given.vocab, shape.vocab);
  shape.tied = shape.tied || given.tied;
  return {};
}

Status apply_names(Options& options) {
  options.recipe.dense_fp8 = options.dense == "fp8-block";
  if (options.rule.empty()) return {};
  options.recipe.rule = formats::rule_by_name(options.rule);
  if (options.recipe.rule) return {};
  std::string known;
  for (const formats::RuleInfo& row : formats::rule_table()) {
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  return Error{.code = Code::kUsage, .thing = "--rule", .wanted = known, .found = options.rule};
}

Status make_folder(const Options& options) {
  std::error_code error;
  std::filesystem::create_directories(options.out, error);
  if (error) {
    return Error{.code = Code::kIo, .thing = options.out.string(), .found = error.message()};
  }
  if (options.force) return {};
  for (const auto& entry : std::filesystem::directory_iterator(options.out, error)) {
    if (entry.path().extension() != ".safetensors") continue;
    return Error{.code = Code::kUsage,
                 .thing = options.out.string(),
                 .wanted = "a folder without weights",
                 .found = entry.path().filename().string(),
                 .hint = "--force writes all the same"};
  }
  return {};
}

Status copy_tokenizer(const Options& options) {
  if (options.tokenizer.empty()) return {};
  std::error_code error;
  std::filesystem::copy_file(options.tokenizer, options.out / "tokenizer.json",
                             std::filesystem::copy_options::overwrite_existing, error);
  if (!error) return {};
  return Error{.code = Code::kIo, .thing = options.tokenizer.string(), .found = error.message()};
}

Result<Written> run(Options& options) {
  LODE_TRY_STATUS(apply_names(options));
  LODE_TRY_STATUS(make_folder(options));
  LODE_TRY_STATUS(copy_tokenizer(options));
  if (options.from.empty()) {
    LODE_TRY_STATUS(apply_shape(options));
    const HashSource source(options.recipe.seed);
    return write_checkpoint(options.recipe, source, options.out, std::nullopt, options.threads);
  }
  LODE_TRY(const FolderSource source, FolderSource::open(options.from));
  options.recipe.shape = source.shape();
  LODE_TRY_STATUS(source.copy_companions(options.out));
  return write_checkpoint(options.recipe, source, options.out, source.config(), options.threads);
}

int main_of(int count, char** arguments) {
  CLI::App app(kAbout, "lode-synth");
  Options options;
  add_flags(app, options);
  CLI11_PARSE(app, count, arguments);
  const auto written = run(options);
  if (!written) {
    fmt::print(stderr, "lode-synth: {}\n", to_string(written.error()));
    return info(written.error().code).exit_status;
  }
  const double megabytes = static_cast<double>(written->tensor_bytes) / 1e6;
  fmt::print("{} tensors, {:.1f} MB in {:.2f} s: {}\n", written->tensors, megabytes,
             written->seconds, options.out.string());
  return 0;
}

}  // namespace
}  // namespace lode::synth

int main(int count, char** arguments) { return lode::synth::main_of(count, arguments); }
