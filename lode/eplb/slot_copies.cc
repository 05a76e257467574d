#include "lode/eplb/slot_copies.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "lode/base/check.h"

namespace lode::eplb {
namespace {

constexpr std::size_t kNoSource = ~std::size_t{0};
constexpr std::size_t kPieceBytes = 4096;  // of records in a circle; lies on the stack

// Sources are slots, and behind them entries of the buffer.
class Copies {
 public:
  Copies(const Rearrangement& order, const RecordBytes& bytes)
      : bytes_(bytes), source_(order.now.size(), kNoSource), readers_(order.now.size()) {
    for (std::size_t slot = 0; slot < source_.size(); ++slot) {
      if (order.next[slot] < 0 || order.next[slot] == order.now[slot]) continue;
      source_[slot] = source_of(order, order.next[slot]);
      if (source_[slot] < source_.size()) ++readers_[source_[slot]];
    }
  }

  std::size_t run() {
    std::vector<std::size_t> ready;
    for (std::size_t slot = 0; slot < source_.size(); ++slot)
      if (source_[slot] != kNoSource && readers_[slot] == 0) ready.push_back(slot);
    while (!ready.empty()) {
      const std::size_t slot = ready.back();
      ready.pop_back();
      const std::size_t source = copy_to(slot);
      if (source >= source_.size()) continue;
      if (--readers_[source] == 0 && source_[source] != kNoSource) ready.push_back(source);
    }
    // What is left are circles, in which every slot has one reader.
    for (std::size_t slot = 0; slot < source_.size(); ++slot)
      if (source_[slot] != kNoSource) turn(slot);
    return written_;
  }

 private:
  static std::size_t source_of(const Rearrangement& order, std::int32_t expert) {
    const auto here = std::ranges::find(order.now, expert);
    if (here != order.now.end()) return static_cast<std::size_t>(here - order.now.begin());
    const auto there = std::ranges::find(order.received, expert);
    LODE_CHECK(there != order.received.end(), "what a slot gets lies in a slot or in the buffer");
    return order.now.size() + static_cast<std::size_t>(there - order.received.begin());
  }

  std::span<std::byte> slot_bytes(std::size_t slot) const {
    return bytes_.bank.subspan(slot * bytes_.record_bytes, bytes_.record_bytes);
  }
  std::span<const std::byte> source_bytes(std::size_t source) const {
    if (source < source_.size()) return slot_bytes(source);
    return bytes_.buffer.subspan((source - source_.size()) * bytes_.record_bytes,
                                 bytes_.record_bytes);
  }

  std::size_t copy_to(std::size_t slot) {
    const std::size_t source = std::exchange(source_[slot], kNoSource);
    std::memcpy(slot_bytes(slot).data(), source_bytes(source).data(), bytes_.record_bytes);
    ++written_;
    return source;
  }

  void turn(std::size_t first) {
    std::array<std::byte, kPieceBytes> aside;
    for (std::size_t at = 0; at < bytes_.record_bytes; at += kPieceBytes) {
      const std::size_t count = std::min(kPieceBytes, bytes_.record_bytes - at);
      const auto piece = [&](std::size_t slot) { return slot_bytes(slot).subspan(at, count); };
      std::memcpy(aside.data(), piece(first).data(), count);
      std::size_t slot = first;
      for (; source_[slot] != first; slot = source_[slot])
        std::memcpy(piece(slot).data(), piece(source_[slot]).data(), count);
      std::memcpy(piece(slot).data(), aside.data(), count);
    }
    for (std::size_t slot = first; source_[slot] != kNoSource; ++written_)
      slot = std::exchange(source_[slot], kNoSource);
  }

  RecordBytes bytes_;
  std::vector<std::size_t> source_;   // of each slot that changes
  std::vector<std::size_t> readers_;  // slots that still need what a slot holds now
  std::size_t written_ = 0;
};

}  // namespace

std::size_t rearrange(const Rearrangement& order, const RecordBytes& bytes) {
  LODE_CHECK(order.now.size() == order.next.size() &&
                 bytes.bank.size() == order.now.size() * bytes.record_bytes &&
                 bytes.buffer.size() >= order.received.size() * bytes.record_bytes,
             "a record for every slot and every one received");
  return Copies(order, bytes).run();
}

}  // namespace lode::eplb
