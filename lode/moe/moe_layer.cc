#include "lode/moe/moe_layer.h"

#include <algorithm>

namespace lode::moe {

MoeScratch carve_moe(memory::Carver& carver, const families::RouterSpec& router,
                     const MoeWidths& widths, std::size_t rows, ops::Mode mode) {
  const std::size_t routed = widths.expert == 0 ? 0 : rows;
  const std::size_t pairs = routed * router.top_k;
  MoeScratch scratch;
  const bool whole = widths.chunk_rows == 0 || widths.chunk_rows > rows;
  scratch.chunk_rows = whole ? rows : widths.chunk_rows;
  const std::size_t chunk = std::min(routed, scratch.chunk_rows);
  scratch.logits = carver.take<float>(routed * router.num_choices());
  scratch.ids = carver.take<std::int32_t>(pairs);
  scratch.weights = carver.take<float>(pairs);
  scratch.zero_weights = carver.take<float>(router.num_zero_experts == 0 ? 0 : routed);
  scratch.unsure = carver.take<std::uint8_t>(rows);
  scratch.order.first = carver.take<std::uint32_t>(std::size_t{router.num_experts} + 1);
  scratch.order.order = carver.take<std::uint32_t>(pairs);
  scratch.row_of = carver.take<std::uint32_t>(std::max(pairs, rows));
  scratch.weight_of = carver.take<float>(std::max(pairs, rows));
  scratch.active = carver.take<ActiveExpert>(std::max<std::size_t>(router.num_experts, 1));
  scratch.inner = ops::carve_rows(carver, chunk * router.top_k, widths.expert, mode);
  scratch.scaled = ops::carve_rows(carver, router.weight_on_input ? chunk * router.top_k : 0,
                                   widths.hidden, mode);
  scratch.shared_inner =
      ops::carve_rows(carver, widths.shared == 0 ? 0 : chunk, widths.shared, mode);
  scratch.dense_inner = ops::carve_rows(carver, widths.dense == 0 ? 0 : rows, widths.dense, mode);
  return scratch;
}

GatedMlp expert_mlp(const MoeLayer& layer, std::size_t record_idx) {
  const std::size_t bytes = layer.record.record_bytes;
  return gated_mlp(
      layout::expert_views(layer.record, layer.experts.subspan(record_idx * bytes, bytes)));
}

ops::Forms input_forms(const ops::Compute& compute, const MoeLayer& layer) noexcept {
  ops::Forms forms = input_forms(compute, layer.record);
  if (layer.shared.exists()) forms.add(ops::forms_of(compute, layer.shared.mlp.gate_up.gate));
  return forms;
}

}  // namespace lode::moe
