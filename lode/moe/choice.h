#pragma once

#include <cstdint>
#include <span>

#include "lode/families/router_spec.h"
#include "lode/moe/doubles.h"

namespace lode::moe {

/// What the choice is made on: logits, or scores plus bias where there is one, which f64 adds
/// exactly; minus infinity where an expert may not be chosen, for its logit or bias is not finite.
///
/// Shapes: all [num_choices]; bias may be empty.
void set_choices(std::span<const float> logits, Doubles scores, std::span<const float> bias,
                 Doubles choices) noexcept;

/// Puts the experts outside the best top_k_groups groups out of the question.
///
/// Shapes: choices [num_experts]; groups [2 * num_groups] of scratch.
void exclude_groups(const families::RouterSpec& spec, bool biased, Doubles choices,
                    Doubles groups) noexcept;

/// Index of the largest value above minus infinity, the lower one of equals; values.size() if there
/// is none.
std::size_t best_of(Doubles values) noexcept;

/// Takes the best of `choices` for each column, striking them out. Gives how many there were.
std::size_t choose_best(Doubles choices, std::span<std::int32_t> ids) noexcept;

/// Columns from `chosen` on become the lowest ids that no column holds.
void fill_up(std::size_t chosen, std::span<std::int32_t> ids) noexcept;

}  // namespace lode::moe
