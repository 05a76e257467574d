#include "lode/cli/bench_prepare.h"

#include <cstdio>
#include <memory>
#include <vector>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/cli/loaded_model.h"
#include "lode/cli/model_options.h"
#include "lode/cli/table.h"
#include "lode/cli/text_file.h"
#include "lode/engine/prepare_speed.h"
#include "lode/json/json.h"
#include "lode/memory/budget.h"

namespace lode::cli {
namespace {

struct PrepareSpeedOptions {
  engine::PrepareSpeedSettings measured;
  std::string target;
  std::optional<std::string> memory;
  bool json = false;
};

void print_json(const engine::PrepareSpeeds& speeds, std::size_t threads) {
  for (const engine::TransformSpeed& speed : speeds.transforms) {
    fmt::print(
        "{}\n",
        json::dump(json::object({{"transform", speed.name},
                                 {"bytes", speed.bytes},
                                 {"bytes_per_second", speed.bytes_per_second()},
                                 {"of_memcpy", speed.of_memcpy()},
                                 {"scratch_bytes", speed.scratch_bytes},
                                 {"threads", static_cast<std::uint64_t>(threads)},
                                 {"rounds", static_cast<std::uint64_t>(speed.times_us.size())}})));
  }
}

void print(const engine::PrepareSpeeds& speeds) {
  Table table({"transform", "MiB", "GB/s", "of memcpy", "scratch"}, {1, 2, 3, 4});
  for (const engine::TransformSpeed& speed : speeds.transforms) {
    table.add({speed.name,
               fmt::format("{:.0f}", static_cast<double>(speed.bytes) / static_cast<double>(kMiB)),
               fmt::format("{:.2f}", speed.bytes_per_second() / 1e9),
               fmt::format("{:.2f}", speed.of_memcpy()), human_bytes(speed.scratch_bytes)});
  }
  fmt::print("{}", table.text());
}

// What is not in the table, and why.
void say_left_away(const engine::PrepareSpeeds& speeds) {
  if (speeds.num_small > 0) {
    write_standard_error(fmt::format("left away: {} below {}, over before the clock sees\n",
                                     count_of(speeds.num_small, "tensor"),
                                     human_bytes(engine::kLeastMeasuredBytes)));
  }
  if (speeds.num_refused > 0) {
    write_standard_error(
        fmt::format("left away: {} of a target and an encoding; the kernels do not take such "
                    "sizes\n",
                    count_of(speeds.num_refused, "pair")));
  }
}

Status bench_prepare(PrepareSpeedOptions options) {
  if (!options.target.empty()) {
    options.measured.target = targets::target_by_name(options.target);
    if (!options.measured.target) {
      return Error{.code = Code::kUsage,
                   .thing = "--target " + options.target,
                   .wanted = "a target that docs/layouts.md lists"};
    }
  }
  LODE_TRY(const memory::MachineMemory machine, memory::read_machine_memory());
  LODE_TRY(const std::optional<std::uint64_t> memory, memory_of(options.memory));
  options.measured.limit_bytes = memory::decide_budget(machine, memory).limit_bytes;
  stop_on_interrupt();
  LODE_TRY(const engine::PrepareSpeeds speeds,
           engine::measure_prepare(options.measured, [] { return !interrupted(); }));
  options.json ? print_json(speeds, options.measured.num_threads) : print(speeds);
  say_left_away(speeds);
  return {};
}

}  // namespace

void add_bench_prepare(Program& program, CLI::App* bench) {
  CLI::App* const command = add_below(
      bench, "prepare",
      "GB a second of what makes weights ready for GPU engines, tensor by tensor, beside memcpy of "
      "as many bytes in the same round. Needs no model. bench/prepare_peer.py runs it in turns "
      "with "
      "the same steps by torch on the CPU, the engines' own way: time and peak bytes",
      "  lode bench prepare\n"
      "  lode bench prepare --target marlin --experts 32 --hidden 2880 --intermediate 2880 -t 2\n"
      "  bench/prepare_peer.py --lode lode   # torch beside it, where there is torch\n");
  const auto options = std::make_shared<PrepareSpeedOptions>();
  engine::PrepareSpeedSettings& measured = options->measured;
  command->add_option("--target", options->target, "Only this one; all, and in place, without it");
  command->add_option("--experts", measured.num_experts, "Of the layer")->capture_default_str();
  command->add_option("--hidden", measured.hidden, "Hidden size")->capture_default_str();
  command->add_option("--intermediate", measured.intermediate, "Of an expert")
      ->capture_default_str();
  command->add_option("-t,--threads", measured.num_threads, "Threads, of memcpy too")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("-r,--rounds", measured.rounds, "Times each is done, after one for nothing")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--memory", options->memory,
                      "For source, result, copy and what clears the caches");
  command->add_flag("--json", options->json, "Print a JSON line for each transform");
  command->callback(
      [&program, options] { program.chosen = [options] { return bench_prepare(*options); }; });
}

}  // namespace lode::cli
