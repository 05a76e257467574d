#include "lode/eplb/migration.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "lode/base/check.h"
#include "lode/base/fmt.h"
#include "lode/comm/first_other.h"
#include "lode/eplb/slot_copies.h"
#include "lode/io/checksum.h"

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

std::string size_of(const ExpertMap& map) {
  return fmt::format("{} experts in {} slots of {} ranks", map.experts(), map.slots(), map.ranks());
}

// What all ranks must have alike, in one number.
std::uint32_t digest_of(const LayerMove& move, const ExpertMap& from, std::uint64_t step_bytes) {
  const std::array<std::uint64_t, 3> sizes = {move.layer, move.record_bytes, step_bytes};
  std::uint32_t digest = io::crc32c(std::as_bytes(std::span(sizes)));
  digest = io::crc32c(std::as_bytes(from.physical_to_logical()), digest);
  return io::crc32c(std::as_bytes(move.target.physical_to_logical()), digest);
}

}  // namespace

memory::BufferCost migration_cost(std::size_t slots_per_rank, std::uint64_t record_bytes,
                                  std::uint64_t step_bytes) noexcept {
  if (record_bytes == 0) return {};
  const std::uint64_t records = std::min<std::uint64_t>(slots_per_rank, step_bytes / record_bytes);
  return memory::buffer_cost(records * record_bytes);
}

Migration::Migration(moe::ExpertPlaces& places, memory::Ledger& ledger,
                     const MigrationOptions& options, std::unique_ptr<comm::Group> group)
    : places_(&places), ledger_(&ledger), options_(options), group_(std::move(group)) {}

Result<Migration> Migration::make(moe::ExpertPlaces& places, memory::Ledger& ledger,
                                  const MigrationOptions& options) {
  LODE_TRY(std::unique_ptr<comm::Group> group, places.group().duplicate());
  return Migration(places, ledger, options, std::move(group));
}

Status Migration::check(const LayerMove& move) const {
  LODE_CHECK(move.layer < places_->num_layers(), "a layer that has experts");
  const ExpertMap& map = places_->map(move.layer);
  const std::string layer = fmt::format("layer {}", move.layer);
  if (size_of(map) != size_of(move.target))
    return refusal("new map of " + layer, size_of(map), size_of(move.target));
  if (move.record_bytes == 0 || options_.step_bytes < move.record_bytes)
    return refusal(
        "bytes of a migration's step",
        fmt::format("at least the {} bytes of an expert of {}", move.record_bytes, layer),
        fmt::format("{}", options_.step_bytes));
  const std::size_t slots = map.slots_per_rank();
  if (move.bank.size() / move.record_bytes != slots || move.bank.size() % move.record_bytes != 0)
    return refusal("writable experts of " + layer,
                   fmt::format("{} records of {} bytes", slots, move.record_bytes),
                   fmt::format("{} bytes", move.bank.size()));
  return {};
}

Status Migration::make_buffer(const LayerMove& move) {
  const std::size_t records = std::min(
      max_records(move), records_to_receive(places_->map(move.layer), move.target, group_->rank()));
  if (records == 0) return {};
  LODE_TRY(buffer_,
           memory::make_buffer(*ledger_, memory::Tag::kStaging, records * move.record_bytes,
                               fmt::format("experts of layer {} that move", move.layer)));
  return {};
}

// A rank that cannot take part keeps all others from it; so does one that would move otherwise.
Status Migration::agree_on(const LayerMove& move, const Status& ready) {
  LODE_TRY_STATUS(group_->agree(ready));
  LODE_TRY(const auto other, comm::first_other(*group_, digest_of(move, places_->map(move.layer),
                                                                  options_.step_bytes)));
  if (!other) return {};
  return Error{.thing = fmt::format("migration of layer {}", move.layer),
               .wanted = "the same layer, maps and sizes on all ranks",
               .found = fmt::format("others on rank {}", *other)};
}

Status Migration::begin(LayerMove move) {
  LODE_CHECK(!busy(), "one layer moves at a time");
  Status ready = check(move);
  if (ready) ready = make_buffer(move);
  Status agreed = agree_on(move, ready);
  if (!agreed) {
    abandon();
    return agreed;
  }
  if (places_->map(move.layer) == move.target) return {};
  move_ = std::move(move);
  Status started = start_step();
  if (!started) abandon();
  return started;
}

Status Migration::start_step() {
  step_ = next_step(places_->map(move_->layer), move_->target, max_records(*move_));
  checked_ = {};
  std::span<std::byte> room;
  if (!buffer_.bytes().empty()) room = buffer_.mutate();
  return transfers_.start(*group_, step_->moves,
                          {.bank = move_->bank,
                           .buffer = room,
                           .record_bytes = static_cast<std::size_t>(move_->record_bytes),
                           .tag = static_cast<std::uint32_t>(move_->layer) & comm::kMaxTag,
                           .checksums = options_.checksums});
}

// What is bad is told only when all has come, so that nobody drops what another still sends.
Result<Migration::Phase> Migration::phase_here() {
  LODE_TRY(const bool complete, transfers_.complete());
  if (!complete) return Phase::kMoving;
  checked_ = transfers_.check();
  return checked_ ? Phase::kArrived : Phase::kBad;
}

Result<Migration::Phase> Migration::phase_of_all(Phase mine) {
  const auto byte = static_cast<std::byte>(mine);
  std::vector<std::byte> all(group_->size());
  LODE_TRY_STATUS(group_->all_gather({&byte, 1}, all));
  for (const Phase phase : {Phase::kMoving, Phase::kBad})
    if (std::ranges::find(all, static_cast<std::byte>(phase)) != all.end()) return phase;
  return Phase::kArrived;
}

Result<StepReport> Migration::look() {
  LODE_TRY(const Phase mine, phase_here());
  const auto before = Clock::now();
  LODE_TRY(const Phase phase, phase_of_all(mine));
  const auto waited = Clock::now() - before;
  StepReport report;
  if (phase == Phase::kBad) LODE_TRY_STATUS(group_->agree(checked_));
  if (phase == Phase::kArrived) {
    LODE_TRY(report, commit());
  }
  report.waited = waited;
  return report;
}

Result<StepReport> Migration::step() {
  if (!busy()) return StepReport{};
  Result<StepReport> report = look();
  if (!report) abandon();
  return report;
}

// Nothing in it can fail before the records and the map are those of the step.
Result<StepReport> Migration::commit() {
  const std::size_t rank = group_->rank();
  const auto before = Clock::now();
  StepReport report{.committed = true, .records_received = transfers_.received().size()};
  report.records_copied =
      rearrange({places_->map(move_->layer).experts_on(rank), step_->next.experts_on(rank),
                 transfers_.received()},
                {move_->bank, buffer_.bytes(), static_cast<std::size_t>(move_->record_bytes)});
  report.bytes_received = report.records_received * move_->record_bytes;
  places_->replace(move_->layer, std::move(step_->next));
  report.copied = Clock::now() - before;
  report.layer_done = places_->map(move_->layer) == move_->target;
  if (report.layer_done) {
    abandon();
  } else {
    LODE_TRY_STATUS(start_step());
  }
  return report;
}

Status Migration::drain() {
  Status waited;
  if (busy()) waited = transfers_.wait();
  abandon();
  return waited;
}

void Migration::abandon() noexcept {
  transfers_.drop();
  step_.reset();
  buffer_ = {};
  move_.reset();
}

}  // namespace lode::eplb
