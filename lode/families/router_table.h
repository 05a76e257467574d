#pragma once

#include <span>
#include <string_view>

#include "lode/families/router_spec.h"

namespace lode::families {

/// Which settings of a family's router its config.json decides, beside the numbers of experts.
struct RouterFromConfig {
  bool selection_bias = false;
  bool renormalise = false;
  bool groups = false;
  bool scaling = false;
  bool norm = false;  // norm_power or norm_floor
};

/// How a family routes, as the value its released models have; extents of experts are 0, for every
/// checkpoint says its own. Gates are f32 products in Lode for all of them.
struct RouterRow {
  std::string_view family;  // model_type
  RouterSpec spec;
  RouterFromConfig from_config;
};

/// All of them. One rule where other engines have several: weights are scaled, not the sum of the
/// outputs; a sum that is not positive divides by 1 unless the row has a guard of its own.
/// Source: spec moe_runner_eplb 1.4, 1.6, 1.7; families 2 and 3.
std::span<const RouterRow> router_rows() noexcept;

/// The row of `family`, or null.
const RouterRow* find_router_row(std::string_view family) noexcept;

}  // namespace lode::families
