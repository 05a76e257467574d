#include "lode/text/bpe.h"

#include <algorithm>
#include <queue>
#include <tuple>

#include "lode/text/json_fields.h"

namespace lode::text {
namespace {

constexpr std::uint32_t kNone = Vocabulary::kNone;

struct Rule {
  std::uint32_t left;
  std::uint32_t right;
  std::uint32_t rank;
  std::uint32_t result;
};

Result<Rule> resolve(const Vocabulary& vocabulary, const MergeList& merges, std::uint32_t rank) {
  const std::string_view left = merges.left(rank);
  const std::string_view right = merges.right(rank);
  const std::string whole = std::string(left) + std::string(right);
  const Rule rule = {vocabulary.find_content(left), vocabulary.find_content(right), rank,
                     vocabulary.find_content(whole)};
  const auto missing = [&](std::string_view part) {
    return invalid("model.merges[" + std::to_string(rank) + "]", "tokens of the vocabulary",
                   json::dump(json::Value(part)));
  };
  if (rule.left == kNone) return missing(left);
  if (rule.right == kNone) return missing(right);
  if (rule.result == kNone) return missing(whole);
  return rule;
}

// Of a pair that is listed twice the later rank counts, as in the reference.
void sort_and_drop_twins(std::vector<Rule>& rules) {
  std::sort(rules.begin(), rules.end(), [](const Rule& a, const Rule& b) {
    return std::tuple(a.left, a.right, b.rank) < std::tuple(b.left, b.right, a.rank);
  });
  const auto twins = [](const Rule& a, const Rule& b) {
    return a.left == b.left && a.right == b.right;
  };
  rules.erase(std::unique(rules.begin(), rules.end(), twins), rules.end());
}

}  // namespace

void MergeList::add(std::string_view left, std::string_view right) {
  text_ += left;
  ends_.push_back(static_cast<std::uint32_t>(text_.size()));
  text_ += right;
  ends_.push_back(static_cast<std::uint32_t>(text_.size()));
}

std::string_view MergeList::part(std::size_t i) const noexcept {
  const std::size_t begin = i == 0 ? 0 : ends_[i - 1];
  return std::string_view(text_).substr(begin, ends_[i] - begin);
}

Result<Bpe> Bpe::make(const Vocabulary& vocabulary, const MergeList& merges,
                      const BpeOptions& options) {
  std::vector<Rule> rules;
  rules.reserve(merges.size());
  for (std::uint32_t rank = 0; rank < merges.size(); ++rank) {
    LODE_TRY(const Rule rule, resolve(vocabulary, merges, rank));
    rules.push_back(rule);
  }
  sort_and_drop_twins(rules);
  Bpe bpe;
  bpe.options_ = options;
  bpe.merges_.reserve(rules.size());
  bpe.begins_.assign(std::size_t{vocabulary.size()} + 1, 0);
  for (const Rule& rule : rules) {
    bpe.merges_.push_back({rule.right, rule.rank, rule.result});
    ++bpe.begins_[rule.left + 1];
  }
  for (std::size_t i = 1; i < bpe.begins_.size(); ++i) bpe.begins_[i] += bpe.begins_[i - 1];
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char as_char = static_cast<char>(byte);
    bpe.byte_tokens_[byte] = vocabulary.find_bytes({&as_char, 1});
  }
  return bpe;
}

const Bpe::Merge* Bpe::find(std::uint32_t left, std::uint32_t right) const noexcept {
  const Merge* const begin = merges_.data() + begins_[left];
  const Merge* const end = merges_.data() + begins_[left + 1];
  const Merge* const found = std::lower_bound(
      begin, end, right, [](const Merge& merge, std::uint32_t key) { return merge.right < key; });
  return found != end && found->right == right ? found : nullptr;
}

