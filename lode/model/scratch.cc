#include "lode/model/scratch.h"

#include <algorithm>

#include "lode/memory/buffer.h"

namespace lode::model {
namespace {

using families::LayerSpec;
using families::ModelSpec;

moe::MoeWidths widths_of(const ModelSpec& spec) {
  const auto is_moe = [](const LayerSpec& layer) { return layer.moe; };
  moe::MoeWidths widths;
  if (std::any_of(spec.layers.begin(), spec.layers.end(), is_moe)) {
    widths.expert = spec.expert_intermediate;
  }
  if (!std::all_of(spec.layers.begin(), spec.layers.end(), is_moe)) {
    widths.dense = spec.intermediate;
  }
  return widths;
}

std::size_t num_angles(const families::RopeSpec& rope) {
  return rope.kind == families::RopeKind::kNone ? 0 : rope.rotary_dim / 2;
}

std::size_t tile_floats(const ModelSpec& spec) {
  constexpr std::size_t kPanelTile = ops::kRowBlock * ops::kMaxTaskPanels * kernels::kPanelRows;
  const std::size_t floats =
      std::max({kPanelTile, ops::attention_tile_floats(spec.num_heads, spec.num_kv_heads),
                moe::router_tile_floats(spec.router)});
  constexpr std::size_t kLineFloats = memory::Carver::kLineBytes / sizeof(float);
  return (floats + kLineFloats - 1) / kLineFloats * kLineFloats;
}

}  // namespace

Scratch carve_scratch(memory::Carver& carver, const ModelSpec& spec, const ScratchShape& shape) {
  const std::size_t rows = shape.chunk_tokens;
  const std::size_t query_width = std::size_t{spec.num_heads} * spec.head_dim;
  const std::size_t key_width = std::size_t{spec.num_kv_heads} * spec.head_dim;
  constexpr ops::Mode kPlain = ops::Mode::kExact;  // rows that no matrix reads
  Scratch scratch;
  scratch.tokens = carver.take<std::int32_t>(rows);
  scratch.places = carver.take<ops::RowPlace>(rows);
  scratch.wanted = carver.take<std::uint32_t>(rows);
  scratch.kv = carver.take<ops::KvLayer>(rows);
  scratch.cosines = carver.take<float>(rows * num_angles(spec.rope));
  scratch.sines = carver.take<float>(rows * num_angles(spec.rope));
  scratch.hidden = ops::carve_rows(carver, rows, spec.hidden, kPlain);
  scratch.normed = ops::carve_rows(carver, rows, spec.hidden, shape.mode);
  scratch.query = ops::carve_rows(carver, rows, query_width, kPlain);
  scratch.key = ops::carve_rows(carver, rows, key_width, kPlain);
  scratch.value = ops::carve_rows(carver, rows, key_width, kPlain);
  scratch.attention = ops::carve_rows(carver, rows, query_width, shape.mode);
  scratch.moe = moe::carve_moe(carver, spec.router, widths_of(spec), rows, shape.mode);
  if (shape.num_ranks > 1) {
    scratch.exchange =
        moe::carve_exchange(carver, {rows, shape.num_ranks, spec.router.num_experts,
                                     shape.rank_slots, spec.router.top_k, spec.hidden, shape.mode});
  }
  scratch.tile_floats = tile_floats(spec);
  scratch.tiles = carver.take<float>(scratch.tile_floats * shape.num_threads);
  return scratch;
}

std::uint64_t scratch_bytes(const ModelSpec& spec, const ScratchShape& shape) {
  memory::Carver carver;
  carve_scratch(carver, spec, shape);
  return memory::mapped_bytes(carver.bytes());
}

}  // namespace lode::model
