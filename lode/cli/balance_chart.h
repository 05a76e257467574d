#pragma once

#include <string>

#include "lode/engine/balance_report.h"

namespace lode::cli {

/// A picture of the load of each rank in each layer, before and after, as a heat map: a cell has
/// the colour of the page where a rank does what the mean rank does, is orange above it and blue
/// below. SVG that needs nothing else and can be read on light and on dark pages.
std::string balance_chart_svg(const engine::RankRows& before, const engine::RankRows& after,
                              const std::string& title);

}  // namespace lode::cli
