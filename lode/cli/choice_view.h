#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lode/json/json.h"
#include "lode/loader/engine_plan.h"

// For whom experts were prepared, and which of them, as `lode inspect` shows it.

namespace lode::cli {

/// "0-7, 12".
std::string ranges_text(std::span<const std::uint32_t> numbers);

/// Lines of what is not the usual: rank, experts, online scheme, FlashInfer's version, FP8
/// activations.
std::string choice_text(const loader::EngineChoice& choice);

/// The same as members; null where it does not apply.
std::vector<json::Member> choice_members(const loader::EngineChoice& choice);

}  // namespace lode::cli
