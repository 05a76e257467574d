#include "lode/ops/embedding.h"

#include <cstring>

#include "lode/base/check.h"
#include "lode/formats/bf16.h"
#include "lode/formats/f16.h"
#include "lode/ops/linear.h"

namespace lode::ops {
namespace {

void copy_row(formats::Format format, const std::byte* row, std::span<float> out) noexcept {
  if (format == formats::Format::kF32) {
    std::memcpy(out.data(), row, out.size_bytes());
    return;
  }
  LODE_CHECK(format == formats::Format::kBf16 || format == formats::Format::kF16,
             "an embedding in a format that rows do not have");
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t code = 0;
    std::memcpy(&code, row + i * sizeof code, sizeof code);
    out[i] =
        format == formats::Format::kBf16 ? formats::decode_bf16(code) : formats::decode_f16(code);
  }
}

}  // namespace

void embed(const Compute& compute, const tensor::TensorView& table,
           std::span<const std::int32_t> ids, const Rows& out) noexcept {
  if (table.meta().layout == tensor::Layout::kPanels) {
    const Matrix panels = matrix(table);
    for_each(compute, ids.size(), [&](std::size_t index, std::size_t) noexcept {
      const auto id = static_cast<std::size_t>(ids[index]);
      const std::byte* panel = panels.panels + id / kernels::kPanelRows * panels.panel_stride_bytes;
      compute.table->decode_row(panels.shape, panels.scale, panel, id % kernels::kPanelRows,
                                panels.k, out.row(index).data());
    });
    return;
  }
  const formats::Format format = table.meta().encoding.element;
  const std::size_t row_bytes = out.k * (formats::info(format).bits / 8);
  for_each(compute, ids.size(), [&](std::size_t index, std::size_t) noexcept {
    copy_row(format, table.data() + static_cast<std::size_t>(ids[index]) * row_bytes,
             out.row(index));
  });
}

}  // namespace lode::ops
