#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "lode/base/result.h"
#include "lode/formats/format.h"
#include "lode/memory/buffer.h"
#include "lode/tensor/shape.h"

namespace lode::tensor {

/// In which order the numbers lie. What each order is, byte for byte, is said in layout/.
enum class Layout : std::uint8_t {
  kRowMajor,  // C order, nothing between rows; block scales are another tensor
  kPanels,  // rows in panels of 16 (kernels/panel.h), scales inside, one line of matrix scales last
  kGateUpPanels,  // two matrices [I, H]: gate panel n, up panel n, gate panel n+1, ...
};
std::string_view name(Layout layout) noexcept;
/// One sentence for the documents.
std::string_view meaning(Layout layout) noexcept;

/// What the bytes mean: number format, order and extents travel with them.
struct Meta {
  formats::Encoding encoding{};
  Layout layout = Layout::kRowMajor;
  Shape shape{};  // logical extents, padding not counted

  friend bool operator==(const Meta&, const Meta&) = default;
};

/// Reads somebody else's bytes. Cheap to copy; must not outlive its owner. An empty view has no
/// bytes.
class TensorView {
 public:
  TensorView() = default;
  TensorView(std::span<const std::byte> bytes, const Meta& meta) : bytes_(bytes), meta_(meta) {}

  std::span<const std::byte> bytes() const noexcept { return bytes_; }
  const std::byte* data() const noexcept { return bytes_.data(); }
  const Meta& meta() const noexcept { return meta_; }
  const Shape& shape() const noexcept { return meta_.shape; }
  bool empty() const noexcept { return bytes_.empty(); }

 private:
  std::span<const std::byte> bytes_;
  Meta meta_;
};

/// Row-major f32 numbers of a view, which must hold such.
std::span<const float> floats(const TensorView& view);

/// Writes somebody else's bytes. Only an owner's `mutate()` gives one.
class TensorSpan {
 public:
  std::span<std::byte> bytes() const noexcept { return bytes_; }
  const Meta& meta() const noexcept { return meta_; }
  const Shape& shape() const noexcept { return meta_.shape; }

 private:
  friend class Tensor;
  TensorSpan(std::span<std::byte> bytes, const Meta& meta) : bytes_(bytes), meta_(meta) {}

  std::span<std::byte> bytes_;
  Meta meta_;
};
std::span<float> floats(const TensorSpan& span);

/// Owns bytes and what they mean. Move-only: in-place work takes a Tensor&& and hands it back.
class Tensor {
 public:
  Tensor() = default;
  Tensor(memory::Buffer buffer, const Meta& meta) : buffer_(std::move(buffer)), meta_(meta) {}

  TensorView view() const& noexcept { return {buffer_.bytes(), meta_}; }
  TensorView view() const&& = delete;
  TensorSpan mutate() & noexcept { return {buffer_.mutate(), meta_}; }
  TensorSpan mutate() && = delete;
  const Meta& meta() const noexcept { return meta_; }

 private:
  memory::Buffer buffer_;
  Meta meta_;
};

/// A tensor of zeros, row-major, in a plain format.
/// Errors: kOverBudget from the ledger, kIo from the system.
Result<Tensor> make_tensor(memory::Ledger& ledger, memory::Tag tag, const Meta& meta,
                           std::string_view what);

}  // namespace lode::tensor
