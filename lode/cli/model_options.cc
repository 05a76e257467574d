#include "lode/cli/model_options.h"

#include <charconv>
#include <filesystem>
#include <system_error>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"

namespace lode::cli {
namespace {

Status take_context(const std::string& text, engine::Settings& settings) {
  if (text.empty()) return {};
  settings.context_auto = text == "auto";
  if (settings.context_auto) return {};
  const auto [end, fault] =
      std::from_chars(text.data(), text.data() + text.size(), settings.context_tokens);
  if (fault == std::errc{} && end == text.data() + text.size()) return {};
  return Error{.code = Code::kUsage,
               .thing = "--ctx",
               .wanted = "a number of tokens, or auto",
               .found = fmt::format("\"{}\"", text)};
}

// They would do nothing elsewhere, and whoever names them thinks that they do.
Status check_start_options(const ModelOptions& options) {
  std::error_code absent;
  if (!options.start_is_named || prepared::is_prepared(options.folder)) return {};
  if (!std::filesystem::is_directory(options.folder, absent)) return {};  // others say so
  return Error{.code = Code::kUsage,
               .thing = options.folder,
               .wanted = "a prepared checkpoint, for --start and --verify",
               .found = "one as it was published",
               .hint = "leave them out, or prepare it: lode prepare DIR OUT"};
}

void add_start_options(CLI::App* command, const std::shared_ptr<ModelOptions>& options) {
  command
      ->add_option(
          "--start", options->start,
          "A prepared checkpoint: map its files (the usual), or read them into memory past "
          "the page cache; one for a GPU engine is restored to Lode's own form, which is "
          "slow")
      ->check(CLI::IsMember({"map", "read", "restore"}))
      ->each([options](const std::string&) { options->start_is_named = true; });
  command
      ->add_option("--verify", options->verify,
                   "What of a prepared checkpoint is looked at first: nothing, the sums of its "
                   "head, of some chunks too, of all")
      ->check(CLI::IsMember({"none", "header", "sampled", "full"}))
      ->each([options](const std::string&) { options->start_is_named = true; })
      ->capture_default_str();
}

}  // namespace

void add_io_option(CLI::App* command, std::string& io) {
  command
      ->add_option(
          "--io", io,
          "How weights are read: uring and threads past the page cache (threads copies what "
          "is there already), buffered through it, dropped behind; auto looks at the "
          "files, chooses and says why")
      ->check(CLI::IsMember({"auto", "uring", "threads", "buffered"}))
      ->capture_default_str();
}

void add_load_threads_option(CLI::App* command, std::uint32_t& threads) {
  command->add_option("--load-threads", threads, "Threads that prepare weights")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
}

void add_receipt_option(CLI::App* command, std::string& file) {
  command->add_option("--receipt", file, "Write the receipt as JSON to this file");
}

void add_progress_option(CLI::App* command, std::string& form) {
  command
      ->add_option("--progress", form,
                   "text or json on standard error; default: text on a terminal, else none")
      ->check(CLI::IsMember({"text", "json", "none"}));
}

Result<std::uint64_t> bytes_of(std::string_view flag, const std::string& text) {
  auto bytes = parse_bytes(text);
  if (!bytes) return at(flag, std::move(bytes).error());
  return bytes;
}

Result<std::optional<std::uint64_t>> memory_of(const std::optional<std::string>& typed) {
  if (!typed) return std::optional<std::uint64_t>();
  LODE_TRY(const std::uint64_t bytes, bytes_of("--memory", *typed));
  return std::optional(bytes);
}

std::shared_ptr<ModelOptions> add_model_options(CLI::App* command) {
  auto options = std::make_shared<ModelOptions>();
  command
      ->add_option("DIR", options->folder,
                   "Hugging Face folder of the model, or one that `lode prepare` made")
      ->required();
  command->add_option(
      "--memory", options->memory,
      "Budget for everything, such as 12GiB; default: what is available less a floor");
  command->add_option("--ctx", options->context,
                      "Tokens of context, or auto: the most that fits; default: the model's limit, "
                      "at most 4096");
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
                   "Matrices outside the experts: as-stored (the default), or int8 made while "
                   "loading; a prepared checkpoint has what it was prepared with")
      ->check(CLI::IsMember({"as-stored", "int8"}));
  command->add_option("--chunk", options->chunk_tokens, "Tokens of one pass over a prompt")
      ->check(CLI::Range(1, 8192))
      ->capture_default_str();
  add_load_threads_option(command, options->load_workers);
  add_io_option(command, options->io);
  add_start_options(command, options);
  return options;
}

void add_load_options(CLI::App* command, const std::shared_ptr<ModelOptions>& options) {
  add_receipt_option(command, options->receipt);
  add_progress_option(command, options->progress);
  command->add_flag(
      "--hard-limit", options->hard_limit,
      "Let the kernel refuse memory beyond the plan, too (RLIMIT_DATA): a bug ends in "
      "an error");
}

Result<engine::Settings> settings_of(const ModelOptions& options) {
  engine::Settings settings;
  LODE_TRY(settings.memory_bytes, memory_of(options.memory));
  LODE_TRY_STATUS(check_start_options(options));
  LODE_TRY_STATUS(take_context(options.context, settings));
  settings.threads = options.threads;
  settings.chunk_tokens = options.chunk_tokens;
  settings.mode = options.compute == "exact" ? ops::Mode::kExact : ops::Mode::kFast;
  if (!options.kv_dtype.empty()) {
    settings.kv_format = options.kv_dtype == "f16" ? ops::KvFormat::kF16 : ops::KvFormat::kF32;
  }
  settings.load.workers = options.load_workers;
  LODE_TRY(settings.load.io, io::parse_io_kind(options.io));
  if (options.dense == "int8") settings.load.dense = loader::DenseFormat::kInt8;
  settings.dense_is_named = !options.dense.empty();
  settings.start_is_named = !options.start.empty();
  if (settings.start_is_named) {
    LODE_TRY(settings.start.start, prepared::parse_start(options.start));
  }
  LODE_TRY(settings.start.verification, prepared::parse_verification(options.verify));
  settings.start.threads = options.load_workers;
  return settings;
}

}  // namespace lode::cli
