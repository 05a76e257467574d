// lode-docs: writes what the program says of itself into the documents, or checks that it stands
// there.

#include <CLI/CLI.hpp>

#include "lode/base/fmt.h"
#include "lode/cli/text_file.h"
#include "tools/docs/page.h"
#include "tools/docs/tables.h"

namespace lode::docs {
namespace {

constexpr const char* kAbout =
    R"(Fills the tables that stand in documents between the marks

  <!-- lode-docs: NAME -->
  <!-- lode-docs end -->

with what the program says. With --check nothing is written: a page that would change is a fault.

Examples:
  lode-docs README.md docs/*.md
  lode-docs --check README.md docs/*.md)";

struct Options {
  std::vector<std::string> pages;
  bool check = false;
};

Status treat(const std::string& path, bool check) {
  LODE_TRY(const std::string page, cli::read_text_file(path));
  auto wanted = filled(page);
  if (!wanted) return at(path, std::move(wanted).error());
  if (*wanted == page) return {};
  if (!check) return cli::write_text_file(path, *wanted);
  return Error{.code = Code::kCheckFailed,
               .thing = path,
               .wanted = "what the program says",
               .found = first_difference(page, *wanted),
               .hint = "build/dev/lode-docs README.md docs/*.md writes it"};
}

int main_of(int count, char** arguments) {
  CLI::App app(kAbout, "lode-docs");
  Options options;
  std::string names;
  for (const Print& print : prints()) names += fmt::format(" {}", print.name);
  app.add_option("PAGES", options.pages, "Markdown files")->required();
  app.add_flag("--check", options.check, "Only say what is not up to date");
  app.footer("Names:" + names);
  CLI11_PARSE(app, count, arguments);
  int status = 0;
  for (const std::string& page : options.pages) {
    const Status done = treat(page, options.check);
    if (done) continue;
    fmt::print(stderr, "lode-docs: {}\n", to_string(done.error()));
    status = info(done.error().code).exit_status;
  }
  return status;
}

}  // namespace
}  // namespace lode::docs

int main(int count, char** arguments) { return lode::docs::main_of(count, arguments); }
