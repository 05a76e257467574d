#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "lode/base/result.h"

namespace lode::memory {

/// What bytes are for. The same words in receipts, JSON and metrics.
enum class Tag : std::uint8_t {
  kWeights,     // prepared weights, padding included
  kKvCache,     // keys and values of the tokens seen
  kStaging,     // the ring between disk and weights
  kScratch,     // activations and per-thread tiles
  kMetadata,    // names, shapes, tokenizer, tables
  kPageTables,  // what the kernel needs to map the above
};
inline constexpr std::size_t kNumTags = 6;
std::string_view name(Tag tag) noexcept;
/// A few words for the documents.
std::string_view meaning(Tag tag) noexcept;

using TagBytes = std::array<std::uint64_t, kNumTags>;
std::uint64_t total(const TagBytes& bytes) noexcept;
constexpr std::uint64_t& of(TagBytes& bytes, Tag tag) noexcept {
  return bytes[static_cast<std::size_t>(tag)];
}
constexpr std::uint64_t of(const TagBytes& bytes, Tag tag) noexcept {
  return bytes[static_cast<std::size_t>(tag)];
}

/// One stage of a run: what was held when it ended and the most that was held while it lasted.
struct StageUse {
  std::string name;
  TagBytes held_bytes{};  // at the end of the stage
  TagBytes peak_bytes{};  // per tag, each at its own highest instant
  std::uint64_t peak_total_bytes = 0;

  friend bool operator==(const StageUse&, const StageUse&) = default;
};

class Ledger;

/// The right to hold some bytes. Moving it moves the claim; its end gives the bytes back.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation();

  std::uint64_t bytes() const noexcept { return bytes_; }
  Tag tag() const noexcept { return tag_; }

 private:
  friend class Ledger;
  Reservation(Ledger& ledger, Tag tag, std::uint64_t bytes) noexcept
      : ledger_(&ledger), tag_(tag), bytes_(bytes) {}

  Ledger* ledger_ = nullptr;
  Tag tag_ = Tag::kScratch;
  std::uint64_t bytes_ = 0;
};

/// The one account of bytes: exact at every instant, and hard. No reservation, no bytes.
///
/// The program makes one ledger and hands it down; it must outlive every reservation. Thread-safe.
class Ledger {
 public:
  explicit Ledger(std::uint64_t limit_bytes);
  virtual ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  /// Promises `bytes` for `what`.
  /// Errors: kOverBudget naming what is needed, held and the limit; nothing is held then.
  Result<Reservation> reserve(Tag tag, std::uint64_t bytes, std::string_view what);

  /// Ends the running stage, if any, and begins the next one.
  void begin_stage(std::string name);
  void end_stage();

  std::uint64_t limit_bytes() const noexcept { return limit_bytes_; }
  std::uint64_t held_bytes() const;
  std::uint64_t held_bytes(Tag tag) const;
  std::uint64_t peak_bytes() const;
  std::vector<StageUse> stages() const;  // those that have ended

 protected:
  /// Asked before each reservation; a FailingLedger says no.
  virtual bool refuses_next() noexcept { return false; }

 private:
  friend class Reservation;
  void give_back(Tag tag, std::uint64_t bytes) noexcept;
  void end_stage_locked();

  const std::uint64_t limit_bytes_;
  mutable std::mutex mutex_;
  TagBytes held_{};
  std::uint64_t peak_bytes_ = 0;
  StageUse running_;
  bool in_stage_ = false;
  std::vector<StageUse> stages_;
};

/// For tests: refuses the k-th reservation (counted from 0), grants the others.
class FailingLedger final : public Ledger {
 public:
  FailingLedger(std::uint64_t limit_bytes, std::uint64_t refused_idx)
      : Ledger(limit_bytes), refused_idx_(refused_idx) {}
  /// Whether the run came as far as the reservation that is refused.
  bool refused() const noexcept { return next_idx_ > refused_idx_; }

 private:
  bool refuses_next() noexcept override { return next_idx_++ == refused_idx_; }

  std::uint64_t refused_idx_;
  std::uint64_t next_idx_ = 0;  // guarded by the ledger's mutex
};

}  // namespace lode::memory
