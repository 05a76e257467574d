#pragma once

#include <cstdint>
#include <span>

#include "lode/memory/carver.h"
#include "lode/moe/align.h"
#include "lode/moe/experts.h"
#include "lode/moe/router.h"

namespace lode::moe {

/// An MLP that every token goes through beside its routed experts; several of them are one wider
/// one. A view of weights.
struct SharedExpert {
  GatedMlp mlp;
  GatedActivation activation;
  std::span<const float> gate;  // [H]: its weight is sigmoid(x . gate); empty: 1

  bool exists() const noexcept { return mlp.down.rows != 0; }
};

/// The router and the experts of one layer. A view of weights. C = experts and zero experts.
struct MoeLayer {
  families::RouterSpec router;
  std::span<const float> router_weight;   // [C, H]
  std::span<const float> router_bias;     // [C] or empty: part of the logits
  std::span<const float> selection_bias;  // [C] or empty: moves the choice only
  layout::ExpertRecord record;
  std::span<const std::byte> experts;  // E records, one after another
  GatedActivation activation;
  std::span<const float> expert_scale;         // [C] or empty: multiplies weights
  std::span<const std::int32_t> expert_table;  // [vocab][top_k] or empty: ids by token, checked
  SharedExpert shared;
};

/// Rows [first_row, first_row + num_rows) of a pass. `tokens` are their ids, below 0 where a row is
/// padding: it has no experts and its sums stay as they are. Empty: no row is padding, and the
/// layer has no table of experts by token.
///
/// Shapes: x [first_row + num_rows][H] with the forms of input_forms; tokens [num_rows] or empty.
struct MoeInput {
  ops::Rows x;
  std::size_t num_rows = 0;
  std::span<const std::int32_t> tokens;
  std::size_t first_row = 0;

  bool is_padding(std::size_t index) const noexcept { return !tokens.empty() && tokens[index] < 0; }
};

/// What one pass over a layer writes, reused by all layers. A view.
struct MoeScratch {
  std::span<float> logits;         // [rows][C]
  std::span<std::int32_t> ids;     // [rows][top_k]; kNoExpert for padding and zero experts
  std::span<float> weights;        // [rows][top_k]
  std::span<float> zero_weights;   // [rows]: what the token itself counts; empty without those
  std::span<std::uint8_t> unsure;  // [rows]: 1 where fewer than top_k experts could be chosen
  ExpertOrder order;
  std::span<std::uint32_t> row_of;  // [rows * top_k]
  std::span<float> weight_of;       // [rows * top_k]
  std::span<ActiveExpert> active;   // [E]
  std::size_t chunk_rows = 1;       // rows whose experts are run at a time
  ops::Rows inner;                  // [chunk_rows * top_k][I] of routed experts
  ops::Rows scaled;                 // [chunk_rows * top_k][H] where weights are on the input
  ops::Rows shared_inner;           // [chunk_rows][I] of the shared expert
  ops::Rows dense_inner;            // [rows][I] of a dense MLP
};

/// The widths that decide how much of that a model needs; 0 where it has no such layer.
struct MoeWidths {
  std::size_t expert = 0;
  std::size_t dense = 0;
  std::size_t shared = 0;
  std::size_t hidden = 0;      // only where weights are on the input
  std::size_t chunk_rows = 0;  // 0: all. Fewer take less memory and read weights more often
};
MoeScratch carve_moe(memory::Carver& carver, const families::RouterSpec& router,
                     const MoeWidths& widths, std::size_t rows, ops::Mode mode);

/// One record of the layer's bank. A view.
GatedMlp expert_mlp(const MoeLayer& layer, std::size_t record_idx);

/// Those of an order that have pairs, the i-th with the weights of record record_of(i).
///
/// Shapes: active [at least as many as the order has]; what is given is its beginning.
template <class RecordOf>
std::span<const ActiveExpert> list_active(const MoeLayer& layer, const ExpertOrder& order,
                                          std::span<ActiveExpert> active,
                                          const RecordOf& record_of) noexcept {
  std::size_t found = 0;
  for (std::size_t i = 0; i + 1 < order.first.size(); ++i) {
    const std::uint32_t count = order.count(i);
    if (count != 0) active[found++] = {expert_mlp(layer, record_of(i)), order.first[i], count};
  }
  return active.first(found);
}

/// The forms that the layer reads of its input: those of its experts and of the shared one.
ops::Forms input_forms(const ops::Compute& compute, const MoeLayer& layer) noexcept;

}  // namespace lode::moe
