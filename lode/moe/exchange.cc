#include "lode/moe/exchange.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <numeric>

#include "lode/base/fmt.h"
#include "lode/comm/exchange_rows.h"

namespace lode::moe {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kNoReply = std::numeric_limits<std::uint32_t>::max();

/// What one exchange came to.
struct Work {
  std::size_t rows = 0;  // of experts of this rank
  std::size_t experts = 0;
  std::chrono::nanoseconds computing, exchanging;
};

/// One exchange of one layer, seen from one rank.
struct Exchange {
  const ops::Compute& compute;
  const MoeLayer& layer;
  const ExpertRanks& ranks;
  const MoeScratch& scratch;
  const ExchangeScratch& own;
  RowRange rows;

  std::size_t top_k() const noexcept { return own.shape.top_k; }
  std::size_t num_ranks() const noexcept { return own.shape.ranks; }
  std::size_t rank_of(std::int32_t slot) const noexcept {
    return ranks.map->rank_of(static_cast<std::size_t>(slot));
  }
  std::span<const std::int32_t> slots_of(std::size_t row) const noexcept {
    return own.slot_of.subspan(row * top_k(), top_k());
  }
  std::size_t record_of(std::size_t slot) const noexcept {
    if (!ranks.whole_bank) return slot;
    const std::size_t first = ranks.group->rank() * ranks.map->slots_per_rank();
    return static_cast<std::size_t>(ranks.map->expert_of(first + slot));
  }
  std::span<std::byte> received_row(std::size_t row) const noexcept {
    return own.received.subspan(row * own.shape.row_bytes(), own.shape.row_bytes());
  }

