#include <algorithm>
#include <cstdio>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/cli/bench_load.h"
#include "lode/cli/bench_prepare.h"
#include "lode/cli/loaded_model.h"
#include "lode/cli/program.h"
#include "lode/cli/table.h"
#include "lode/engine/speed.h"
#include "lode/json/json.h"

namespace lode::cli {
namespace {

constexpr std::uint64_t kBlockBytes = kGiB;
constexpr std::uint64_t kSmallBlockBytes = 16 * kMiB;  // less would be read out of the caches

struct BenchOptions {
  std::uint32_t prompt_tokens = 512;
  std::uint64_t distinct_ids = 0;
  std::uint32_t new_tokens = 64;
  std::uint32_t repeats = 5;
  bool json = false;
};

struct Measured {
  std::string tag;
  engine::Speed speed;
  std::uint64_t token_bytes = 0;  // of weights read a token; 0 where that is not what limits
};

// 0 where the budget has no room for a block that tells something.
Result<double> bandwidth_of(const LoadedModel& loaded) {
  const std::uint64_t left = loaded.ledger->limit_bytes() - loaded.ledger->held_bytes();
  const std::uint64_t page_tables = left / 256;
  const std::uint64_t bytes = std::min(kBlockBytes, left - page_tables);
  if (bytes < kSmallBlockBytes + kMiB) return 0.0;
  return engine::measure_read_bandwidth(loaded.engine->pool(), *loaded.ledger, bytes - kMiB);
}

json::Value as_json(const Measured& measured, std::uint32_t threads, double bandwidth) {
  const double speed = measured.speed.tokens_per_second();
  const bool known = measured.token_bytes > 0 && bandwidth > 0;
  const auto token_bytes = static_cast<double>(measured.token_bytes);
  return json::object(
      {{"tag", measured.tag},
       {"tok_s", speed},
       {"best_tok_s", measured.speed.best_tokens_per_second()},
       {"tokens", measured.speed.tokens},
       {"repeats", static_cast<std::uint64_t>(measured.speed.times_us.size())},
       {"threads", std::int64_t{threads}},
       {"read_bytes_per_token", known ? json::Value(measured.token_bytes) : json::Value()},
       {"read_bytes_per_second", bandwidth > 0 ? json::Value(bandwidth) : json::Value()},
       {"bandwidth_share", known ? json::Value(speed * token_bytes / bandwidth) : json::Value()}});
}

void print(const std::vector<Measured>& all, std::uint32_t threads, double bandwidth) {
  Table table({"test", "threads", "tokens/s", "best", "MiB/token", "share of read bandwidth"},
              {1, 2, 3, 4, 5});
  for (const Measured& measured : all) {
    const auto token_bytes = static_cast<double>(measured.token_bytes);
    const double speed = measured.speed.tokens_per_second();
    const bool known = measured.token_bytes > 0 && bandwidth > 0;
    table.add({measured.tag, fmt::format("{}", threads), fmt::format("{:.2f}", speed),
               fmt::format("{:.2f}", measured.speed.best_tokens_per_second()),
               known ? fmt::format("{:.1f}", token_bytes / static_cast<double>(kMiB)) : "",
               known ? fmt::format("{:.1f} %", 100 * speed * token_bytes / bandwidth) : ""});
  }
  fmt::print("{}", table.text());
  if (bandwidth > 0) fmt::print("read bandwidth {:.2f} GB/s\n", bandwidth / 1e9);
}

Result<std::vector<Measured>> measure(const LoadedModel& loaded, const BenchOptions& options) {
  engine::Engine& engine = *loaded.engine;
  const auto go_on = [] { return !interrupted(); };
  std::vector<Measured> all;
  if (options.prompt_tokens > 0) {
    LODE_TRY(engine::Speed speed,
             engine::measure_prompt(
                 engine, {options.prompt_tokens, options.repeats, options.distinct_ids}, go_on));
    all.push_back({fmt::format("pp{}", options.prompt_tokens), std::move(speed), 0});
  }
  if (options.new_tokens > 0) {
    LODE_TRY(engine::Speed speed,
             engine::measure_decode(
                 engine, {options.new_tokens, options.repeats, options.distinct_ids}, go_on));
    all.push_back({fmt::format("tg{}", options.new_tokens), std::move(speed),
                   engine::decode_read_bytes(loaded.plan.load, engine.source().spec)});
  }
  return all;
}

Status bench(const ModelOptions& model, const BenchOptions& options, const RankContext& context) {
  if (model.folder.empty()) {
    return Error{.code = Code::kUsage, .thing = "DIR", .wanted = "the folder of a model"};
  }
  LODE_TRY(engine::Settings settings, rank_settings(model, context));
  if (settings.context_tokens == 0) {
    settings.context_tokens = std::max({options.prompt_tokens, options.new_tokens, 1U});
  }
  LODE_TRY(const LoadedModel loaded, load_model(model, settings, context));
  LODE_TRY(const std::vector<Measured> all, measure(loaded, options));
  return end_run(model, loaded, [&]() -> Status {
    LODE_TRY(const double bandwidth, bandwidth_of(loaded));
    if (!options.json) {
      print(all, loaded.plan.threads, bandwidth);
      return {};
    }
    for (const Measured& measured : all) {
      fmt::print("{}\n", json::dump(as_json(measured, loaded.plan.threads, bandwidth)));
    }
    return {};
  });
}

}  // namespace

void add_bench(Program& program) {
  CLI::App* const command = add_command(
      program, "bench",
      "Tokens a second: of a prompt from an empty context (pp) and of a text one by one (tg), with "
      "pseudo-random ids, and what share of the machine's read bandwidth the weights take",
      "  lode bench DIR -p 512 -n 64 -t 2\n  lode bench DIR -p 0 -n 128 -r 10 --json\n"
      "  lode bench load DIR\n  lode bench prepare\n");
  const auto model = add_model_options(command);
  add_load_options(command, model);
  add_rank_options(command, model);
  add_balancing_options(command, model);
  const auto options = std::make_shared<BenchOptions>();
  command
      ->add_option("-p,--prompt-tokens", options->prompt_tokens, "Of the prompt; 0: no such test")
      ->capture_default_str();
  command->add_option("-n,--new-tokens", options->new_tokens, "One by one; 0: no such test")
      ->capture_default_str();
  command->add_option("-r,--repeats", options->repeats, "Times each test is done")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command
      ->add_option("--distinct-ids", options->distinct_ids,
                   "Draw from so many ids only: traffic that few experts serve; 0: from all")
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print a JSON line for each test");
  command->get_option("DIR")->required(false);  // those below it have their own
  add_bench_load(program, command);
  add_bench_prepare(program, command);
  command->callback([&program, command, model, options] {
    if (!command->get_subcommands().empty()) return;
    program.chosen = [model, options] {
      return on_ranks(*model,
                      [&](const RankContext& context) { return bench(*model, *options, context); });
    };
  });
}

}  // namespace lode::cli
