#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "lode/base/result.h"

namespace lode::cli {

/// The command line: every command adds itself and, when it is the one that was typed, leaves in
/// `chosen` what to do.
struct Program {
  CLI::App app;
  std::function<Status()> chosen;

  Program();
};

/// Adds a subcommand with the examples shown below its --help.
CLI::App* add_command(Program& program, const std::string& name, const std::string& description,
                      const std::string& examples);

/// The same below another command: `lode layout list`.
CLI::App* add_below(CLI::App* parent, const std::string& name, const std::string& description,
                    const std::string& examples);

/// The line on standard error that says why the program ends.
void say_error(const Error& error);

// One file a command.
void add_inspect(Program& program);
void add_plan(Program& program);
void add_prepare(Program& program);
void add_run(Program& program);
void add_tokenize(Program& program);
void add_logits(Program& program);
void add_perplexity(Program& program);
void add_bench(Program& program);
void add_verify(Program& program);
void add_layout(Program& program);
void add_balance(Program& program);
void add_version(Program& program);

/// All of them, in the order of --help.
void add_commands(Program& program);

/// Parses and runs. Errors go to stderr in one line; the exit status is that of the error's code.
int run_program(int argc, const char* const* argv);

}  // namespace lode::cli
