#include "lode/tensor/tensor.h"

#include <array>
#include <utility>

namespace lode::tensor {
namespace {

constexpr std::array<std::string_view, 3> kLayoutNames = {"row-major", "panels", "gate-up-panels"};
constexpr std::array<std::string_view, 3> kLayoutMeanings = {
    "C order, nothing between rows; block scales are another tensor",
    "rows in panels of 16, block scales inside the panel, one line of matrix scales last",
    "two matrices [I, H] as panels: gate panel n, up panel n, gate panel n + 1, ..."};

bool is_plain_f32(const Meta& meta) noexcept {
  return meta.layout == Layout::kRowMajor && meta.encoding == formats::kPlainF32;
}

}  // namespace

std::string_view name(Layout layout) noexcept {
  return kLayoutNames[static_cast<std::size_t>(layout)];
}

std::string_view meaning(Layout layout) noexcept {
  return kLayoutMeanings[static_cast<std::size_t>(layout)];
}

// Buffers and records begin on 64-byte lines, so the floats in them are aligned.
std::span<const float> floats(const TensorView& view) {
  LODE_CHECK(view.empty() || is_plain_f32(view.meta()), "floats of a tensor that is not f32");
  return {static_cast<const float*>(static_cast<const void*>(view.data())),
          view.bytes().size() / sizeof(float)};
}

std::span<float> floats(const TensorSpan& span) {
  LODE_CHECK(is_plain_f32(span.meta()), "floats of a tensor that is not f32");
  return {static_cast<float*>(static_cast<void*>(span.bytes().data())),
          span.bytes().size() / sizeof(float)};
}

Result<Tensor> make_tensor(memory::Ledger& ledger, memory::Tag tag, const Meta& meta,
                           std::string_view what) {
  LODE_CHECK(meta.layout == Layout::kRowMajor && !meta.encoding.has_scale,
             "make_tensor makes plain row-major tensors");
  const std::uint64_t bits = formats::info(meta.encoding.element).bits;
  LODE_TRY(memory::Buffer buffer,
           memory::make_buffer(ledger, tag, (meta.shape.elements() * bits + 7) / 8, what));
  return Tensor(std::move(buffer), meta);
}

}  // namespace lode::tensor
