#pragma once

#include "lode/cli/program.h"

namespace lode::cli {

/// Adds `record` below `lode balance`.
void add_balance_record(Program& program, CLI::App* balance);

}  // namespace lode::cli
