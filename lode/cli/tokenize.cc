#include <cstdio>
#include <filesystem>
#include <memory>

#include "lode/base/fmt.h"
#include "lode/cli/program.h"
#include "lode/cli/text_file.h"
#include "lode/engine/source.h"
#include "lode/json/json.h"
#include "lode/text/tokenizer.h"

namespace lode::cli {
namespace {

struct TokenizeOptions {
  std::string folder;
  std::string file;  // empty: standard input
  bool decode = false;
  bool special = false;
  bool plain = false;
};

Status tokenize(const TokenizeOptions& options) {
  LODE_TRY(const text::Tokenizer tokenizer, engine::read_tokenizer(options.folder));
  LODE_TRY(const std::string input, read_text_file(options.file));
  if (options.decode) {
    LODE_TRY(const std::vector<std::int32_t> ids, parse_ids(input));
    fmt::print("{}", tokenizer.decode(ids, false));
    return {};
  }
  json::Array ids;
  for (const std::int32_t id : tokenizer.encode(
           input, {.add_special_tokens = options.special, .parse_special = !options.plain})) {
    ids.emplace_back(id);
  }
  fmt::print("{}\n", json::dump(json::Value(std::move(ids))));
  return {};
}

}  // namespace

void add_tokenize(Program& program) {
  CLI::App* const command = add_command(program, "tokenize", "Text to token ids as JSON, or back",
                                        "  echo -n 'Once upon a time' | lode tokenize DIR\n"
                                        "  lode tokenize DIR --file story.txt > ids.json\n"
                                        "  lode tokenize DIR --decode --file ids.json\n");
  const auto options = std::make_shared<TokenizeOptions>();
  command->add_option("DIR", options->folder, "Folder with tokenizer.json")->required();
  command->add_option("--file", options->file, "Read this file instead of standard input");
  command->add_flag("--decode", options->decode, "JSON ids to text");
  command->add_flag("--add-special", options->special,
                    "Add the tokens that the tokenizer puts around a text");
  command->add_flag("--plain", options->plain, "Take the text of special tokens as ordinary text");
  command->callback(
      [&program, options] { program.chosen = [options] { return tokenize(*options); }; });
}

}  // namespace lode::cli
