#include "lode/cli/program.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <new>
#include <system_error>

#include "lode/base/fmt.h"
#include "lode/cli/fault_handler.h"
#include "lode/cli/rank_runs.h"
#include "lode/cli/text_file.h"
#include "lode/memory/hard_limit.h"

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
  say_error(error);
  return info(error.code).exit_status;
}

// A file that is opened must not become standard output because the caller had closed that. What is
// put there instead fails as a closed stream does.
void hold_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) != -1 || errno != EBADF) continue;
    // The lowest free number is this one: those below it are open by now.
    if (open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) return;
  }
}

Status run_chosen(const Program& program) {
  try {
    LODE_TRY_STATUS(program.chosen());
    // A full disk must not look like success.
    return write_standard_output("");
  } catch (const std::bad_alloc&) {
    return Error{.code = memory::code_of_refused_memory(Code::kOther),
                 .thing = "memory of the program itself",
                 .found = "the system refused an allocation"};
  } catch (const std::system_error& fault) {  // fmt throws it where a stream cannot be written
    return Error{.code = fault.code() == std::errc::no_space_on_device ? Code::kNoSpace : Code::kIo,
                 .thing = "output",
                 .wanted = "all of the answer written",
                 .found = fault.what()};
  }
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
  app.set_version_flag("--version", "lode " LODE_VERSION);
  app.footer(exit_codes_text());
  app.failure_message(CLI::FailureMessage::simple);
}

CLI::App* add_command(Program& program, const std::string& name, const std::string& description,
                      const std::string& examples) {
  return add_below(&program.app, name, description, examples);
}

CLI::App* add_below(CLI::App* parent, const std::string& name, const std::string& description,
                    const std::string& examples) {
  CLI::App* const command = parent->add_subcommand(name, description);
  command->footer("Examples:\n" + examples);
  return command;
}

void say_error(const Error& error) {
  write_standard_error(fmt::format("lode: {}\n", to_string(error)));
}

void add_commands(Program& program) {
  add_inspect(program);
  add_plan(program);
  add_prepare(program);
  add_run(program);
  add_tokenize(program);
  add_logits(program);
  add_perplexity(program);
  add_bench(program);
  add_verify(program);
  add_layout(program);
  add_balance(program);
  add_version(program);
}

int run_program(int argc, const char* const* argv) {
  hold_standard_streams();
  install_fault_handler();
  Program program;
  add_commands(program);
  const int parsed = parse(program, argc, argv);
  if (parsed >= 0) return parsed;
  const Status done = run_chosen(program);
  if (done) return 0;
  return error_was_said() ? info(done.error().code).exit_status : report(done.error());
}

}  // namespace lode::cli
