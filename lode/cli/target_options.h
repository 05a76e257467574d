#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "lode/base/result.h"
#include "lode/loader/engine_plan.h"

namespace lode::cli {

/// For whom experts are laid out, and which of them, as it was typed.
struct TargetOptions {
  std::string target = "cpu";
  std::string experts;
  std::uint32_t ranks = 1;
  std::uint32_t rank = 0;
  bool fp8_activations = false;
  std::string flashinfer = "0.7";
  std::string online;
  std::string scratch;

  bool is_cpu() const { return target == "cpu"; }
  /// Whether more is asked for than ranks, which runs have, too.
  bool is_preparation() const {
    return !is_cpu() || !experts.empty() || !online.empty() || !scratch.empty() || fp8_activations;
  }
  bool is_part() const { return !experts.empty() || ranks != 1 || rank != 0; }
};

/// Adds --target, --experts, --ranks, --rank, --fp8-activations, --flashinfer, --online and
/// --scratch.
void add_target_options(CLI::App* command, TargetOptions& options);

/// Errors: kUsage for numbers that are none, ranks that there are not, and a part of the experts
///         for target cpu, which has them all.
Result<loader::EngineChoice> choice_of(const TargetOptions& options, std::uint32_t num_experts);

/// How much of an expert is held at once, as --scratch says, or as usual.
/// Errors: kUsage for no size, for none and for more than 64 MiB.
Result<loader::ExpertScratch> scratch_of(const TargetOptions& options);

}  // namespace lode::cli
