#include "lode/layout/row_order.h"

#include <algorithm>

namespace lode::layout {
namespace {

constexpr std::uint64_t kCuteRows = 64;

/// Row of the unshuffled order that lies at `position`, and back. A block of B rows is 8 by B/8,
/// transposed.
std::uint64_t shuffled(std::uint64_t position, std::uint64_t block) noexcept {
  const std::uint64_t in = position % block;
  return position - in + block / 8 * (in % 8) + in / 8;
}
std::uint64_t unshuffled(std::uint64_t row, std::uint64_t block) noexcept {
  const std::uint64_t in = row % block;
  return row - in + 8 * (in % (block / 8)) + in / (block / 8);
}

}  // namespace

std::string_view name(GateUpOrder order) noexcept {
  switch (order) {
    case GateUpOrder::kGateThenUp:
      return "gate-then-up";
    case GateUpOrder::kUpThenGate:
      return "up-then-gate";
    case GateUpOrder::kGateUpInTurn:
      return "gate-up-in-turn";
    case GateUpOrder::kUpGateInTurn:
      return "up-gate-in-turn";
    case GateUpOrder::kUpGateBy64:
      return "up-gate-by-64";
  }
  return "?";
}

std::string_view name(RowShuffle shuffle) noexcept {
  switch (shuffle) {
    case RowShuffle::kNone:
      return "none";
    case RowShuffle::kBy16:
      return "by-16";
    case RowShuffle::kBy32:
      return "by-32";
  }
  return "?";
}

std::uint64_t block_rows(RowShuffle shuffle) noexcept {
  if (shuffle == RowShuffle::kNone) return 1;
  return shuffle == RowShuffle::kBy16 ? 16 : 32;
}

HalfRow RowOrder::at(std::uint64_t position) const noexcept {
  if (shuffle != RowShuffle::kNone) position = shuffled(position, block_rows(shuffle));
  if (num_halves == 1) return {0, position};
  const auto half = static_cast<std::uint32_t>(position / half_rows);
  switch (order) {
    case GateUpOrder::kGateThenUp:
      return {half, position % half_rows};
    case GateUpOrder::kUpThenGate:
      return {1 - half, position % half_rows};
    case GateUpOrder::kGateUpInTurn:
      return {static_cast<std::uint32_t>(position % 2), position / 2};
    case GateUpOrder::kUpGateInTurn:
      return {static_cast<std::uint32_t>(1 - position % 2), position / 2};
    case GateUpOrder::kUpGateBy64:
      return {static_cast<std::uint32_t>(1 - position / kCuteRows % 2),
              position / (2 * kCuteRows) * kCuteRows + position % kCuteRows};
  }
  return {};
}

std::array<Range, 2> rows_within(const RowOrder& order, std::uint64_t first,
                                 std::uint64_t end) noexcept {
  std::array<Range, 2> rows{Range{0, 0}, Range{0, 0}};
  for (std::uint64_t position = first; position < std::min(end, order.rows()); ++position) {
    const HalfRow at = order.at(position);
    Range& half = rows[at.half];
    half = half.size() == 0 ? Range{at.row, at.row + 1}
                            : Range{std::min(half.begin, at.row), std::max(half.end, at.row + 1)};
  }
  return rows;
}

std::uint64_t RowOrder::position_of(const HalfRow& row) const noexcept {
  std::uint64_t position = row.row;
  if (num_halves == 2) {
    switch (order) {
      case GateUpOrder::kGateThenUp:
        position = row.half * half_rows + row.row;
        break;
      case GateUpOrder::kUpThenGate:
        position = (1 - row.half) * half_rows + row.row;
        break;
      case GateUpOrder::kGateUpInTurn:
        position = 2 * row.row + row.half;
        break;
      case GateUpOrder::kUpGateInTurn:
        position = 2 * row.row + 1 - row.half;
        break;
      case GateUpOrder::kUpGateBy64:
        position =
            row.row / kCuteRows * 2 * kCuteRows + (1 - row.half) * kCuteRows + row.row % kCuteRows;
        break;
    }
  }
  return shuffle == RowShuffle::kNone ? position : unshuffled(position, block_rows(shuffle));
}

}  // namespace lode::layout
