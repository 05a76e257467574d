#include "lode/cli/bench_load.h"

#include <algorithm>
#include <cstdio>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/cli/loaded_model.h"
#include "lode/cli/table.h"
#include "lode/engine/load_speed.h"
#include "lode/json/json.h"
#include "lode/memory/budget.h"

namespace lode::cli {
namespace {

struct LoadOptions {
  std::uint32_t rounds = 5;
  bool json = false;
};

// Kind, and what it is held against.
constexpr std::pair<std::string_view, std::string_view> kRatios[] = {
    {"cold", "raw"},  {"cold", "buffered"}, {"buffered", "raw"},
    {"warm", "ring"}, {"warm", "copy"},     {"warm", "fresh"}};

double median(std::vector<double> numbers) {
  if (numbers.empty()) return 0;
  std::ranges::sort(numbers);
  const std::size_t half = numbers.size() / 2;
  return numbers.size() % 2 == 1 ? numbers[half] : (numbers[half - 1] + numbers[half]) / 2;
}

template <class Number>
std::vector<double> each(const engine::PassKind& kind, const Number& number) {
  std::vector<double> numbers;
  for (const engine::Pass& pass : kind.rounds) numbers.push_back(number(pass));
  return numbers;
}

std::vector<double> speeds(const engine::PassKind& kind) {
  return each(kind, [](const engine::Pass& pass) { return pass.bytes_per_second(); });
}
std::vector<double> cpu(const engine::PassKind& kind) {
  return each(kind, [](const engine::Pass& pass) { return pass.cpu_seconds_per_gb(); });
}

json::Value as_json(const engine::PassKind& kind) {
  const std::vector<double> all = speeds(kind);
  return json::object({{"test", std::string(kind.name)},
                       {"bytes_per_second", median(all)},
                       {"best_bytes_per_second", *std::ranges::max_element(all)},
                       {"cpu_seconds_per_gb", median(cpu(kind))},
                       {"rounds", static_cast<std::uint64_t>(all.size())},
                       {"io", kind.how}});
}

void print_json(const engine::LoadSpeed& speed) {
  for (const engine::PassKind& kind : speed.kinds) {
    if (!kind.rounds.empty()) fmt::print("{}\n", json::dump(as_json(kind)));
  }
  for (const auto& [kind, over] : kRatios) {
    const std::vector<double> ratios = speed.ratios(kind, over);
    if (ratios.empty()) continue;
    const auto [least, most] = std::ranges::minmax(ratios);
    fmt::print("{}\n", json::dump(json::object({{"ratio", fmt::format("{}/{}", kind, over)},
                                                {"median", median(ratios)},
                                                {"least", least},
                                                {"most", most}})));
  }
}

void print(const engine::LoadSpeed& speed) {
  Table table({"test", "GB/s", "best", "CPU s/GB", "by"}, {1, 2, 3});
  for (const engine::PassKind& kind : speed.kinds) {
    if (kind.rounds.empty()) {
      table.add({std::string(kind.name), "", "", "", "not measured: memory has no room for it"});
      continue;
    }
    const std::vector<double> all = speeds(kind);
    table.add({std::string(kind.name), fmt::format("{:.2f}", median(all) / 1e9),
               fmt::format("{:.2f}", *std::ranges::max_element(all) / 1e9),
               fmt::format("{:.3f}", median(cpu(kind))), kind.how});
  }
  fmt::print("{}", table.text());
  for (const auto& [kind, over] : kRatios) {
    const std::vector<double> ratios = speed.ratios(kind, over);
    if (ratios.empty()) continue;
    const auto [least, most] = std::ranges::minmax(ratios);
    fmt::print("{} / {}: {:.2f} ({:.2f} to {:.2f})\n", kind, over, median(ratios), least, most);
  }
}

Status bench_load(const ModelOptions& model, const LoadOptions& options) {
  LODE_TRY(const engine::Settings settings, settings_of(model));
  LODE_TRY(const memory::MachineMemory machine, memory::read_machine_memory());
  LODE_TRY(const engine::Source source, engine::open_source(model.folder));
  const memory::Budget budget = memory::decide_budget(machine, settings.memory_bytes);
  const engine::LoadSpeedSettings measured{.policy = settings.load,
                                           .rounds = options.rounds,
                                           .limit_bytes = budget.limit_bytes,
                                           .available_bytes = machine.available_bytes};
  stop_on_interrupt();
  LODE_TRY(const engine::LoadSpeed speed,
           engine::measure_load(source, measured, [] { return !interrupted(); }));
  options.json ? print_json(speed) : print(speed);
  return {};
}

}  // namespace

void add_bench_load(Program& program, CLI::App* bench) {
  CLI::App* const command = add_below(
      bench, "load", "GB a second of a load, cold and warm, beside the disk's and memcpy's own",
      "  lode bench load DIR --rounds 5\n  lode bench load DIR --io threads --json\n");
  const auto model = add_model_options(command);
  const auto options = std::make_shared<LoadOptions>();
  command->add_option("-r,--rounds", options->rounds, "Times each test is done, in turns")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print a JSON line for each test and ratio");
  command->callback([&program, model, options] {
    program.chosen = [model, options] { return bench_load(*model, *options); };
  });
}

}  // namespace lode::cli
