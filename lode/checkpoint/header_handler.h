#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lode/base/result.h"
#include "lode/checkpoint/safetensors.h"
#include "lode/json/json.h"

namespace lode::checkpoint {

/// Turns the JSON of a safetensors header into records while it is parsed. Knows the form only
/// (which fields, of which kinds); whether the numbers fit together is checked afterwards.
/// Records carry `file_offset` relative to the data, and bytes = end - begin.
class HeaderHandler final : public json::Handler {
 public:
  HeaderHandler(ShardHeader& header, RecordArena& arena) : header_(header), arena_(arena) {}

  Status begin_object() override;
  Status name(std::string_view name) override;
  Status end_object() override;
  Status begin_array() override;
  Status end_array() override;
  Status scalar(json::Value value) override;

  /// Errors: kInvalidSource where the text was no object.
  Status finish() const;

 private:
  // Where the parse stands. kSkipped: inside the value of a field that we do not know.
  enum class State : std::uint8_t { kStart, kTop, kTensor, kShape, kOffsets, kMetadata, kSkipped };
  enum class Field : std::uint8_t { kDtype, kShape, kOffsets, kOther };

  Error bad(std::string wanted, std::string found) const;
  Status begin_tensor();
  Status end_tensor();
  Status begin_skipped();
  Status end_skipped();
  Status number(const json::Value& value);

  ShardHeader& header_;
  RecordArena& arena_;
  State state_ = State::kStart;
  Field field_ = Field::kOther;
  int skipped_depth_ = 0;
  bool done_ = false;

  std::string name_;  // of the tensor, or the key in __metadata__
  bool has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
  std::string dtype_;
  std::vector<std::uint64_t> dims_;
  std::vector<std::uint64_t> offsets_;
};

}  // namespace lode::checkpoint
