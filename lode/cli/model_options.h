#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>

#include "lode/base/result.h"
#include "lode/engine/run_plan.h"

namespace lode::cli {

/// The options that every command which plans or runs a model shares, as they were typed.
struct ModelOptions {
  std::string folder;
  std::optional<std::string> memory;
  std::string context;  // a number, "auto", or empty
  std::uint32_t threads = 0;
  std::uint32_t chunk_tokens = 256;
  std::uint32_t load_workers = 2;
  std::string compute = "fast";
  std::string kv_dtype;
  std::string dense;              // empty: as-stored, or as the checkpoint was prepared
  std::string start;              // of a prepared checkpoint; empty: map, or restore
  std::string verify = "header";  // of a prepared checkpoint
  bool start_is_named = false;    // one of the two
  std::string io = "auto";
  bool hard_limit = false;
  std::uint32_t ranks = 1;
  std::uint32_t redundant_experts = 0;
  std::string placement = "linear";
  std::string expert_map;  // a file, or empty
  std::uint32_t peer_timeout_seconds = 60;
  std::string balance = "off";  // or a policy
  std::string balance_step = "256MiB";
  std::int64_t balance_interval = 3000;
  double balance_half_life = 1000;
  double balance_threshold = 1;
  std::string balance_bandwidth = "1GB";
  bool balance_checksums = false;
  std::string balance_report;  // a file, or empty
  std::string receipt;         // a file, or empty
  std::string progress;        // "json", "text", "none"; empty: text on a terminal
};

/// Options that mean the same wherever they stand.
void add_io_option(CLI::App* command, std::string& io);
void add_load_threads_option(CLI::App* command, std::uint32_t& threads);
void add_receipt_option(CLI::App* command, std::string& file);
void add_progress_option(CLI::App* command, std::string& form);

/// The bytes that were typed behind a flag. Errors: kUsage naming the flag, for what is no size.
Result<std::uint64_t> bytes_of(std::string_view flag, const std::string& text);

/// What --memory names, if it was typed.
/// Errors: kUsage for what is no size.
Result<std::optional<std::uint64_t>> memory_of(const std::optional<std::string>& typed);

/// Adds DIR, --memory, --ctx, --threads, --compute, --kv-dtype, --dense, --chunk, --load-threads,
/// --io, --start and --verify to a command.
std::shared_ptr<ModelOptions> add_model_options(CLI::App* command);

/// Adds --receipt, --progress and --hard-limit, for commands that load.
void add_load_options(CLI::App* command, const std::shared_ptr<ModelOptions>& options);

/// Errors: kUsage for a --memory that is no size, and for --start and --verify where the folder is
/// not a prepared checkpoint.
Result<engine::Settings> settings_of(const ModelOptions& options);

}  // namespace lode::cli
