#include "lode/text/vocabulary.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "lode/text/byte_alphabet.h"
#include "lode/text/json_fields.h"

namespace lode::text {
namespace {

std::size_t hash_of(std::string_view bytes) noexcept {
  return std::hash<std::string_view>{}(bytes);
}

Error two_of(std::string_view what, std::string first, std::string second) {
  return invalid("model.vocab", "distinct tokens and ids",
                 std::string(what) + " of " + json::dump(json::Value(std::move(first))) + " and " +
                     json::dump(json::Value(std::move(second))));
}

}  // namespace

void Vocabulary::Builder::add(std::string_view content, std::int32_t id, bool from_vocab) {
  const auto begin = static_cast<std::uint32_t>(bytes_.size());
  std::uint8_t flags = from_vocab ? kFromVocab : std::uint8_t{0};
  if (const auto spelled = spelled_bytes(content)) {
    bytes_ += *spelled;
  } else {
    bytes_ += content;
    flags |= kPlain;
  }
  entries_.push_back({id, begin, static_cast<std::uint32_t>(bytes_.size()) - begin, flags});
}

Result<Vocabulary> Vocabulary::Builder::build() && {
  Vocabulary vocabulary;
  LODE_TRY_STATUS(vocabulary.fill(std::move(*this)));
  LODE_TRY_STATUS(vocabulary.index_all());
  return vocabulary;
}

// Puts the entries in the order of their ids; what was added twice alike becomes one.
Status Vocabulary::fill(Builder&& builder) {
  auto entries = std::move(builder.entries_);
  std::stable_sort(entries.begin(), entries.end(),
                   [](const auto& a, const auto& b) { return a.id < b.id; });
  const std::string_view all = builder.bytes_;
  bytes_.reserve(all.size());
  ids_.reserve(entries.size());
  flags_.reserve(entries.size());
  begins_.reserve(entries.size() + 1);
  begins_.push_back(0);
  for (const auto& entry : entries) {
    const std::string_view own = all.substr(entry.begin, entry.length);
    if (!ids_.empty() && ids_.back() == entry.id) {
      const bool alike = ((flags_.back() ^ entry.flags) & kPlain) == 0 && bytes(size() - 1) == own;
      if (!alike)
        return two_of("id " + std::to_string(entry.id), content(size() - 1), std::string(own));
      flags_.back() |= entry.flags;
      continue;
    }
    ids_.push_back(entry.id);
    flags_.push_back(entry.flags);
    bytes_ += own;
    begins_.push_back(static_cast<std::uint32_t>(bytes_.size()));
  }
  return {};
}

Status Vocabulary::index_all() {
  slots_.assign(std::bit_ceil(std::size_t{size()} + size() / 2 + 1), 0);
  const std::size_t mask = slots_.size() - 1;
  for (std::uint32_t index = 0; index < size(); ++index) {
    const std::uint32_t twin = find(bytes(index), flags_[index] & kPlain);
    if (twin != kNone) return two_of("two ids", content(twin), content(index));
    std::size_t slot = hash_of(bytes(index)) & mask;
    while (slots_[slot] != 0) slot = (slot + 1) & mask;
    slots_[slot] = index + 1;
  }
  return {};
}

std::uint32_t Vocabulary::find(std::string_view wanted, std::uint8_t plain) const noexcept {
  if (slots_.empty()) return kNone;
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t slot = hash_of(wanted) & mask; slots_[slot] != 0; slot = (slot + 1) & mask) {
    const std::uint32_t index = slots_[slot] - 1;
    if ((flags_[index] & kPlain) == plain && bytes(index) == wanted) return index;
  }
  return kNone;
}

std::uint32_t Vocabulary::index_of(std::int32_t id) const noexcept {
  const auto place = static_cast<std::size_t>(id);
  if (id >= 0 && place < ids_.size() && ids_[place] == id) return static_cast<std::uint32_t>(place);
  const auto found = std::lower_bound(ids_.begin(), ids_.end(), id);
  if (found == ids_.end() || *found != id) return kNone;
  return static_cast<std::uint32_t>(found - ids_.begin());
}

std::uint32_t Vocabulary::find_content(std::string_view content) const {
  const auto spelled = spelled_bytes(content);
  return spelled ? find(*spelled, 0) : find(content, kPlain);
}

std::uint32_t Vocabulary::find_bytes(std::string_view wanted) const noexcept {
  const std::uint32_t index = find(wanted, 0);
  return index != kNone && (flags_[index] & kFromVocab) != 0 ? index : kNone;
}

std::string_view Vocabulary::bytes(std::uint32_t index) const noexcept {
  return std::string_view(bytes_).substr(begins_[index], begins_[index + 1] - begins_[index]);
}

std::string Vocabulary::content(std::uint32_t index) const {
  return (flags_[index] & kPlain) != 0 ? std::string(bytes(index)) : spell(bytes(index));
}

std::uint64_t Vocabulary::held_bytes() const noexcept {
  return bytes_.capacity() + flags_.capacity() + begins_.capacity() * sizeof(std::uint32_t) +
         ids_.capacity() * sizeof(std::int32_t) + slots_.capacity() * sizeof(std::uint32_t);
}

}  // namespace lode::text
