#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lode::eplb {

/// A rank's records before and after a step.
///
/// Shapes:  now, next [slots]: experts, or kNoExpert; received: those that lie in the buffer, in
///          its order.
struct Rearrangement {
  std::span<const std::int32_t> now;
  std::span<const std::int32_t> next;
  std::span<const std::int32_t> received;
};

/// The bytes of both. Shapes:  bank [slots][record_bytes]; buffer [received][record_bytes].
struct RecordBytes {
  std::span<std::byte> bank;
  std::span<const std::byte> buffer;
  std::size_t record_bytes = 0;
};

/// Brings every record of a rank to its slot, from the other slots and from the buffer, without
/// room for a further record: no slot is overwritten before its last reader, records that change
/// places in a circle are exchanged a piece at a time. It cannot fail. The records it wrote.
std::size_t rearrange(const Rearrangement& order, const RecordBytes& bytes);

}  // namespace lode::eplb
