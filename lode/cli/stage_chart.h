#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lode/memory/ledger.h"

namespace lode::cli {

/// A picture of bytes over the stages of a plan: one stacked bar a stage, a colour a tag, the
/// budget as a line. SVG that needs nothing else and can be read on light and on dark pages.
std::string stage_chart_svg(std::span<const memory::StageUse> stages, std::uint64_t budget_bytes,
                            const std::string& title);

}  // namespace lode::cli
