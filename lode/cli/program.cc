#include "lode/cli/program.h"

#include <cstdio>
#include <new>

#include "lode/base/fmt.h"

namespace lode::cli {
namespace {

std::string exit_codes_text() {
  std::string text = "Exit codes:\n    0  done\n";
  for (const CodeInfo& row : code_table()) {
    text += fmt::format("  {:>3}  {}\n", row.exit_status, row.meaning);
  }
  return text;
}

int report(const Error& error) {
  fmt::print(stderr, "lode: {}\n", to_string(error));
  return info(error.code).exit_status;
}

int parse(Program& program, int argc, const char* const* argv) {
  try {
    program.app.parse(argc, argv);
  } catch (const CLI::ParseError& fault) {
    const bool asked = fault.get_exit_code() == 0;  // --help and --version come this way too
    program.app.exit(fault);
    return asked ? 0 : info(Code::kUsage).exit_status;
  }
  return -1;
}

}  // namespace

Program::Program()
    : app("Lode loads, plans and runs quantised Mixture-of-Experts language models inside a number "
          "of "
          "bytes that you name.",
          "lode") {
  app.require_subcommand(1);
  app.footer(exit_codes_text());
  app.failure_message(CLI::FailureMessage::simple);
}

CLI::App* add_command(Program& program, const std::string& name, const std::string& description,
                      const std::string& examples) {
  CLI::App* const command = program.app.add_subcommand(name, description);
  command->footer("Examples:\n" + examples);
  return command;
}

void add_commands(Program& program) {
  add_inspect(program);
  add_plan(program);
  add_run(program);
  add_tokenize(program);
  add_logits(program);
  add_perplexity(program);
  add_version(program);
}

int run_program(int argc, const char* const* argv) {
  Program program;
  add_commands(program);
  const int parsed = parse(program, argc, argv);
  if (parsed >= 0) return parsed;
  try {
    const Status done = program.chosen();
    return done ? 0 : report(done.error());
  } catch (const std::bad_alloc&) {
    return report(Error{.code = Code::kOther,
                        .thing = "memory of the program itself",
                        .found = "the system refused an allocation"});
  }
}

}  // namespace lode::cli
