#include "lode/engine/balancer.h"

#include <algorithm>
#include <utility>

#include "lode/base/fmt.h"

namespace lode::engine {
namespace {

constexpr std::size_t kMostLooks = 256;  // kept for the account

std::uint64_t ns_of(std::chrono::nanoseconds time) {
  return static_cast<std::uint64_t>(time.count());
}

std::vector<eplb::LayerBank> banks_of(loader::WeightSet& weights, std::size_t num_layers) {
  std::vector<eplb::LayerBank> banks;
  for (std::uint32_t layer = 0; layer < num_layers; ++layer) {
    const loader::ExpertBank& bank = weights.experts(layer);
    const std::uint64_t record_bytes = bank.bytes.empty() ? 0 : bank.record.record_bytes;
    banks.push_back({weights.writable_experts(layer), record_bytes});
  }
  return banks;
}

eplb::RebalanceOptions options_of(const BalanceSettings& settings, const comm::Group& group) {
  eplb::RebalanceOptions options;
  options.policy = settings.policy;
  options.nodes = group.node_of(group.size() - 1) + 1;
  options.interval_passes = settings.interval_passes;
  options.window_passes = settings.interval_passes;
  options.half_life_passes = settings.half_life_passes;
  options.costs.bytes_per_second = settings.bytes_per_second;
  options.threshold = settings.threshold;
  options.migration = {.step_bytes = settings.step_bytes, .checksums = settings.checksums};
  return options;
}

template <class T>
Status gather(comm::Group& group, std::span<const T> own, std::vector<T>& all) {
  all.resize(own.size() * group.size());
  return group.all_gather(std::as_bytes(own), std::as_writable_bytes(std::span(all)));
}

std::uint64_t watch_bytes(std::size_t layers) {
  return layers * sizeof(moe::LayerWatch) + kMostLooks * sizeof(BalanceLook);
}

}  // namespace

Balancer::Balancer(Key, moe::ExpertPlaces& places, memory::Reservation reservation)
    : places_(places), reservation_(std::move(reservation)), watches_(places.num_layers()) {}

Balancer::~Balancer() { places_.watch({}); }

Result<std::unique_ptr<Balancer>> Balancer::make(moe::ExpertPlaces& places, memory::Ledger& ledger,
                                                 loader::WeightSet& weights,
                                                 const families::RouterSpec& router,
                                                 const BalanceSettings& settings) {
  const std::size_t layers = places.num_layers();
  Result<memory::Reservation> room =
      ledger.reserve(memory::Tag::kMetadata, watch_bytes(layers), "what balancing notes");
  LODE_TRY_STATUS(places.group().agree(room ? Status{} : Status(room.error())));
  auto balancer = std::make_unique<Balancer>(Key{}, places, *std::move(room));
  eplb::RebalanceOptions options = options_of(settings, places.group());
  options.groups = std::max<std::size_t>(router.num_groups, 1);
  LODE_TRY(eplb::Rebalancer rebalancer,
           eplb::Rebalancer::make(places, ledger, banks_of(weights, layers), options));
  balancer->rebalancer_.emplace(std::move(rebalancer));
  const std::size_t experts = places.map(0).experts();
  const std::span<std::uint32_t> counts = balancer->rebalancer_->pass_counts();
  for (std::size_t layer = 0; layer < layers; ++layer) {
    balancer->watches_[layer].chosen = counts.subspan(layer * experts, experts);
  }
  places.watch(balancer->watches_);
  return balancer;
}

placement::ExpertTimes Balancer::times() const {
  placement::ExpertTimes times;
  for (const moe::LayerWatch& watch : watches_) times += watch.times;
  return times;
}

void Balancer::note(const eplb::PassReport& report) {
  own_.balancing_ns += ns_of(report.spent);
  own_.copying_ns += ns_of(report.step.copied);
  own_.received_bytes += report.step.bytes_received;
  log_.layers_moved += report.step.layer_done ? 1 : 0;
  if (report.failure) {
    ++log_.failures;
    log_.last_failure = to_string(*report.failure);
    failed_ = *report.failure;
  }
  if (!report.decision) return;
  const eplb::Decision& made = *report.decision;
  ++log_.looks;
  if (places_.whole_banks()) log_.layers_moved += made.accepted_layers;
  if (looks_.size() == kMostLooks) looks_.pop_front();
  looks_.push_back({log_.passes, made.balancedness_counted, made.balancedness_before,
                    made.balancedness_after, made.accepted_layers,
                    places_.whole_banks() ? 0 : made.moved_records, made.moved_bytes});
}

Status Balancer::after_pass(std::chrono::nanoseconds spent) {
  ++log_.passes;
  own_.passes_ns += ns_of(spent);
  rebalancer_->set_times(times());
  LODE_TRY(const eplb::PassReport report, rebalancer_->after_pass());
  note(report);
  return {};
}

Status Balancer::adopt(std::vector<placement::ExpertMap> maps) {
  failed_ = {};
  std::uint64_t changed = 0;
  for (std::size_t layer = 0; layer < std::min(maps.size(), places_.num_layers()); ++layer)
    changed += places_.map(layer) == maps[layer] ? 0 : 1;
  LODE_TRY_STATUS(rebalancer_->adopt(std::move(maps)));
  if (places_.whole_banks()) log_.layers_moved += changed;
  return {};
}

Status Balancer::settle(parallel::FunctionRef<bool()> go_on) {
  while (failed_) {
    LODE_TRY(const bool stops, any_rank(places_.group(), !go_on()));
    if (stops)
      return Error{
          .code = Code::kInterrupted, .thing = "experts that move", .found = "interrupted"};
    LODE_TRY(const eplb::PassReport report, rebalancer_->after_pass());
    note(report);
    if (report.layers_left == 0) break;
  }
  return failed_;
}

BalanceFigures Balancer::figures() const {
  BalanceFigures figures = own_;
  figures.times = times();
  return figures;
}

Result<BalanceLog> Balancer::finish() {
  comm::Group& group = places_.group();
  LODE_TRY_STATUS(rebalancer_->finish());
  BalanceLog log = log_;
  LODE_TRY(log.rows_of_a_pass, rebalancer_->rows_of_a_pass());
  log.layers = watches_.size();
  log.ranks = group.size();
  log.last_looks.assign(looks_.begin(), looks_.end());
  const BalanceFigures own = figures();
  LODE_TRY_STATUS(gather(group, std::span(&own, 1), log.rank_figures));
  std::vector<LayerFigures> layers;
  for (const moe::LayerWatch& watch : watches_) {
    layers.push_back({watch.rows, ns_of(watch.computing), ns_of(watch.exchanging)});
  }
  LODE_TRY_STATUS(gather(group, std::span<const LayerFigures>(layers), log.layer_figures));
  return log;
}

eplb::BalancingCost balancing_cost(const std::vector<placement::ExpertMap>& maps,
                                   std::uint64_t record_bytes, const BalanceSettings& settings) {
  const placement::ExpertMap& map = maps.front();
  eplb::BalancingCost cost = eplb::balancing_cost({{maps.size(), map.experts(), map.ranks()},
                                                   map.slots_per_rank(),
                                                   record_bytes,
                                                   settings.step_bytes});
  cost.table_bytes += watch_bytes(maps.size());
  return cost;
}

}  // namespace lode::engine
