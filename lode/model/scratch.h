#pragma once

#include <cstdint>
#include <span>

#include "lode/families/model_spec.h"
#include "lode/memory/carver.h"
#include "lode/moe/exchange.h"
#include "lode/moe/runner.h"
#include "lode/ops/attention.h"

namespace lode::model {

/// What decides how much a forward pass writes besides keys and values.
struct ScratchShape {
  std::uint32_t chunk_tokens = 1;  // rows of one pass
  std::uint32_t num_threads = 1;
  ops::Mode mode = ops::Mode::kExact;
  // Where the experts are spread over ranks: how many, and the slots of one.
  std::uint32_t num_ranks = 1;
  std::uint32_t rank_slots = 0;
};

/// Everything that a pass writes, reused by all layers and passes. A view of one block.
struct Scratch {
  std::span<std::int32_t> tokens;   // [rows]
  std::span<ops::RowPlace> places;  // [rows]
  std::span<std::uint32_t> wanted;  // [rows]: those that want logits
  std::span<ops::KvLayer> kv;       // [sequences of a pass <= rows]
  std::span<float> cosines;         // [rows][rotary_dim / 2]; empty without rope
  std::span<float> sines;           // the same
  ops::Rows hidden;                 // [rows][H]: the residual stream
  ops::Rows normed;                 // [rows][H]
  ops::Rows query;                  // [rows][num_heads * D]
  ops::Rows key;                    // [rows][num_kv_heads * D]
  ops::Rows value;                  // the same
  ops::Rows attention;              // [rows][num_heads * D]
  moe::MoeScratch moe;
  moe::ExchangeScratch exchange;  // of more ranks than one
  std::span<float> tiles;
  std::size_t tile_floats = 0;  // of one thread
};

/// Lays it out; with a carver that only counts, the spans are empty.
Scratch carve_scratch(memory::Carver& carver, const families::ModelSpec& spec,
                      const ScratchShape& shape);

/// Bytes that a model reserves under kScratch, as mapped. Its page tables are
/// memory::page_table_bytes of that.
std::uint64_t scratch_bytes(const families::ModelSpec& spec, const ScratchShape& shape);

}  // namespace lode::model
