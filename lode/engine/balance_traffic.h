#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "lode/base/result.h"
#include "lode/engine/balance_files.h"

namespace lode::engine {

enum class TrafficKind : std::uint8_t { kZipf, kLogNormal, kShifting };

struct TrafficKindInfo {
  TrafficKind kind;
  std::string_view name;
  std::string_view meaning;
};
std::span<const TrafficKindInfo> traffic_kinds() noexcept;

/// Errors: kUsage for a name that the table lacks.
Result<TrafficKind> traffic_kind_by_name(std::string_view name);

/// Made-up traffic: how popular experts are, and how much of it there is.
struct TrafficSpec {
  TrafficKind kind = TrafficKind::kZipf;
  std::size_t layers = 16;
  std::size_t experts = 64;
  std::size_t steps = 200;
  double rows_per_step = 4096;  // of a layer: tokens x experts a token
  std::uint64_t seed = 1;
  double exponent = 1;            // of Zipf's law
  double sigma = 1;               // of the log-normal numbers
  std::size_t hot_experts = 4;    // of the shifting set
  double hot_share = 0.5;         // of all rows
  std::size_t shift_every = 100;  // steps
};

/// Rows of every expert step by step. Layers draw their popular experts apart; each step's count
/// scatters about its mean as counting does (a normal number of the same variance, not below 0).
/// The same seed gives the same traffic.
///
/// Errors: kUsage naming the setting that is none or too large: layers, experts or steps of more
/// than kMaxBalanceNumbers a step or 2^28 in all, hot experts that are not fewer than experts, a
/// share outside 0..1.
Result<BalanceLoads> make_traffic(const TrafficSpec& spec);

}  // namespace lode::engine
