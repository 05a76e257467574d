#include "lode/eplb/rebalancer.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "lode/base/check.h"
#include "lode/base/fmt.h"
#include "lode/comm/first_other.h"
#include "lode/io/checksum.h"
#include "lode/placement/balance.h"
#include "lode/placement/load_decay.h"

namespace lode::eplb {
namespace {

using placement::ExpertMap;
using Clock = std::chrono::steady_clock;

Error refusal(std::string thing, std::string wanted, std::string found) {
  return {.code = Code::kUsage,
          .thing = std::move(thing),
          .wanted = std::move(wanted),
          .found = std::move(found)};
}

placement::Shape shape_of(const ExpertMap& map, const RebalanceOptions& options) {
  return {
      .slots = map.slots(), .ranks = map.ranks(), .nodes = options.nodes, .groups = options.groups};
}

// The most that the tables of one planned map take.
std::uint64_t map_bytes(std::size_t experts, std::size_t slots) {
  return (2 * slots + experts + 1) * sizeof(std::int32_t);
}

// A layer without experts has nothing to be checked.
Status check_bank(const moe::ExpertPlaces& places, std::size_t layer, const LayerBank& bank) {
  if (bank.bytes.empty() && bank.record_bytes == 0) return {};
  const ExpertMap& map = places.map(layer);
  const ExpertMap& first = places.map(0);
  if (map.experts() != first.experts() || map.slots() != first.slots())
    return refusal(
        fmt::format("layer {}", layer),
        fmt::format("{} experts in {} slots, as layer 0", first.experts(), first.slots()),
        fmt::format("{} in {}", map.experts(), map.slots()));
  const std::size_t slots = map.slots_per_rank();
  if (places.whole_banks() && bank.bytes.empty()) return {};
  if (bank.record_bytes != 0 && bank.bytes.size() / slots == bank.record_bytes &&
      bank.bytes.size() % slots == 0)
    return {};
  return refusal(fmt::format("writable experts of layer {}", layer),
                 fmt::format("{} records of {} bytes", slots, bank.record_bytes),
                 fmt::format("{} bytes", bank.bytes.size()));
}

Status check_all(const moe::ExpertPlaces& places, std::span<const LayerBank> banks,
                 const RebalanceOptions& options) {
  if (banks.size() != places.num_layers() || banks.empty())
    return refusal("writable experts", fmt::format("those of {} layers", places.num_layers()),
                   fmt::format("those of {}", banks.size()));
  for (std::size_t layer = 0; layer < banks.size(); ++layer) {
    LODE_TRY_STATUS(check_bank(places, layer, banks[layer]));
    if (!places.whole_banks() && options.migration.step_bytes < banks[layer].record_bytes)
      return refusal("bytes of a migration's step",
                     fmt::format("at least the {} bytes of an expert", banks[layer].record_bytes),
                     fmt::format("{}", options.migration.step_bytes));
  }
  const ExpertMap& map = places.map(0);
  LODE_TRY_STATUS(placement::check_shape(shape_of(map, options), map.experts()));
  LODE_TRY_STATUS(placement::decay_of_half_life(options.half_life_passes));
  return {};
}

// A layer that is accepted and has not come.
struct Pending {
  std::size_t layer = 0;
  ExpertMap target;
};

}  // namespace

struct Rebalancer::State {
  State(moe::ExpertPlaces& where, std::vector<LayerBank> all_banks, const RebalanceOptions& all)
      : places(where),
        banks(std::move(all_banks)),
        options(all),
        clock(all.interval_passes, all.window_passes) {}

  // Of this rank alone.
  Status reserve(memory::Ledger& ledger) {
    const ExpertMap& map = places.map(0);
    LODE_TRY(decay, placement::decay_of_half_life(options.half_life_passes));
    LODE_TRY(ExpertLoad made,
             ExpertLoad::make(ledger, {banks.size(), map.experts(), map.ranks()}, decay));
    LODE_TRY(map_room, ledger.reserve(memory::Tag::kMetadata,
                                      banks.size() * map_bytes(map.experts(), map.slots()),
                                      "planned maps of experts"));
    load.emplace(std::move(made));
    return try_room(ledger);
  }

  // What moving will take at most is reserved once and given back: a run that has no room for it
  // ends before it begins, not when experts shall move.
  Status try_room(memory::Ledger& ledger) const {
    std::uint64_t largest = 0;
    for (const LayerBank& bank : banks)
      if (!bank.bytes.empty()) largest = std::max(largest, bank.record_bytes);
    const memory::BufferCost cost =
        migration_cost(places.map(0).slots_per_rank(), largest, options.migration.step_bytes);
    constexpr std::string_view kWhat = "experts that move";
    LODE_TRY(const auto room, ledger.reserve(memory::Tag::kStaging, cost.tag_bytes, kWhat));
    LODE_TRY(const auto tables,
             ledger.reserve(memory::Tag::kPageTables, cost.page_table_bytes, kWhat));
    return {};
  }

  bool moving() const noexcept { return migration->busy() || !pending.empty(); }

