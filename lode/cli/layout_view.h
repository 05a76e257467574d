#pragma once

#include <string>
#include <string_view>

#include "lode/engine/layout_apply.h"
#include "lode/engine/layout_check.h"

namespace lode::cli {

// What `lode layout` prints, each ending in a line end.

/// The functions of that name, or all where it is empty.
std::string functions_text(std::string_view name);
std::string functions_json(std::string_view name);

std::string applied_text(const engine::Applied& applied);
std::string applied_json(const engine::Applied& applied);

/// A line a case and one of sums.
std::string verdict_text(const engine::LayoutVerdict& verdict);
std::string verdict_json(const engine::LayoutVerdict& verdict);

}  // namespace lode::cli
