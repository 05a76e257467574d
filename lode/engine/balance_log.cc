#include "lode/engine/balance_log.h"

#include <algorithm>
#include <span>
#include <utility>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/placement/balance.h"

namespace lode::engine {
namespace {

constexpr double kNs = 1e-9;
constexpr double kUs = 1e6;

double seconds(std::uint64_t ns) { return static_cast<double>(ns) * kNs; }
std::uint64_t us(std::uint64_t ns) { return ns / 1000; }

LayerFigures sum_of(std::span<const LayerFigures> layers) {
  LayerFigures sum;
  for (const LayerFigures& layer : layers) {
    sum.rows += layer.rows;
    sum.computing_ns += layer.computing_ns;
    sum.exchanging_ns += layer.exchanging_ns;
  }
  return sum;
}

std::span<const LayerFigures> layers_of(const BalanceLog& log, std::size_t rank) {
  return std::span(log.layer_figures).subspan(rank * log.layers, log.layers);
}

json::Value look_json(const BalanceLook& look) {
  return json::object({{"pass", look.pass},
                       {"balancedness_counted", look.balancedness_counted},
                       {"balancedness_before", look.balancedness_before},
                       {"balancedness_predicted", look.balancedness_predicted},
                       {"accepted_layers", look.accepted_layers},
                       {"moved_records", look.moved_records},
                       {"moved_bytes", look.moved_bytes}});
}

json::Value rank_json(const BalanceLog& log, std::size_t rank) {
  const BalanceFigures& figures = log.rank_figures[rank];
  const LayerFigures sum = sum_of(layers_of(log, rank));
  return json::object({{"rows", sum.rows},
                       {"passes_us", us(figures.passes_ns)},
                       {"computing_us", us(sum.computing_ns)},
                       {"exchanging_us", us(sum.exchanging_ns)},
                       {"balancing_us", us(figures.balancing_ns)},
                       {"copying_us", us(figures.copying_ns)},
                       {"received_bytes", figures.received_bytes},
                       {"row_us", figures.times.fit().a_row * kUs},
                       {"expert_us", figures.times.fit().an_expert * kUs}});
}

json::Value layer_json(const BalanceLog& log, std::size_t layer, double balancedness) {
  json::Array rows, computing, exchanging;
  for (std::size_t rank = 0; rank < log.ranks; ++rank) {
    const LayerFigures& one = layers_of(log, rank)[layer];
    rows.emplace_back(one.rows);
    computing.emplace_back(us(one.computing_ns));
    exchanging.emplace_back(us(one.exchanging_ns));
  }
  return json::object({{"layer", layer},
                       {"balancedness", balancedness},
                       {"rows", std::move(rows)},
                       {"computing_us", std::move(computing)},
                       {"exchanging_us", std::move(exchanging)}});
}

json::Value loads_json(const BalanceLog& log) {
  json::Array all;
  const std::size_t experts = log.rows_of_a_pass.size() / log.layers;
  for (std::size_t layer = 0; layer < log.layers; ++layer) {
    json::Array rows;
    for (const float one : std::span(log.rows_of_a_pass).subspan(layer * experts, experts))
      rows.emplace_back(static_cast<double>(one));
    all.emplace_back(std::move(rows));
  }
  return all;
}

bool has_experts(const BalanceLog& log, std::size_t layer) {
  for (std::size_t rank = 0; rank < log.ranks; ++rank) {
    if (layers_of(log, rank)[layer].rows != 0) return true;
  }
  return false;
}

}  // namespace

std::uint64_t BalanceLog::received_bytes() const {
  std::uint64_t bytes = 0;
  for (const BalanceFigures& rank : rank_figures) bytes += rank.received_bytes;
  return bytes;
}

placement::Costs BalanceLog::costs() const {
  placement::Costs costs;
  std::uint64_t used_layers = 0;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    used_layers += has_experts(*this, layer) ? 1 : 0;
  }
  // The rank that computes most waits least, so what it does not compute is what a layer takes.
  double least_beside = 0;
  placement::ExpertTimes times;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const BalanceFigures& figures = rank_figures[rank];
    times += figures.times;
    const double beside =
        seconds(figures.passes_ns) - seconds(sum_of(layers_of(*this, rank)).computing_ns);
    least_beside = rank == 0 ? beside : std::min(least_beside, beside);
  }
  costs.seconds_per_row = times.fit().a_row;
  costs.seconds_per_expert = times.fit().an_expert;
  if (passes != 0 && used_layers != 0)
    costs.seconds_per_layer = least_beside / static_cast<double>(passes * used_layers);
  return costs;
}

std::vector<double> BalanceLog::layer_balancedness() const {
  std::vector<double> all;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    std::vector<double> rows;
    for (std::size_t rank = 0; rank < ranks; ++rank)
      rows.push_back(static_cast<double>(layers_of(*this, rank)[layer].rows));
    all.push_back(placement::balance_of_counts(rows, ranks).balancedness());
  }
  return all;
}

json::Value as_json(const BalanceLog& log) {
  json::Array looks, ranks, layers;
  for (const BalanceLook& look : log.last_looks) looks.push_back(look_json(look));
  for (std::size_t rank = 0; rank < log.ranks; ++rank) ranks.push_back(rank_json(log, rank));
  const std::vector<double> balancedness = log.layer_balancedness();
  for (std::size_t layer = 0; layer < log.layers; ++layer) {
    if (has_experts(log, layer)) layers.push_back(layer_json(log, layer, balancedness[layer]));
  }
  const placement::Costs costs = log.costs();
  return json::object(
      {{"layers", log.layers},
       {"experts", log.rows_of_a_pass.size() / log.layers},
       {"steps", 1},
       {"loads", loads_json(log)},
       {"passes", log.passes},
       {"looks", log.looks},
       {"layers_moved", log.layers_moved},
       {"received_bytes", log.received_bytes()},
       {"failures", log.failures},
       {"last_failure", log.failures == 0 ? json::Value() : json::Value(log.last_failure)},
       {"costs", json::object({{"row_us", costs.seconds_per_row * kUs},
                               {"expert_us", costs.seconds_per_expert * kUs},
                               {"layer_us", costs.seconds_per_layer * kUs}})},
       {"last_looks", std::move(looks)},
       {"by_rank", std::move(ranks)},
       {"by_layer", std::move(layers)}});
}

std::string as_text(const BalanceLog& log) {
  std::string text =
      fmt::format("balancing: {} passes, {} looks, {} layers moved, {} received from other ranks\n",
                  log.passes, log.looks, log.layers_moved, human_bytes(log.received_bytes()));
  if (!log.last_looks.empty()) {
    const BalanceLook& last = log.last_looks.back();
    text += fmt::format(
        "  balancedness at the last look: {:.3f} counted, {:.3f} expected without moves, {:.3f} "
        "with them\n",
        last.balancedness_counted, last.balancedness_before, last.balancedness_predicted);
  }
  for (std::size_t rank = 0; rank < log.ranks; ++rank) {
    const LayerFigures sum = sum_of(layers_of(log, rank));
    text += fmt::format(
        "  rank {}: {} rows of experts in {:.3f} s, exchange and waiting {:.3f} s, balancing "
        "{:.3f} s\n",
        rank, sum.rows, seconds(sum.computing_ns), seconds(sum.exchanging_ns),
        seconds(log.rank_figures[rank].balancing_ns));
  }
  if (log.failures != 0)
    text += fmt::format("  {} migrations failed, the old maps were kept; the last: {}\n",
                        log.failures, log.last_failure);
  return text;
}

}  // namespace lode::engine