  // Costs of rank 0; those of rows and experts by the times of all ranks, as one may have had none.
  Status agree_on_costs() {
    comm::Group& group = places.group();
    LODE_TRY_STATUS(group.broadcast(std::as_writable_bytes(std::span(&options.costs, 1)), 0));
    std::vector<placement::ExpertTimes> all(group.size());
    LODE_TRY_STATUS(group.all_gather(std::as_bytes(std::span(&times, 1)),
                                     std::as_writable_bytes(std::span(all))));
    placement::ExpertTimes sum;
    for (const placement::ExpertTimes& one : all) sum += one;
    if (sum.samples() == 0) return {};
    options.costs.seconds_per_row = sum.fit().a_row;
    options.costs.seconds_per_expert = sum.fit().an_expert;
    return {};
  }

  // What was counted, as rows of one pass; the same bits on all ranks.
  Result<std::vector<float>> rows_of_a_pass() {
    LODE_TRY(const std::span<const float> totals, load->sum_over_ranks(places.group()));
    const double passes =
        placement::weight_of_steps(decay, static_cast<double>(load->sum_passes()));
    std::vector<float> rows(totals.begin(), totals.end());
    for (float& one : rows) one = passes > 0 ? static_cast<float>(one / passes) : 0.0F;
    return rows;
  }

  Result<Decision> decide_all(std::vector<ExpertMap>& planned, std::span<const float> rows) {
    const std::size_t experts = places.map(0).experts();
    std::vector<LayerDecision> layers;
    for (std::size_t layer = 0; layer < banks.size(); ++layer) {
      if (banks[layer].record_bytes == 0) continue;
      placement::Costs costs = options.costs;
      costs.expert_bytes = places.whole_banks() ? 0 : banks[layer].record_bytes;
      LODE_TRY(LayerDecision made,
               decide({layer, &places.map(layer), &planned[layer],
                       rows.subspan(layer * experts, experts)},
                      costs, {static_cast<double>(options.interval_passes), options.threshold}));
      layers.push_back(std::move(made));
    }
    return summed(std::move(layers));
  }

  // What was counted since the last look, beside what was expected of it then.
  Status add_window(Decision& decision, std::span<const ExpertMap> current) {
    std::vector<std::uint64_t> counts(banks.size() * places.map(0).experts());
    LODE_TRY_STATUS(load->count_over_ranks(places.group(), counts));
    const std::vector<float> rows(counts.begin(), counts.end());
    decision.counted_passes = load->window_passes();
    decision.counted_choices = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
    decision.balancedness_counted = placement::balance_of_maps(current, rows).balancedness();
    load->begin_window();
    return {};
  }

  Result<Decision> look() {
    LODE_TRY_STATUS(agree_on_costs());
    LODE_TRY(const std::vector<float> rows, rows_of_a_pass());
    std::vector<ExpertMap> current;
    for (std::size_t layer = 0; layer < banks.size(); ++layer) current.push_back(places.map(layer));
    const ExpertMap& map = places.map(0);
    LODE_TRY(
        std::vector<ExpertMap> planned,
        placement::plan(options.policy, {rows, map.experts(), shape_of(map, options), current}));
    LODE_TRY(Decision decision, decide_all(planned, rows));
    LODE_TRY_STATUS(add_window(decision, current));
    take(decision, std::move(planned));
    return decision;
  }

  // All ranks decide alike, so maps that need no record moved change on all of them at once.
  void take(const Decision& decision, std::vector<ExpertMap> planned) {
    for (const std::size_t layer : in_order_of_gain(decision)) {
      if (places.whole_banks())
        places.replace(layer, std::move(planned[layer]));
      else
        pending.push_back({layer, std::move(planned[layer])});
    }
    std::ranges::reverse(pending);  // the next one is the last
  }

  Status check_adopted(std::span<const ExpertMap> maps) const {
    if (maps.size() != banks.size())
      return refusal("maps to adopt", fmt::format("those of {} layers", banks.size()),
                     fmt::format("those of {}", maps.size()));
    for (std::size_t layer = 0; layer < maps.size(); ++layer) {
      if (banks[layer].record_bytes == 0) continue;
      LODE_TRY_STATUS(check_target(layer, places.map(layer), maps[layer]));
    }
    return {};
  }

  // Mapped experts change their maps without a word between ranks, so these must be the same.
  Status agree_on_adopted(std::span<const ExpertMap> maps) {
    comm::Group& group = places.group();
    LODE_TRY_STATUS(group.agree(check_adopted(maps)));
    LODE_TRY(const auto other, comm::first_other(group, digest_of(maps)));
    if (!other) return {};
    return refusal("maps to adopt", "those of rank 0", fmt::format("others on rank {}", *other));
  }

  void adopt(std::vector<ExpertMap> maps) {
    pending.clear();
    for (std::size_t layer = maps.size(); layer-- > 0;) {
      if (banks[layer].record_bytes == 0) continue;
      if (places.whole_banks())
        places.replace(layer, std::move(maps[layer]));
      else
        pending.push_back({layer, std::move(maps[layer])});
    }
  }

