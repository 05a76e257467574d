#pragma once

#include "lode/cli/program.h"

namespace lode::cli {

/// Adds `apply` below `lode balance`.
void add_balance_apply(Program& program, CLI::App* balance);

}  // namespace lode::cli