// The symbols of one word as a linked list, and a heap of the merges that seemed possible. An entry
// of the heap is stale when its pair is no longer there.
class WordMerger {
 public:
  WordMerger(const Bpe& bpe, std::string_view word) : bpe_(bpe) {
    symbols_.reserve(word.size());
    for (std::uint32_t at = 0; at < word.size(); ++at) {
      add_byte(bpe.byte_tokens_[static_cast<std::uint8_t>(word[at])], at);
    }
    for (std::uint32_t i = 0; i < symbols_.size(); ++i) {
      symbols_[i].previous = i == 0 ? kNone : i - 1;
      symbols_[i].next = i + 1 < symbols_.size() ? i + 1 : kNone;
    }
  }

  void run() {
    for (std::uint32_t i = 0; i + 1 < symbols_.size(); ++i) offer(i);
    while (!heap_.empty()) {
      const Candidate top = heap_.top();
      heap_.pop();
      Symbol& left = symbols_[top.at];
      if (left.index == kNone || left.next == kNone) continue;
      const Bpe::Merge* merge = bpe_.find(left.index, symbols_[left.next].index);
      if (merge == nullptr || merge->result != top.result) continue;
      apply(top.at, merge->result);
    }
  }

  void append_to(std::vector<WordToken>& out) const {
    for (const Symbol& symbol : symbols_) {
      if (symbol.index != kNone) out.push_back({symbol.index, symbol.begin, symbol.end});
    }
  }

 private:
  struct Symbol {
    std::uint32_t index;  // kNone: it is part of the symbol before it
    std::uint32_t begin;
    std::uint32_t end;
    std::uint32_t previous = kNone;
    std::uint32_t next = kNone;
  };
  struct Candidate {
    std::uint32_t rank;
    std::uint32_t at;
    std::uint32_t result;
    // For a heap with the smallest on top.
    bool operator<(const Candidate& other) const noexcept {
      return std::tuple(rank, at) > std::tuple(other.rank, other.at);
    }
  };

  void add_byte(std::uint32_t index, std::uint32_t at) {
    const BpeOptions& options = bpe_.options_;
    if (index == kNone) index = options.unknown;
    if (index == kNone) return;
    const bool fuse = options.fuse_unknown && index == options.unknown && !symbols_.empty() &&
                      symbols_.back().index == index;
    if (fuse) {
      symbols_.back().end = at + 1;
    } else {
      symbols_.push_back({index, at, at + 1});
    }
  }
  void offer(std::uint32_t at) {
    const Symbol& left = symbols_[at];
    if (left.next == kNone) return;
    const Bpe::Merge* merge = bpe_.find(left.index, symbols_[left.next].index);
    if (merge != nullptr) heap_.push({merge->rank, at, merge->result});
  }
  void apply(std::uint32_t at, std::uint32_t result) {
    Symbol& left = symbols_[at];
    Symbol& right = symbols_[left.next];
    left.index = result;
    left.end = right.end;
    left.next = right.next;
    right.index = kNone;
    if (left.next != kNone) symbols_[left.next].previous = at;
    if (left.previous != kNone) offer(left.previous);
    offer(at);
  }

  const Bpe& bpe_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Candidate> heap_;
};

void Bpe::append_tokens(const Vocabulary& vocabulary, std::string_view word,
                        std::vector<WordToken>& out) const {
  if (options_.ignore_merges) {
    const std::uint32_t whole = vocabulary.find_bytes(word);
    if (whole != kNone) {
      out.push_back({whole, 0, static_cast<std::uint32_t>(word.size())});
      return;
    }
  }
  WordMerger merger(*this, word);
  merger.run();
  merger.append_to(out);
}

std::uint64_t Bpe::making_bytes(std::uint64_t num_merges) noexcept {
  return num_merges * sizeof(Rule);
}

std::uint64_t Bpe::held_bytes() const noexcept {
  return begins_.capacity() * sizeof(std::uint32_t) + merges_.capacity() * sizeof(Merge);
}

}  // namespace lode::text