  Status run(const ExchangeRows& io) const;
  void choose_slots() const;
  void count() const noexcept;
  void pack_dispatch(const ops::Rows& x) const noexcept;
  void copy_row(std::size_t row, const ops::Rows& x, std::span<std::byte> out) const noexcept;
  void pack_row(std::size_t row, std::size_t to, const ops::Rows& x,
                std::span<std::byte> out) const noexcept;
  Result<std::size_t> dispatch(const ops::Rows& x) const;
  Status unpack_row(std::size_t row, std::uint32_t& answer) const;
  Status unpack() const;
  ExpertWork collect(RowRange chunk) const noexcept;
  std::size_t compute_answers(RowRange chunk) const noexcept;
  Result<std::size_t> compute_all(std::size_t came) const;
  Status return_answers() const;
  void combine(const ops::Rows& sums) const noexcept;
};

/// Whether column `col` is the first of its row that goes to its rank.
bool is_first_to_rank(const Exchange& exchange, std::span<const std::int32_t> slots,
                      std::size_t col) noexcept {
  const std::size_t to = exchange.rank_of(slots[col]);
  return std::none_of(slots.begin(), slots.begin() + static_cast<std::ptrdiff_t>(col),
                      [&](std::int32_t slot) { return slot >= 0 && exchange.rank_of(slot) == to; });
}

void Exchange::choose_slots() const {
  const std::size_t pairs = rows.count * top_k();
  ranks.replicas->choose(scratch.ids.subspan(rows.first * top_k(), pairs), own.slot_of.first(pairs),
                         own.turns);
  if (ranks.watch == nullptr) return;
  placement::count_experts({scratch.ids.subspan(rows.first * top_k(), pairs), top_k(), rows.count},
                           ranks.watch->chosen);
}

/// Rows and pairs that go to each rank.
void Exchange::count() const noexcept {
  std::fill(own.rows_to.begin(), own.rows_to.end(), 0);
  std::fill(own.pairs_to.begin(), own.pairs_to.end(), 0);
  for (std::size_t row = 0; row < rows.count; ++row) {
    const std::span<const std::int32_t> slots = slots_of(row);
    for (std::size_t col = 0; col < slots.size(); ++col) {
      if (slots[col] < 0) continue;
      const std::size_t to = rank_of(slots[col]);
      ++own.pairs_to[to];
      if (is_first_to_rank(*this, slots, col)) ++own.rows_to[to];
    }
  }
}

/// A row's numbers, times its weight where that is on the input: a token has one expert then.
void Exchange::copy_row(std::size_t row, const ops::Rows& x,
                        std::span<std::byte> out) const noexcept {
  const std::span<const float> from = x.row(rows.first + row);
  if (!layer.router.weight_on_input) {
    std::memcpy(out.data(), from.data(), from.size_bytes());
    return;
  }
  const float weight = scratch.weights[rows.first + row];
  for (std::size_t i = 0; i < from.size(); ++i) {
    const float scaled = weight * from[i];
    std::memcpy(out.data() + i * sizeof scaled, &scaled, sizeof scaled);
  }
}

void Exchange::pack_row(std::size_t row, std::size_t to, const ops::Rows& x,
                        std::span<std::byte> out) const noexcept {
  const std::size_t per_rank = ranks.map->slots_per_rank();
  copy_row(row, x, out);
  std::byte* slot_out = out.data() + own.shape.hidden * sizeof(float);
  for (const std::int32_t slot : slots_of(row)) {
    const bool there = slot >= 0 && rank_of(slot) == to;
    const std::int32_t local =
        there ? static_cast<std::int32_t>(static_cast<std::size_t>(slot) % per_rank) : kNoExpert;
    std::memcpy(slot_out, &local, sizeof local);
    slot_out += sizeof local;
  }
}

/// The rows for each rank one after another, and which reply will answer each pair: a rank answers
/// its rows in order, each column by column.
void Exchange::pack_dispatch(const ops::Rows& x) const noexcept {
  const std::size_t row_bytes = own.shape.row_bytes();
  std::size_t sent = 0;
  std::uint32_t reply = 0;
  for (std::size_t to = 0; to < num_ranks(); ++to) {
    for (std::size_t row = 0; row < rows.count; ++row) {
      const std::span<const std::int32_t> slots = slots_of(row);
      bool goes = false;
      for (std::size_t col = 0; col < slots.size(); ++col) {
        if (slots[col] < 0 || rank_of(slots[col]) != to) continue;
        own.reply_of[row * top_k() + col] = reply++;
        goes = true;
      }
      if (goes) pack_row(row, to, x, own.sent.subspan(sent++ * row_bytes, row_bytes));
    }
  }
}

Error disagree(std::string_view thing, std::size_t wanted, std::size_t found) {
  return {.code = Code::kPeerLost,
          .thing = std::string(thing),
          .wanted = fmt::format("at most {}", wanted),
          .found = fmt::format("{}", found),
          .hint = "all ranks must run the same checkpoint with the same settings"};
}

/// Sends rows to the ranks that have their experts, and takes those that come: how many.
Result<std::size_t> Exchange::dispatch(const ops::Rows& x) const {
  pack_dispatch(x);
  return comm::exchange_counts_and_rows(*ranks.group, {own.sent, own.rows_to},
                                        own.shape.row_bytes(), {own.received, own.rows_from});
}

/// One row that came: its numbers, its pairs, and where their answers go, from `answer` on.
Status Exchange::unpack_row(std::size_t row, std::uint32_t& answer) const {
  const std::span<const std::byte> bytes = received_row(row);
  const std::span<float> x = own.x.row(row);
  const std::span<std::int32_t> slots = own.local_slot.subspan(row * top_k(), top_k());
  std::memcpy(x.data(), bytes.data(), x.size_bytes());
  std::memcpy(slots.data(), bytes.data() + x.size_bytes(), slots.size_bytes());
  const auto per_rank = static_cast<std::int32_t>(ranks.map->slots_per_rank());
  for (std::size_t col = 0; col < top_k(); ++col) {
    if (slots[col] >= per_rank) {
      return disagree("slot of another rank's row", ranks.map->slots_per_rank() - 1,
                      static_cast<std::size_t>(slots[col]));
    }
    own.reply_row[row * top_k() + col] = slots[col] >= 0 ? answer++ : kNoReply;
  }
  return {};
}

/// The rows that came, in the forms that the experts read.
Status Exchange::unpack() const {
  std::size_t row = 0;
  std::uint32_t answer = 0;
  for (std::size_t from = 0; from < num_ranks(); ++from) {
    const std::uint32_t before = answer;
    for (std::int32_t i = 0; i < own.rows_from[from]; ++i) {
      LODE_TRY_STATUS(unpack_row(row++, answer));
    }
    own.pairs_from[from] = static_cast<std::int32_t>(answer - before);
  }
  ops::pack_rows(compute, own.x, row, input_forms(compute, layer.record));
  return {};
}

/// The slots that some of the rows want; weights of 1, as answers are weighted where their rows
/// are.
ExpertWork Exchange::collect(RowRange chunk) const noexcept {
  const std::size_t pairs = own.order.total();
  const auto active = list_active(layer, own.order, own.active,
                                  [this](std::size_t slot) { return record_of(slot); });
  for (std::size_t position = 0; position < pairs; ++position) {
    scratch.row_of[position] =
        static_cast<std::uint32_t>(chunk.first + own.order.order[position] / top_k());
  }
  std::fill_n(scratch.weight_of.begin(), pairs, 1.0F);
  return {active, scratch.row_of.first(pairs), scratch.weight_of.first(pairs), layer.activation};
}

/// answers = the plain product of each pair: added to -0, the only number that changes none. How
/// many experts it took.
std::size_t Exchange::compute_answers(RowRange chunk) const noexcept {
  order_by_expert(own.local_slot.subspan(chunk.first * top_k(), chunk.count * top_k()), own.order);
  const ExpertWork work = collect(chunk);
  run_gate_up(compute, work, own.x, scratch.inner);
  const std::size_t pairs = own.order.total();
  for (std::size_t position = 0; position < pairs; ++position) {
    scratch.row_of[position] = own.reply_row[chunk.first * top_k() + own.order.order[position]];
  }
  ops::for_each(compute, pairs, [&](std::size_t position, std::size_t) noexcept {
    const std::span<float> answer = own.answers.row(scratch.row_of[position]);
    std::fill(answer.begin(), answer.end(), -0.0F);
  });
  run_down(compute, work, scratch.inner, own.answers);
  return work.experts.size();
}

/// How many experts the rows that came took, chunk by chunk.
Result<std::size_t> Exchange::compute_all(std::size_t came) const {
  LODE_TRY_STATUS(unpack());
  std::size_t experts = 0;
  for (std::size_t done = 0; done < came; done += scratch.chunk_rows) {
    experts += compute_answers({done, std::min(scratch.chunk_rows, came - done)});
  }
  return experts;
}

Status Exchange::return_answers() const {
  return comm::exchange_rows(*ranks.group, {std::as_bytes(own.answers.f32), own.pairs_from},
                             own.answers.stride * sizeof(float),
                             {std::as_writable_bytes(own.replies.f32), own.pairs_to});
}

/// The column whose id follows `last`, or `ids.size()`: a row's ids are distinct.
std::size_t next_by_id(std::span<const std::int32_t> ids, std::int32_t last) noexcept {
  std::size_t next = ids.size();
  for (std::size_t col = 0; col < ids.size(); ++col) {
    if (ids[col] > last && (next == ids.size() || ids[col] < ids[next])) next = col;
  }
  return next;
}

void Exchange::combine(const ops::Rows& sums) const noexcept {
  ops::for_each(compute, rows.count, [&](std::size_t row, std::size_t) noexcept {
    const std::size_t pair = (rows.first + row) * top_k();
    const std::span<const std::int32_t> ids = scratch.ids.subspan(pair, top_k());
    const std::span<float> sum = sums.row(rows.first + row);
    std::int32_t last = kNoExpert;
    for (std::size_t col = next_by_id(ids, last); col < ids.size(); col = next_by_id(ids, last)) {
      last = ids[col];
      if (slots_of(row)[col] < 0) continue;
      const float weight = layer.router.weight_on_input ? 1.0F : scratch.weights[pair + col];
      const std::span<const float> reply = own.replies.row(own.reply_of[row * top_k() + col]);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += weight * reply[i];
    }
  });
}

void note(LayerWatch& watch, const Work& work) {
  watch.rows += work.rows;
  watch.computing += work.computing;
  watch.exchanging += work.exchanging;
  watch.times.add(static_cast<double>(work.rows), static_cast<double>(work.experts),
                  std::chrono::duration<double>(work.computing).count());
}

Status Exchange::run(const ExchangeRows& io) const {
  choose_slots();
  count();
  const auto begun = Clock::now();
  LODE_TRY(const std::size_t came, dispatch(io.x));
  const auto dispatched = Clock::now();
  LODE_TRY(const std::size_t experts, compute_all(came));
  const auto computed = Clock::now();
  LODE_TRY_STATUS(return_answers());
  const auto returned = Clock::now();
  combine(io.sums);
  if (ranks.watch == nullptr) return {};
  const auto computed_rows = std::accumulate(own.pairs_from.begin(), own.pairs_from.end(), 0);
  note(*ranks.watch, {static_cast<std::size_t>(computed_rows), experts, computed - dispatched,
                      (dispatched - begun) + (returned - computed)});
  return {};
}

}  // namespace

