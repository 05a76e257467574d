#include "lode/layout/expert_record.h"

#include "lode/base/bytes.h"
#include "lode/base/check.h"
#include "lode/layout/panels.h"

namespace lode::layout {
namespace {

constexpr std::uint64_t kFloatBytes = sizeof(float);

tensor::TensorView vector_view(std::span<const std::byte> record, std::uint64_t offset,
                               std::uint64_t count) {
  return {record.subspan(offset, count * kFloatBytes),
          {formats::kPlainF32, tensor::Layout::kRowMajor, {count}}};
}

void place_biases(ExpertRecord& record) {
  const auto lines = [](std::uint64_t count) {
    return align_up<std::uint64_t>(count * kFloatBytes, kernels::kLineBytes);
  };
  record.gate_bias_offset_bytes = record.down_offset_bytes + record.down_bytes;
  record.up_bias_offset_bytes = record.gate_bias_offset_bytes;
  record.down_bias_offset_bytes = record.gate_bias_offset_bytes;
  record.record_bytes = record.gate_bias_offset_bytes;
  if (!record.bias) return;
  record.up_bias_offset_bytes += record.gated ? lines(record.intermediate) : 0;
  record.down_bias_offset_bytes = record.up_bias_offset_bytes + lines(record.intermediate);
  record.record_bytes = record.down_bias_offset_bytes + lines(record.hidden);
}

}  // namespace

std::optional<ExpertRecord> make_expert_record(std::uint64_t hidden, std::uint64_t intermediate,
                                               const formats::Encoding& gate_up,
                                               const formats::Encoding& down, bool bias,
                                               bool gated) {
  const auto gate_up_layout = PanelLayout::make(gate_up, intermediate, hidden, gated ? 2 : 1);
  const auto down_layout = PanelLayout::make(down, hidden, intermediate);
  if (!gate_up_layout || !down_layout) return std::nullopt;
  ExpertRecord record{.hidden = hidden,
                      .intermediate = intermediate,
                      .gate_up = gate_up,
                      .down = down,
                      .bias = bias,
                      .gated = gated};
  record.gate_up_bytes = gate_up_layout->total_bytes();
  record.down_offset_bytes = record.gate_up_bytes;
  record.down_bytes = down_layout->total_bytes();
  place_biases(record);
  record.record_bytes = align_up(record.record_bytes, kRecordAlignment);
  const std::uint64_t bias_bytes =
      bias ? ((gated ? 2 : 1) * intermediate + hidden) * kFloatBytes : 0;
  record.padding_bytes =
      record.record_bytes - gate_up_layout->used_bytes() - down_layout->used_bytes() - bias_bytes;
  return record;
}

ExpertViews expert_views(const ExpertRecord& shape, std::span<const std::byte> record) {
  LODE_CHECK(record.size() == shape.record_bytes, "an expert's record has record_bytes");
  ExpertViews views;
  const tensor::Meta first = {
      shape.gate_up, tensor::Layout::kPanels, {shape.intermediate, shape.hidden}};
  const tensor::Meta pair = {
      shape.gate_up, tensor::Layout::kGateUpPanels, {2, shape.intermediate, shape.hidden}};
  views.gate_up = {record.first(shape.gate_up_bytes), shape.gated ? pair : first};
  views.down = {record.subspan(shape.down_offset_bytes, shape.down_bytes),
                {shape.down, tensor::Layout::kPanels, {shape.hidden, shape.intermediate}}};
  if (!shape.bias) return views;
  views.gate_bias = vector_view(record, shape.gate_bias_offset_bytes, shape.intermediate);
  if (shape.gated) {
    views.up_bias = vector_view(record, shape.up_bias_offset_bytes, shape.intermediate);
  }
  views.down_bias = vector_view(record, shape.down_bias_offset_bytes, shape.hidden);
  return views;
}

}  // namespace lode::layout
