#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace lode::comm {

/// The collectives of a Group. Ranks that meet in different ones have lost their common thread.
enum class Operation : std::uint8_t {
  kBarrier,
  kAllGather,
  kAllToAll,
  kBroadcast,
  kDuplicate,
  kEnd,  // no collective: the rank has finished with the group
};

/// "all_gather": as the method is called.
std::string_view name_of(Operation operation) noexcept;

/// One collective as its rank sees it: what goes to each rank and what comes from each. Every
/// collective is this, with other spans; the rank's own piece is already where it belongs.
struct Exchange {
  Operation operation = Operation::kBarrier;
  std::size_t root = 0;                                    // of a broadcast
  std::span<const std::span<const std::byte>> outgoing{};  // by rank; own one ignored
  std::span<const std::span<std::byte>> incoming{};        // by rank; own one ignored

  /// Whether a message goes from one rank to another, perhaps of no bytes: so that both find out
  /// when they disagree on its size.
  bool flows(std::size_t from, std::size_t to) const noexcept {
    return from != to && (operation != Operation::kBroadcast || from == root);
  }
};

}  // namespace lode::comm