RowRange rows_of_rank(std::size_t num_rows, std::size_t num_ranks, std::size_t rank) noexcept {
  const std::size_t base = num_rows / num_ranks;
  const std::size_t rest = num_rows % num_ranks;
  return {rank * base + std::min(rank, rest), base + (rank < rest ? 1 : 0)};
}

ExchangeScratch carve_exchange(memory::Carver& carver, const ExchangeShape& shape) {
  const std::size_t pairs = shape.rows * shape.top_k;
  const std::size_t own_rows = rows_of_rank(shape.rows, shape.ranks, 0).count;
  const std::size_t own_pairs = own_rows * shape.top_k;
  constexpr ops::Mode kPlain = ops::Mode::kExact;  // rows that no matrix reads
  ExchangeScratch scratch;
  scratch.shape = shape;
  scratch.slot_of = carver.take<std::int32_t>(own_pairs);
  scratch.reply_of = carver.take<std::uint32_t>(own_pairs);
  scratch.turns = carver.take<std::uint32_t>(shape.experts);
  for (auto* counts :
       {&scratch.rows_to, &scratch.rows_from, &scratch.pairs_to, &scratch.pairs_from}) {
    *counts = carver.take<std::int32_t>(shape.ranks);
  }
  scratch.gather_bytes = carver.take<std::size_t>(shape.ranks);
  const std::size_t copies = std::min(shape.ranks, shape.top_k);
  scratch.sent = carver.take<std::byte>(own_rows * copies * shape.row_bytes());
  scratch.received = carver.take<std::byte>(shape.rows * shape.row_bytes());
  scratch.local_slot = carver.take<std::int32_t>(pairs);
  scratch.reply_row = carver.take<std::uint32_t>(pairs);
  scratch.order.first = carver.take<std::uint32_t>(shape.slots + 1);
  scratch.order.order = carver.take<std::uint32_t>(pairs);
  scratch.active = carver.take<ActiveExpert>(std::max<std::size_t>(shape.slots, 1));
  scratch.x = ops::carve_rows(carver, shape.rows, shape.hidden, shape.mode);
  scratch.answers = ops::carve_rows(carver, pairs, shape.hidden, kPlain);
  scratch.replies = ops::carve_rows(carver, own_pairs, shape.hidden, kPlain);
  return scratch;
}

Status exchange_experts(const ops::Compute& compute, const MoeLayer& layer,
                        const ExpertRanks& ranks, const ExchangeRows& rows,
                        const MoeScratch& scratch, const ExchangeScratch& exchange) {
  const Exchange one{compute, layer, ranks, scratch, exchange, rows.range};
  Status status = one.run(rows);
  if (!status) ranks.group->fail(status.error());  // nothing where it is the group's own
  return status;
}

Status gather_rows(comm::Group& group, const ops::Rows& rows, std::size_t num_rows,
                   const ExchangeScratch& exchange) {
  const std::size_t row_bytes = rows.stride * sizeof(float);
  for (std::size_t rank = 0; rank < group.size(); ++rank) {
    exchange.gather_bytes[rank] = rows_of_rank(num_rows, group.size(), rank).count * row_bytes;
  }
  const RowRange own = rows_of_rank(num_rows, group.size(), group.rank());
  const std::span<std::byte> all = std::as_writable_bytes(rows.f32).first(num_rows * row_bytes);
  return group.all_gather_v(all.subspan(own.first * row_bytes, own.count * row_bytes), all,
                            exchange.gather_bytes);
}

}  // namespace lode::moe
