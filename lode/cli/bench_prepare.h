#pragma once

#include <CLI/CLI.hpp>

#include "lode/cli/program.h"

namespace lode::cli {

/// Adds `prepare` below `bench`: how fast weights are made ready for GPU engines.
void add_bench_prepare(Program& program, CLI::App* bench);

}  // namespace lode::cli
