#pragma once

#include <CLI/CLI.hpp>

#include "lode/cli/program.h"

namespace lode::cli {

/// Adds `load` below `bench`: how fast the weights come.
void add_bench_load(Program& program, CLI::App* bench);

}  // namespace lode::cli
