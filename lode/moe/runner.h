#pragma once

#include <cstdint>
#include <span>

#include "lode/memory/carver.h"
#include "lode/moe/align.h"
#include "lode/moe/experts.h"
#include "lode/moe/router.h"

namespace lode::moe {

/// The router and the experts of one layer. A view of weights.
struct MoeLayer {
  families::RouterSpec router;
  std::span<const float> router_weight;   // [E, H]
  std::span<const float> router_bias;     // [E] or empty: part of the logits
  std::span<const float> selection_bias;  // [E] or empty: moves the choice only
  layout::ExpertRecord record;
  std::span<const std::byte> experts;  // E records, one after another
  GatedActivation activation;
};

/// What one pass over a layer writes, reused by all layers. A view.
struct MoeScratch {
  std::span<float> logits;         // [rows][E]
  std::span<std::int32_t> ids;     // [rows][top_k]
  std::span<float> weights;        // [rows][top_k]
  std::span<std::uint8_t> unsure;  // [rows]: 1 where fewer than top_k experts could be chosen
  ExpertOrder order;
  std::span<std::uint32_t> row_of;  // [rows * top_k]
  std::span<float> weight_of;       // [rows * top_k]
  std::span<ActiveExpert> active;   // [E]
  ops::Rows inner;                  // [rows * top_k][I] of routed experts
  ops::Rows dense_inner;            // [rows][I] of a dense MLP
};

/// The widths that decide how much of that a model needs; 0 where it has no such layer.
struct MoeWidths {
  std::size_t expert = 0;
  std::size_t dense = 0;
};
MoeScratch carve_moe(memory::Carver& carver, const families::RouterSpec& router,
                     const MoeWidths& widths, std::size_t rows, ops::Mode mode);

/// Floats of a thread's tile that the router needs.
std::size_t router_tile_floats(const families::RouterSpec& spec);

/// logits = x W^T + bias in f32 in every mode: a wrong choice costs more than the product.
///
/// Shapes: x [num_rows][H]; scratch.logits [num_rows][E].
void router_logits(const ops::Compute& compute, const MoeLayer& layer, const ops::Rows& x,
                   std::size_t num_rows, const MoeScratch& scratch) noexcept;

/// The whole layer: sums += the weighted experts of x. Logits, choice, order, experts, combination.
/// A row's result depends on that row and the weights alone.
///
/// Shapes: x [num_rows][H] with its int8 forms; sums [num_rows][H].
void run_moe(const ops::Compute& compute, const MoeLayer& layer, const ops::Rows& x,
             std::size_t num_rows, const MoeScratch& scratch, const ops::Rows& sums) noexcept;

/// A layer with one MLP for every row. A view of weights.
struct DenseLayer {
  GatedMlp mlp;
  GatedActivation activation;
};

/// The same for it: every row goes to the one MLP, with weight 1.
///
/// Shapes: as run_moe; inner [num_rows][I].
void run_dense(const ops::Compute& compute, const DenseLayer& layer, const ops::Rows& x,
               std::size_t num_rows, const MoeScratch& scratch, const ops::Rows& sums) noexcept;

}  // namespace lode::moe
