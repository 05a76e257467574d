#include "lode/checkpoint/header_handler.h"

#include <utility>

#include "lode/base/fmt.h"

namespace lode::checkpoint {
namespace {

constexpr std::string_view kMetadataName = "__metadata__";
constexpr std::size_t kMaxNameBytes = 4096;

}  // namespace

Error HeaderHandler::bad(std::string wanted, std::string found) const {
  const bool in_tensor =
      state_ == State::kTensor || state_ == State::kShape || state_ == State::kOffsets;
  const std::string thing = in_tensor ? fmt::format("tensor {}", printable(name_))
                            : state_ == State::kMetadata ? std::string(kMetadataName)
                                                         : std::string("safetensors header");
  return {.code = Code::kInvalidSource,
          .thing = thing,
          .wanted = std::move(wanted),
          .found = std::move(found)};
}

Status HeaderHandler::begin_object() {
  switch (state_) {
    case State::kStart:
      state_ = State::kTop;
      return {};
    case State::kTop:
      if (name_ != kMetadataName) return begin_tensor();
      state_ = State::kMetadata;
      return {};
    case State::kTensor:
      if (field_ == Field::kOther) return begin_skipped();
      return bad("dtype, shape and data_offsets", "an object in one of their places");
    case State::kSkipped:
      ++skipped_depth_;
      return {};
    case State::kMetadata:
      return bad("only strings", "an object");
    case State::kShape:
    case State::kOffsets:
      return bad("only whole numbers in its lists", "an object");
  }
  return {};
}

Status HeaderHandler::begin_tensor() {
  if (header_.tensors.size() >= kMaxTensorsPerShard) {
    return bad(fmt::format("at most {} tensors", kMaxTensorsPerShard), "more");
  }
  state_ = State::kTensor;
  has_dtype_ = has_shape_ = has_offsets_ = false;
  dims_.clear();
  offsets_.clear();
  return {};
}

Status HeaderHandler::name(std::string_view name) {
  if (state_ == State::kTop || state_ == State::kMetadata) {
    if (name.size() > kMaxNameBytes) {
      return bad(fmt::format("names of at most {} bytes", kMaxNameBytes),
                 fmt::format("one of {}", name.size()));
    }
    name_ = name;
  } else if (state_ == State::kTensor) {
    field_ = name == "dtype"          ? Field::kDtype
             : name == "shape"        ? Field::kShape
             : name == "data_offsets" ? Field::kOffsets
                                      : Field::kOther;
  }
  return {};
}

Status HeaderHandler::end_object() {
  switch (state_) {
    case State::kTensor:
      return end_tensor();
    case State::kMetadata:
      state_ = State::kTop;
      return {};
    case State::kSkipped:
      return end_skipped();
    default:
      done_ = true;
      return {};
  }
}

Status HeaderHandler::end_tensor() {
  if (!has_dtype_ || !has_shape_ || !has_offsets_) {
    return bad("dtype, shape and data_offsets",
               fmt::format("no {}", !has_dtype_   ? "dtype"
                                    : !has_shape_ ? "shape"
                                                  : "data_offsets"));
  }
  if (offsets_.size() != 2) {
    return bad("two data_offsets", fmt::format("{}", offsets_.size()));
  }
  if (offsets_[1] < offsets_[0]) {
    return bad("data_offsets with begin before end",
               fmt::format("[{}, {}]", offsets_[0], offsets_[1]));
  }
  TensorRecord& tensor = header_.tensors.emplace_back();
  tensor.name = arena_.keep_name(name_);
  tensor.dtype = arena_.keep_dtype(dtype_);
  tensor.format = formats::format_by_safetensors_name(dtype_);
  tensor.dims = arena_.keep_dims(dims_);
  tensor.file_offset = offsets_[0];
  tensor.bytes = offsets_[1] - offsets_[0];
  state_ = State::kTop;
  return {};
}

Status HeaderHandler::begin_array() {
  switch (state_) {
    case State::kTensor:
      if (field_ == Field::kOther) return begin_skipped();
      if (field_ == Field::kDtype) return bad("a dtype that is a string", "an array");
      state_ = field_ == Field::kShape ? State::kShape : State::kOffsets;
      return {};
    case State::kSkipped:
      ++skipped_depth_;
      return {};
    case State::kShape:
    case State::kOffsets:
      return bad("only whole numbers in its lists", "an array");
    case State::kMetadata:
      return bad("only strings", "an array");
    default:
      return bad("an object", "an array");
  }
}

Status HeaderHandler::end_array() {
  if (state_ == State::kSkipped) return end_skipped();
  (state_ == State::kShape ? has_shape_ : has_offsets_) = true;
  state_ = State::kTensor;
  return {};
}

Status HeaderHandler::begin_skipped() {
  state_ = State::kSkipped;
  skipped_depth_ = 1;
  return {};
}

Status HeaderHandler::end_skipped() {
  if (--skipped_depth_ == 0) state_ = State::kTensor;
  return {};
}

Status HeaderHandler::number(const json::Value& value) {
  const std::int64_t* const small = value.as_int();
  const std::uint64_t* const big = value.as_big_uint();
  if ((small == nullptr || *small < 0) && big == nullptr) {
    return bad("whole numbers from 0 in shape and data_offsets",
               fmt::format("{} {}", value.kind(), printable(json::dump(value))));
  }
  std::vector<std::uint64_t>& list = state_ == State::kShape ? dims_ : offsets_;
  list.push_back(big != nullptr ? *big : static_cast<std::uint64_t>(*small));
  if (list.size() > kMaxRank) {
    return bad(fmt::format("at most {} dimensions", kMaxRank), "more");
  }
  return {};
}

Status HeaderHandler::scalar(json::Value value) {
  switch (state_) {
    case State::kShape:
    case State::kOffsets:
      return number(value);
    case State::kSkipped:
      return {};
    case State::kMetadata:
      if (const std::string* text = value.as_string()) {
        header_.metadata.emplace_back(name_, *text);
        return {};
      }
      return bad("only strings", fmt::format("{} for {}", value.kind(), printable(name_)));
    case State::kTensor:
      if (field_ == Field::kOther) return {};
      if (field_ == Field::kDtype && value.as_string() != nullptr) {
        has_dtype_ = true;
        dtype_ = *value.as_string();
        return {};
      }
      return bad("a string as dtype, lists as shape and data_offsets",
                 fmt::format("{} in one of their places", value.kind()));
    default:
      return bad("an object of objects", std::string(value.kind()));
  }
}

Status HeaderHandler::finish() const {
  if (done_) return {};
  return bad("one JSON object", "something else");
}

}  // namespace lode::checkpoint
