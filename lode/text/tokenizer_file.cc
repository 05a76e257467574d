#include "lode/text/tokenizer_file.h"

#include <array>
#include <string>
#include <vector>

#include "lode/text/json_fields.h"

namespace lode::text {
namespace {

// Builds json::Values from events; one value at a time.
class TreeBuilder {
 public:
  void name(std::string_view name) { open_.back().name = name; }
  void add(json::Value value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return;
    }
    Level& level = open_.back();
    if (level.is_array) {
      level.items.push_back(std::move(value));
    } else {
      level.members.emplace_back(std::move(level.name), std::move(value));
    }
  }
  void open_array() { open_.push_back({.is_array = true}); }
  void open_object() { open_.push_back({.is_array = false}); }
  void close() {
    Level level = std::move(open_.back());
    open_.pop_back();
    add(level.is_array ? json::Value(std::move(level.items))
                       : json::Value(std::move(level.members)));
  }
  std::size_t depth() const noexcept { return open_.size(); }
  std::string_view name_at(std::size_t level) const noexcept { return open_[level].name; }
  json::Value take() { return std::move(root_); }

 private:
  struct Level {
    bool is_array = false;
    json::Array items{};
    json::Object members{};
    std::string name{};
  };
  std::vector<Level> open_;
  json::Value root_;
};

// Sends model.vocab and model.merges into their lists and everything else into the tree.
class FileHandler final : public json::Handler {
 public:
  explicit FileHandler(TokenizerFile& file) : file_(file) {}

  Status begin_object() override {
    if (state_ != State::kTree) return bad_entry();
    if (next_is("vocab")) {
      state_ = State::kVocab;
    } else {
      tree_.open_object();
    }
    return {};
  }
  Status name(std::string_view name) override {
    if (state_ == State::kVocab) {
      token_ = name;
    } else {
      tree_.name(name);
    }
    return {};
  }
  Status end_object() override {
    if (state_ == State::kVocab) {
      state_ = State::kTree;
    } else {
      tree_.close();
    }
    return {};
  }
  Status begin_array() override {
    if (state_ == State::kMerges) {
      state_ = State::kPair;
      num_parts_ = 0;
      return {};
    }
    if (state_ != State::kTree) return bad_entry();
    if (next_is("vocab")) return unsupported("model.vocab", "the object of a BPE model", "array");
    if (next_is("merges")) {
      state_ = State::kMerges;
    } else {
      tree_.open_array();
    }
    return {};
  }
  Status end_array() override {
    switch (state_) {
      case State::kPair:
        state_ = State::kMerges;
        if (num_parts_ != parts_.size()) return bad_entry();
        file_.merges.add(parts_[0], parts_[1]);
        break;
      case State::kMerges:
        state_ = State::kTree;
        break;
      default:
        tree_.close();
    }
    return {};
  }
  Status scalar(json::Value value) override {
    switch (state_) {
      case State::kVocab:
        return add_token(value);
      case State::kMerges:
        return add_merge(value);
      case State::kPair:
        return add_part(value);
      default:
        tree_.add(std::move(value));
        return {};
    }
  }
  json::Value take() { return tree_.take(); }

 private:
  enum class State { kTree, kVocab, kMerges, kPair };

  bool next_is(std::string_view name) const noexcept {
    return tree_.depth() == 2 && tree_.name_at(0) == "model" && tree_.name_at(1) == name;
  }
  Error bad_entry() const {
    if (state_ == State::kVocab) {
      return invalid("model.vocab", "token ids", "a container at " + quoted(token_));
    }
    return invalid("model.merges[" + std::to_string(file_.merges.size()) + "]",
                   "two tokens as one string or as a pair", "something else");
  }
  static std::string quoted(std::string_view text) { return json::dump(json::Value(text)); }

  Status add_token(const json::Value& value) {
    LODE_TRY(const std::int32_t id, token_id(value, "model.vocab[" + quoted(token_) + "]"));
    file_.vocabulary.add(token_, id, true);
    return {};
  }
  // The old form: two tokens around one space.
  Status add_merge(const json::Value& value) {
    const std::string* text = value.as_string();
    if (text == nullptr) return bad_entry();
    const std::size_t space = text->find(' ');
    if (space == text->npos || text->find(' ', space + 1) != text->npos) return bad_entry();
    const std::string_view both = *text;
    file_.merges.add(both.substr(0, space), both.substr(space + 1));
    return {};
  }
  Status add_part(const json::Value& value) {
    if (value.as_string() == nullptr || num_parts_ == parts_.size()) return bad_entry();
    parts_[num_parts_++] = *value.as_string();
    return {};
  }

  TokenizerFile& file_;
  TreeBuilder tree_;
  State state_ = State::kTree;
  std::string token_;  // the name whose id comes next
  std::array<std::string, 2> parts_;
  std::size_t num_parts_ = 0;
};

}  // namespace

std::uint64_t TokenizerFile::held_bytes() const noexcept {
  return vocabulary.held_bytes() + merges.held_bytes();
}

Result<TokenizerFile> read_tokenizer_file(std::string_view tokenizer_json) {
  TokenizerFile file;
  FileHandler handler(file);
  LODE_TRY_STATUS(json::parse_streaming(tokenizer_json, handler));
  file.rest = handler.take();
  return file;
}

Result<TokenizerFile> read_tokenizer_file(json::Source& source) {
  TokenizerFile file;
  FileHandler handler(file);
  LODE_TRY_STATUS(json::parse_streaming(source, handler));
  file.rest = handler.take();
  return file;
}

}  // namespace lode::text