  Status begin_next(PassReport& report) {
    if (migration->busy() || pending.empty()) return {};
    Pending next = std::move(pending.back());
    pending.pop_back();
    const LayerBank& bank = banks[next.layer];
    report.layer = moving_layer = next.layer;
    return migration->begin({moving_layer, std::move(next.target), bank.bytes, bank.record_bytes});
  }

  Status move(PassReport& report) {
    if (migration->busy()) {
      report.layer = moving_layer;
      LODE_TRY(report.step, migration->step());
    }
    return begin_next(report);
  }

  // A migration that failed while the group did not is told of and given up.
  Status survive(Status moved, PassReport& report) {
    if (moved) return {};
    LODE_TRY_STATUS(places.group().health());
    report.failure = std::move(moved).error();
    pending.clear();
    return {};
  }

  moe::ExpertPlaces& places;
  std::vector<LayerBank> banks;
  RebalanceOptions options;
  placement::StepClock clock;
  float decay = 1;
  placement::ExpertTimes times;  // of this rank
  std::optional<ExpertLoad> load;
  memory::Reservation map_room;
  std::optional<Migration> migration;
  std::vector<Pending> pending;
  std::size_t moving_layer = 0;
};

Rebalancer::Rebalancer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Rebalancer::Rebalancer(Rebalancer&&) noexcept = default;
Rebalancer::~Rebalancer() = default;

Result<Rebalancer> Rebalancer::make(moe::ExpertPlaces& places, memory::Ledger& ledger,
                                    std::vector<LayerBank> banks, const RebalanceOptions& options) {
  if (places.group().size() == 1) return Rebalancer(nullptr);
  Status ready = check_all(places, banks, options);
  std::unique_ptr<State> state;
  if (ready) {
    state = std::make_unique<State>(places, std::move(banks), options);
    ready = state->reserve(ledger);
  }
  LODE_TRY_STATUS(places.group().agree(ready));
  LODE_TRY(Migration migration, Migration::make(places, ledger, options.migration));
  state->migration.emplace(std::move(migration));
  return Rebalancer(std::move(state));
}

bool Rebalancer::recording() const noexcept { return active() && state_->clock.recording(); }

std::span<std::uint32_t> Rebalancer::pass_counts() noexcept {
  if (!active()) return {};
  return state_->load->pass_counts();
}

void Rebalancer::set_times(const placement::ExpertTimes& times) noexcept {
  if (active()) state_->times = times;
}

Status Rebalancer::adopt(std::vector<ExpertMap> maps) {
  if (!active()) return {};
  LODE_TRY_STATUS(state_->agree_on_adopted(maps));
  state_->adopt(std::move(maps));
  return {};
}

Result<PassReport> Rebalancer::after_pass() {
  PassReport report;
  if (!active()) return report;
  State& state = *state_;
  const auto before = Clock::now();
  state.load->end_pass(state.clock.recording());
  LODE_TRY_STATUS(state.survive(state.move(report), report));
  if (state.clock.after_pass(state.moving())) {
    LODE_TRY(report.decision, state.look());
    LODE_TRY_STATUS(state.survive(state.begin_next(report), report));
  }
  report.layers_left = state.pending.size() + (state.migration->busy() ? 1 : 0);
  report.spent = Clock::now() - before;
  return report;
}

Result<std::vector<float>> Rebalancer::rows_of_a_pass() {
  if (!active()) return std::vector<float>{};
  return state_->rows_of_a_pass();
}

Status Rebalancer::finish() {
  if (!active()) return {};
  state_->pending.clear();
  return state_->migration->drain();
}

std::uint32_t digest_of(std::span<const ExpertMap> maps) {
  std::uint32_t digest = 0;
  for (const ExpertMap& map : maps)
    digest = io::crc32c(std::as_bytes(map.physical_to_logical()), digest);
  return digest;
}

Status check_target(std::size_t layer, const ExpertMap& now, const ExpertMap& next) {
  const bool alike = next.experts() == now.experts() && next.slots() == now.slots() &&
                     next.ranks() == now.ranks() && next.filled_slots() == next.slots();
  if (alike) return {};
  return refusal(fmt::format("new map of layer {}", layer),
                 fmt::format("{} experts in {} slots of {} ranks, none of them empty",
                             now.experts(), now.slots(), now.ranks()),
                 fmt::format("{} in {} slots, {} of them full, of {} ranks", next.experts(),
                             next.slots(), next.filled_slots(), next.ranks()));
}

BalancingCost balancing_cost(const BalancingShape& shape) noexcept {
  if (shape.load.ranks <= 1) return {};
  const memory::BufferCost tables = memory::buffer_cost(load_bytes(shape.load));
  const std::size_t slots = shape.slots_per_rank * shape.load.ranks;
  const memory::BufferCost moving =
      migration_cost(shape.slots_per_rank, shape.record_bytes, shape.step_bytes);
  return {
      .table_bytes = tables.tag_bytes + shape.load.layers * map_bytes(shape.load.experts, slots),
      .table_page_bytes = tables.page_table_bytes,
      .moving_bytes = moving.tag_bytes,
      .moving_page_bytes = moving.page_table_bytes};
}

}  // namespace lode::eplb
