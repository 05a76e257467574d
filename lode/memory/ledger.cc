#include "lode/memory/ledger.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"

namespace lode::memory {
namespace {

constexpr std::array<std::string_view, kNumTags> kTagNames = {"weights", "kv_cache", "staging",
                                                              "scratch", "metadata", "page_tables"};
constexpr std::array<std::string_view, kNumTags> kTagMeanings = {
    "prepared weights, padding included",
    "keys and values of the tokens seen",
    "the ring between disk and weights",
    "activations and per-thread tiles",
    "names, shapes, tokenizer, tables",
    "what the kernel needs to map the above: one 512th with 4 KiB pages"};

constexpr std::size_t index(Tag tag) noexcept { return static_cast<std::size_t>(tag); }

}  // namespace

std::string_view name(Tag tag) noexcept { return kTagNames[index(tag)]; }

std::string_view meaning(Tag tag) noexcept { return kTagMeanings[index(tag)]; }

std::uint64_t total(const TagBytes& bytes) noexcept {
  return std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
}

Reservation::Reservation(Reservation&& other) noexcept
    : ledger_(std::exchange(other.ledger_, nullptr)),
      tag_(other.tag_),
      bytes_(std::exchange(other.bytes_, 0)) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this == &other) return *this;
  if (ledger_ != nullptr) ledger_->give_back(tag_, bytes_);
  ledger_ = std::exchange(other.ledger_, nullptr);
  tag_ = other.tag_;
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

Reservation::~Reservation() {
  if (ledger_ != nullptr) ledger_->give_back(tag_, bytes_);
}

Ledger::Ledger(std::uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}

Ledger::~Ledger() { LODE_CHECK(total(held_) == 0, "a reservation outlived its ledger"); }

Result<Reservation> Ledger::reserve(Tag tag, std::uint64_t bytes, std::string_view what) {
  const std::scoped_lock lock(mutex_);
  const std::uint64_t held = total(held_);
  if (refuses_next() || bytes > limit_bytes_ - held) {
    return Error{
        .code = Code::kOverBudget,
        .thing = std::string(what),
        .wanted = fmt::format("{} bytes of {}", bytes, name(tag)),
        .found =
            fmt::format("{} of {} bytes free, {} held", limit_bytes_ - held, limit_bytes_, held),
    };
  }
  held_[index(tag)] += bytes;
  peak_bytes_ = std::max(peak_bytes_, held + bytes);
  running_.peak_bytes[index(tag)] = std::max(running_.peak_bytes[index(tag)], held_[index(tag)]);
  running_.peak_total_bytes = std::max(running_.peak_total_bytes, held + bytes);
  return Reservation(*this, tag, bytes);
}

void Ledger::give_back(Tag tag, std::uint64_t bytes) noexcept {
  const std::scoped_lock lock(mutex_);
  LODE_CHECK(held_[index(tag)] >= bytes, "more bytes given back than were held");
  held_[index(tag)] -= bytes;
}

void Ledger::begin_stage(std::string name) {
  const std::scoped_lock lock(mutex_);
  end_stage_locked();
  running_ = StageUse{.name = std::move(name),
                      .held_bytes = held_,
                      .peak_bytes = held_,
                      .peak_total_bytes = total(held_)};
  in_stage_ = true;
}

void Ledger::end_stage() {
  const std::scoped_lock lock(mutex_);
  end_stage_locked();
}

void Ledger::end_stage_locked() {
  if (!in_stage_) return;
  running_.held_bytes = held_;
  stages_.push_back(std::move(running_));
  running_ = StageUse{};
  in_stage_ = false;
}

std::uint64_t Ledger::held_bytes() const {
  const std::scoped_lock lock(mutex_);
  return total(held_);
}

std::uint64_t Ledger::held_bytes(Tag tag) const {
  const std::scoped_lock lock(mutex_);
  return held_[index(tag)];
}

std::uint64_t Ledger::peak_bytes() const {
  const std::scoped_lock lock(mutex_);
  return peak_bytes_;
}

std::vector<StageUse> Ledger::stages() const {
  const std::scoped_lock lock(mutex_);
  return stages_;
}

}  // namespace lode::memory
