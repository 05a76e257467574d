#include <algorithm>

#include "lode/base/fmt.h"
#include "lode/cli/program.h"
#include "tools/docs/markdown.h"
#include "tools/docs/tables.h"

namespace lode::docs {
namespace {

// What a command is for, without what its --help goes on to say.
std::string first_words(const std::string& about) {
  return about.substr(0, std::min(about.find(". "), about.find(": ")));
}

// The commands in the order in which --help lists them.
std::vector<CLI::App*> commands_of(cli::Program& program) {
  cli::add_commands(program);
  return program.app.get_subcommands([](const CLI::App*) { return true; });
}

std::string without_ends(const std::string& text) {
  const std::size_t begin = text.find_first_not_of('\n');
  const std::size_t end = text.find_last_not_of(" \n");
  return begin == text.npos ? std::string() : text.substr(begin, end - begin + 1);
}

}  // namespace

std::string command_rows() {
  cli::Program program;
  Markdown table({"command", "job"});
  for (CLI::App* command : commands_of(program)) {
    table.add({code("lode " + command->get_name()), first_words(command->get_description())});
  }
  return table.text();
}

std::string command_help() {
  cli::Program program;
  std::string text;
  for (CLI::App* command : commands_of(program)) {
    text += fmt::format("{}## lode {}\n\n```\n{}\n```\n", text.empty() ? "" : "\n",
                        command->get_name(), without_ends(command->help("lode")));
    const std::string name = "lode " + command->get_name();
    for (CLI::App* below : command->get_subcommands([](const CLI::App*) { return true; })) {
      text += fmt::format("\n## {} {}\n\n```\n{}\n```\n", name, below->get_name(),
                          without_ends(below->help(name)));
    }
  }
  return text;
}

}  // namespace lode::docs
