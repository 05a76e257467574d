#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>

#include "lode/base/result.h"
#include "lode/cli/model_options.h"
#include "lode/comm/group.h"
#include "lode/engine/ranks.h"
#include "lode/parallel/function_ref.h"

namespace lode::cli {

/// Threads of this process as ranks, at most.
inline constexpr std::uint32_t kMostRanks = 64;

/// One of the ranks that run a command; by default the only one.
struct RankContext {
  comm::Group* group = nullptr;  // of more ranks than one
  bool one_process = true;

  std::uint32_t rank() const {
    return group == nullptr ? 0 : static_cast<std::uint32_t>(group->rank());
  }
  bool speaks() const { return rank() == 0; }
  /// Index of this rank in its process.
  std::uint32_t rank_here() const { return one_process ? rank() : 0; }
};

/// Adds --ranks, --peer-timeout and those of add_placement_options.
void add_rank_options(CLI::App* command, const std::shared_ptr<ModelOptions>& options);

/// Adds --redundant-experts, --placement and --expert-map.
void add_placement_options(CLI::App* command, const std::shared_ptr<ModelOptions>& options);

/// Adds --balance and --balance-step: what a plan depends on.
void add_planned_balancing_options(CLI::App* command, const std::shared_ptr<ModelOptions>& options);

/// Adds these and the other --balance-..., for commands that run passes over ranks.
void add_balancing_options(CLI::App* command, const std::shared_ptr<ModelOptions>& options);

/// For the plan of one of so many ranks, all of them threads of one process.
/// Errors: kUsage for ranks that there cannot be; those of reading the maps.
Result<engine::RankSettings> planned_rank(const ModelOptions& options, std::uint32_t ranks,
                                          std::uint32_t rank);

/// The settings of one rank: those of the flags, and its place in the group.
/// Errors: those of settings_of, and of reading the maps.
Result<engine::Settings> rank_settings(const ModelOptions& options, const RankContext& context);

/// Runs a command once for each rank: as threads of this process where --ranks says so, as the
/// ranks of the job where mpirun started it, else once.
///
/// Errors: the body's, of the first rank that has one; kUsage where --ranks contradicts mpirun;
///         kUnsupported where mpirun started a build without MPI.
Status on_ranks(const ModelOptions& options,
                parallel::FunctionRef<Status(const RankContext&)> body);

/// Whether the error of this process has been said by another rank.
bool error_was_said() noexcept;

}  // namespace lode::cli
