#include "lode/layout/marlin_repack.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "lode/base/bytes.h"

namespace lode::layout {
namespace {

// The rows of a step: a tile, or two side by side.
constexpr std::uint64_t kGroupRows = 64;
constexpr std::uint64_t kMostTileBytes = 2048;

Error misshapen(std::string thing, std::string wanted, const tensor::TensorView& view) {
  return {.code = Code::kInvalidSource,
          .thing = std::move(thing),
          .wanted = std::move(wanted),
          .found = tensor::to_string(view.shape()) + " of " + human_bytes(view.bytes().size())};
}

// Tiles stand row tile by row tile, and shall stand k tile by k tile.
struct TileOrder {
  std::uint64_t k_tiles = 0;
  std::uint64_t row_tiles = 0;

  std::uint64_t count() const noexcept { return k_tiles * row_tiles; }
  // Where the tile lies that shall lie at `place`.
  std::uint64_t source_of(std::uint64_t place) const noexcept {
    return place % row_tiles * k_tiles + place / row_tiles;
  }
};
TileOrder tiles_of(const MarlinLayout& weights) noexcept {
  return {weights.units(), weights.rows() / kGroupRows};
}
std::uint64_t tile_bytes(const MarlinLayout& weights) noexcept {
  return weights.shape().tile_bytes() * (kGroupRows / weights.shape().tile_rows());
}

std::vector<std::uint32_t> cycles_of(const TileOrder& tiles) {
  std::vector<std::uint32_t> begins;
  std::vector<bool> seen(tiles.count());
  for (std::uint64_t begin = 0; begin < tiles.count(); ++begin) {
    if (seen[begin]) continue;
    std::uint64_t length = 0;
    for (std::uint64_t at = begin; !seen[at]; at = tiles.source_of(at), ++length) seen[at] = true;
    if (length > 1) begins.push_back(static_cast<std::uint32_t>(begin));
  }
  return begins;
}

std::uint64_t column_bytes(const MarlinLayout& weights) noexcept {
  return weights.units() * tile_bytes(weights);
}

// The rows of one column of tiles, and the tiles in their place.
void make_column(const MarlinLayout& column, std::byte* place, std::span<std::byte> copy) noexcept {
  std::memcpy(copy.data(), place, copy.size());
  marlin_from_rows(column, {1, kGroupRows, {}, RowShuffle::kNone},
                   rows_of(copy, 1, copy.size() / kGroupRows), 0, {place, copy.size()});
}

void turn_cycle(const TileOrder& tiles, std::uint64_t bytes, std::uint64_t begin,
                std::byte* place) noexcept {
  std::array<std::byte, kMostTileBytes> held;
  std::memcpy(held.data(), place + begin * bytes, bytes);
  std::uint64_t at = begin;
  for (std::uint64_t from = tiles.source_of(at); from != begin; from = tiles.source_of(at)) {
    std::memcpy(place + at * bytes, place + from * bytes, bytes);
    at = from;
  }
  std::memcpy(place + at * bytes, held.data(), bytes);
}

void make_scales(const MarlinRepack& repack, std::byte* place, std::span<std::byte> copy) noexcept {
  const std::uint64_t rows = repack.weights.rows();
  const std::span<std::byte> expert(place, rows * repack.groups);
  std::memcpy(copy.data(), expert.data(), expert.size());
  MarlinScaleBytes scales{repack.form.scale_columns,
                          {1, rows, {}, RowShuffle::kNone},
                          rows_of(copy.first(expert.size()), 1, repack.groups),
                          {repack.form.scale_table, {}}};
  marlin_scale_bytes(scales, 0, expert);
}

// Tasks dealt out to as many threads as the scratch has room for; each takes every n-th.
template <class Task>
void deal_out(std::uint64_t num_tasks, std::uint64_t room_bytes, std::span<std::byte> scratch,
              parallel::ThreadPool* pool, Task task) noexcept {
  const std::uint64_t rooms = scratch.size() / room_bytes;
  const std::uint64_t threads =
      pool == nullptr ? 1 : std::min<std::uint64_t>(pool->num_threads(), rooms);
  const auto share = [&](std::size_t first, std::size_t) {
    for (std::uint64_t i = first; i < num_tasks; i += threads) {
      task(i, scratch.subspan(first * room_bytes, room_bytes));
    }
  };
  if (threads == 1) return share(0, 0);
  pool->run(threads, share);
}

// Step by step, as drawn.
void make_in_cycles(const MarlinRepack& repack, std::byte* weight, std::span<std::byte> scratch,
                    parallel::ThreadPool* pool) noexcept {
  const TileOrder tiles = tiles_of(repack.weights);
  const std::uint64_t column = column_bytes(repack.weights);
  deal_out(repack.num_experts * tiles.row_tiles, repack.scratch_bytes, scratch, pool,
           [&](std::uint64_t i, std::span<std::byte> room) {
             make_column(repack.column, weight + i * column, room.first(column));
           });
  const std::uint64_t cycles = repack.cycle_begins.size();
  deal_out(repack.num_experts * cycles, repack.scratch_bytes, scratch, pool,
           [&](std::uint64_t i, std::span<std::byte>) {
             turn_cycle(tiles, tile_bytes(repack.weights), repack.cycle_begins[i % cycles],
                        weight + i / cycles * repack.weights.total_bytes());
           });
}

Result<std::uint64_t> groups_of(const tensor::TensorView& scale, const tensor::Shape& weight) {
  if (scale.empty()) return std::uint64_t{0};
  const tensor::Shape& shape = scale.shape();
  if (shape.rank() == 3 && shape[0] == weight[0] && shape[1] == weight[1] && shape[2] > 0 &&
      scale.bytes().size() == shape.elements()) {
    return shape[2];
  }
  return misshapen("block scales for Marlin tiles",
                   "[" + std::to_string(weight[0]) + ", " + std::to_string(weight[1]) +
                       ", groups] of one byte each",
                   scale);
}

}  // namespace

Result<MarlinRepack> plan_marlin_repack(const MarlinTensors& tensors, const MarlinForm& form) {
  const tensor::TensorView weight = tensors.weight.view();
  const tensor::Shape& shape = weight.shape();
  const std::uint32_t bits = formats::info(weight.meta().encoding.element).bits;
  if (weight.empty() || shape.rank() != 3 || weight.bytes().size() != shape.elements() * bits / 8) {
    return misshapen("weight for Marlin tiles", "[experts, rows, k]", weight);
  }
  LODE_TRY(const MarlinLayout weights,
           MarlinLayout::make(shape[1], shape[2], {bits, form.narrow_activations}));
  LODE_TRY(const MarlinLayout column, MarlinLayout::make(kGroupRows, shape[2], weights.shape()));
  LODE_TRY(const std::uint64_t groups, groups_of(tensors.scale.view(), shape));
  if (groups > 0 && shape[1] % form.scale_columns.block() != 0) {
    return misshapen("block scales for Marlin tiles",
                     "a multiple of " + std::to_string(form.scale_columns.block()) + " rows",
                     tensors.scale.view());
  }
  const TileOrder tiles = tiles_of(weights);
  if (tiles.count() > ~std::uint32_t{0}) {
    return misshapen("weight for Marlin tiles", "fewer tiles", weight);
  }
  const std::uint64_t room = std::max(column_bytes(weights), shape[1] * groups);
  return MarlinRepack{
      weights, column, form, shape[0], groups, align_up(room, std::uint64_t{64}), cycles_of(tiles)};
}

MarlinTensors run(const MarlinRepack& repack, MarlinTensors&& tensors, std::span<std::byte> scratch,
                  parallel::ThreadPool* pool) noexcept {
  LODE_CHECK(scratch.size() >= repack.scratch_bytes, "scratch of a Marlin repack");
  const MarlinLayout& weights = repack.weights;
  MarlinTensors owned = std::move(tensors);
  make_in_cycles(repack, owned.weight.mutate().bytes().data(), scratch, pool);
  if (repack.groups == 0) return owned;
  std::byte* const scale = owned.scale.mutate().bytes().data();
  deal_out(repack.num_experts, repack.scratch_bytes, scratch, pool,
           [&](std::uint64_t expert, std::span<std::byte> room) {
             make_scales(repack, scale + expert * weights.rows() * repack.groups, room);
           });
  return owned;
}

}  // namespace lode::layout
