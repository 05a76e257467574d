#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/cli/balance_apply.h"
#include "lode/cli/balance_chart.h"
#include "lode/cli/balance_inputs.h"
#include "lode/cli/balance_record.h"
#include "lode/cli/balance_view.h"
#include "lode/cli/model_options.h"
#include "lode/cli/program.h"
#include "lode/cli/text_file.h"
#include "lode/engine/balance_files.h"
#include "lode/engine/balance_report.h"
#include "lode/engine/balance_simulate.h"
#include "lode/engine/balance_traffic.h"
#include "lode/json/json.h"

namespace lode::cli {
namespace {

constexpr std::size_t kMaxFileBytes = 100'000'000;

// What planning and simulating have in common, as it was typed.
struct BalanceOptions {
  std::string loads;
  std::string current;
  std::string out;
  std::string svg;
  std::string policy = "best";
  std::size_t ranks = 0;
  std::size_t slots = 0;
  std::size_t redundant = 0;
  std::size_t nodes = 1;
  std::size_t groups = 1;
  std::string expert_bytes = "0";
  std::string bandwidth = "1GB";
  double row_us = 10;
  double expert_us = 0;
  double layer_us = 0;
  double steps = 1000;
  double threshold = 1;
  bool json = false;
};

struct SimulateOptions {
  BalanceOptions balance;
  engine::TrafficSpec spec;
  std::string traffic;
  std::size_t tokens = 512;
  std::size_t top_k = 8;
  std::int64_t interval = 50;
  double half_life = 25;
};

Result<engine::BalanceLoads> read_loads(const std::string& path) {
  return read_loads_file(path, kMaxFileBytes);
}

Result<std::vector<placement::ExpertMap>> read_maps(const std::string& path) {
  if (path.empty()) return std::vector<placement::ExpertMap>();
  return read_maps_file(path, kMaxFileBytes);
}

// Slots are named, or are the experts and the redundant ones.
Result<std::size_t> slots_of(const BalanceOptions& options, std::size_t experts) {
  if (options.slots > 0 && options.redundant > 0)
    return Error{.code = Code::kUsage,
                 .thing = "--slots and --redundant-experts",
                 .wanted = "one of them",
                 .found = "both"};
  if (options.slots > 0) return options.slots;
  const auto sum = checked_add(experts, options.redundant);
  if (sum) return static_cast<std::size_t>(*sum);
  return Error{.code = Code::kUsage,
               .thing = "--redundant-experts",
               .wanted = fmt::format("at most {}", placement::kMaxSlots),
               .found = fmt::format("{}", options.redundant)};
}

Result<engine::BalanceRequest> request_of(const BalanceOptions& options, std::size_t experts) {
  engine::BalanceRequest request;
  LODE_TRY(request.policy, placement::policy_by_name(options.policy));
  LODE_TRY(const std::size_t slots, slots_of(options, experts));
  request.shape = {
      .slots = slots, .ranks = options.ranks, .nodes = options.nodes, .groups = options.groups};
  request.costs.seconds_per_row = options.row_us * 1e-6;
  request.costs.seconds_per_expert = options.expert_us * 1e-6;
  request.costs.seconds_per_layer = options.layer_us * 1e-6;
  LODE_TRY(request.costs.expert_bytes, bytes_of("--expert-bytes", options.expert_bytes));
  LODE_TRY(const std::uint64_t bandwidth, bytes_of("--bandwidth", options.bandwidth));
  request.costs.bytes_per_second = static_cast<double>(bandwidth);
  request.rule = {.steps = options.steps, .threshold = options.threshold};
  return request;
}

Status write_results(const BalanceOptions& options, std::span<const placement::ExpertMap> maps,
                     const engine::RankRows& before, const engine::RankRows& after) {
  if (!options.out.empty())
    LODE_TRY_STATUS(write_text_file(options.out, json::dump(engine::as_json(maps)) + "\n"));
  if (options.svg.empty()) return {};
  const std::string title =
      fmt::format("Load of {} in {}, policy {}", count_of(after.ranks, "rank"),
                  count_of(after.layers(), "layer"), options.policy);
  return write_text_file(options.svg, balance_chart_svg(before, after, title));
}

Status plan(const BalanceOptions& options) {
  LODE_TRY(const engine::BalanceLoads loads, read_loads(options.loads));
  LODE_TRY(const auto current, read_maps(options.current));
  LODE_TRY(const engine::BalanceRequest request, request_of(options, loads.experts));
  LODE_TRY(const engine::BalancePlan made, engine::plan_balance(loads, current, request));
  LODE_TRY_STATUS(write_results(options, made.maps, made.before, made.after));
  fmt::print("{}",
             options.json ? json::dump(engine::as_json(made), 2) + "\n" : plan_text(made, request));
  return {};
}

// Traffic of a file, or made up.
Result<engine::BalanceLoads> traffic_of(const SimulateOptions& options) {
  const bool made_up = !options.traffic.empty();
  if (made_up == !options.balance.loads.empty())
    return Error{.code = Code::kUsage,
                 .thing = "traffic to simulate",
                 .wanted = "a file of loads or --traffic",
                 .found = made_up ? "both" : "neither"};
  if (!made_up) return read_loads(options.balance.loads);
  engine::TrafficSpec spec = options.spec;
  LODE_TRY(spec.kind, engine::traffic_kind_by_name(options.traffic));
  spec.rows_per_step = static_cast<double>(options.tokens) * static_cast<double>(options.top_k);
  return engine::make_traffic(spec);
}

Status simulate(const SimulateOptions& options) {
  LODE_TRY(const engine::BalanceLoads traffic, traffic_of(options));
  LODE_TRY(const auto start, read_maps(options.balance.current));
  engine::SimulationRequest request;
  request.interval = options.interval;
  request.half_life = options.half_life;
  LODE_TRY(request.plan, request_of(options.balance, traffic.experts));
  LODE_TRY(const engine::Simulation made, engine::simulate_balance(traffic, start, request));
  LODE_TRY_STATUS(write_results(options.balance, made.maps, made.before, made.after));
  fmt::print("{}", options.balance.json ? json::dump(engine::as_json(made), 2) + "\n"
                                        : simulation_text(made));
  return {};
}

void add_shape(CLI::App* command, BalanceOptions& options) {
  command->add_option("--ranks", options.ranks, "Ranks that hold the experts")->required();
  command->add_option("--slots", options.slots,
                      "Slots of all ranks together; as many as experts where neither is given");
  command->add_option("--redundant-experts", options.redundant, "Slots beyond one an expert");
  command->add_option("--nodes", options.nodes, "Machines or sockets that the ranks lie on")
      ->capture_default_str();
  command
      ->add_option("--groups", options.groups,
                   "Groups of experts of the router, for the hierarchical policy")
      ->capture_default_str();
  command->add_option("--policy", options.policy, "identity, deepseek or best")
      ->capture_default_str();
  command->add_option("--current", options.current,
                      "Maps in use (JSON); else expert s in slot s and the first ones again");
}

void add_costs(CLI::App* command, BalanceOptions& options) {
  command->add_option("--expert-bytes", options.expert_bytes, "Bytes of one expert of one layer")
      ->capture_default_str();
  command->add_option("--bandwidth", options.bandwidth, "Bytes that a rank sends in a second")
      ->capture_default_str();
  command->add_option("--row-us", options.row_us, "Time of one token in one expert")
      ->capture_default_str();
  command->add_option("--expert-us", options.expert_us, "Time of an expert in use, for its weights")
      ->capture_default_str();
  command->add_option("--layer-us", options.layer_us, "Time of a layer whatever is in it")
      ->capture_default_str();
  command
      ->add_option("--threshold", options.threshold,
                   "Take a plan that saves more than this many times what moving takes")
      ->capture_default_str();
  command->add_option("--out", options.out, "Write the maps into this file (JSON)");
  command->add_option("--svg", options.svg, "Draw the load of each rank before and after");
  command->add_flag("--json", options.json, "Print JSON, with every rank of every layer");
}

void add_traffic(CLI::App* command, SimulateOptions& options) {
  command->add_option("--traffic", options.traffic, "Made-up: zipf, log-normal or shifting");
  command->add_option("--layers", options.spec.layers, "Of made-up traffic")->capture_default_str();
  command->add_option("--experts", options.spec.experts, "Of made-up traffic")
      ->capture_default_str();
  command->add_option("--steps", options.spec.steps, "Of made-up traffic")->capture_default_str();
  command->add_option("--tokens", options.tokens, "Of a step")->capture_default_str();
  command->add_option("--top-k", options.top_k, "Experts a token")->capture_default_str();
  command->add_option("--seed", options.spec.seed, "The same seed, the same traffic")
      ->capture_default_str();
  command->add_option("--exponent", options.spec.exponent, "Of zipf")->capture_default_str();
  command->add_option("--sigma", options.spec.sigma, "Of log-normal")->capture_default_str();
  command->add_option("--hot-experts", options.spec.hot_experts, "Of shifting")
      ->capture_default_str();
  command->add_option("--hot-share", options.spec.hot_share, "Part of the rows that they get")
      ->capture_default_str();
  command->add_option("--shift-every", options.spec.shift_every, "Steps until others are hot")
      ->capture_default_str();
}

void add_plan_below(Program& program, CLI::App* balance) {
  CLI::App* const command = add_below(
      balance, "plan",
      "Plan which slot of which rank holds which expert, from loads that were counted; prints what "
      "it is worth and what would move",
      "  lode balance plan loads.json --ranks 32 --redundant-experts 32 --nodes 4 --groups 8 --out "
      "maps.json\n"
      "  lode balance plan loads.json --ranks 8 --current maps.json --expert-bytes 44MB --json\n"
      "  lode balance plan loads.json --ranks 8 --svg balance.svg\n");
  const auto options = std::make_shared<BalanceOptions>();
  command->add_option("LOADS", options->loads, "Loads (JSON): see docs/balancing.md; - is stdin")
      ->required();
  add_shape(command, *options);
  command
      ->add_option("--steps", options->steps, "Steps for which the plan would stay, to judge it by")
      ->capture_default_str();
  add_costs(command, *options);
  command->callback([&program, options] { program.chosen = [options] { return plan(*options); }; });
}

void add_simulate(Program& program, CLI::App* balance) {
  CLI::App* const command = add_below(
      balance, "simulate",
      "Run traffic, of a file or made up, over ranks with and without balancing: balancedness, "
      "moves, bytes, predicted step time",
      "  lode balance simulate --traffic shifting --ranks 8 --redundant-experts 8 --expert-bytes "
      "9MB\n"
      "  lode balance simulate --traffic zipf --layers 58 --experts 256 --ranks 32 "
      "--redundant-experts 32\n"
      "  lode balance simulate traffic.json --ranks 4 --interval 100 --json\n");
  const auto options = std::make_shared<SimulateOptions>();
  command->add_option("LOADS", options->balance.loads,
                      "Loads or traffic (JSON): see docs/balancing.md; - is stdin");
  add_traffic(command, *options);
  add_shape(command, options->balance);
  command->add_option("--interval", options->interval, "Steps between two looks at the load")
      ->capture_default_str();
  command->add_option("--half-life", options->half_life, "Steps after which a count weighs half")
      ->capture_default_str();
  add_costs(command, options->balance);
  command->callback(
      [&program, options] { program.chosen = [options] { return simulate(*options); }; });
}

}  // namespace

void add_balance(Program& program) {
  CLI::App* const command =
      add_command(program, "balance",
                  "Experts over ranks: count loads, plan maps from them, simulate traffic with and "
                  "without balancing",
                  "  lode balance record DIR -p Once --out loads.json\n"
                  "  lode balance plan loads.json --ranks 8 --redundant-experts 8 --out maps.json\n"
                  "  lode balance simulate --traffic zipf --ranks 8 --svg balance.svg\n"
                  "  lode balance apply DIR maps.json --ranks 8\n");
  command->require_subcommand(1);
  add_balance_record(program, command);
  add_plan_below(program, command);
  add_simulate(program, command);
  add_balance_apply(program, command);
}

}  // namespace lode::cli
