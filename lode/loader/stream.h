#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lode/io/read_engine.h"
#include "lode/loader/drain.h"
#include "lode/loader/plan.h"
#include "lode/loader/progress.h"
#include "lode/memory/ledger.h"

namespace lode::loader {

/// Where a stream begins: what lies before was taken by an earlier one.
struct StreamStart {
  std::size_t stage_idx = 0;
  Slab slab = Slab::kDense;
  std::uint64_t offset_bytes = 0;  // a multiple of ChunkRun::kChunkBytes

  friend bool operator==(const StreamStart&, const StreamStart&) = default;
};

/// What `stream` needs beside plan and binding.
struct StreamParts {
  memory::Ledger& ledger;
  io::ReadEngine& engine;
  ChunkSink& sink;
  Progress* progress = nullptr;
  StreamStart start{};
};

/// Bytes of slabs that a stream holds at most, whatever the sizes of tensors, stages and model, and
/// wherever it begins.
std::uint64_t stream_room_bytes(const LoadPlan& plan) noexcept;

/// What the ledger will have recorded when `stream` has run, byte for byte: a stage for each of the
/// plan's that is not before the start, and a last one, "finish".
std::vector<memory::StageUse> expected_stream_stages(const LoadPlan& plan,
                                                     const StreamStart& start = {},
                                                     const memory::TagBytes& held_before = {});

/// Whether a stream from `start` has what it needs.
/// Errors: kOverBudget naming need and have.
Status check_stream_fits(const LoadPlan& plan, const StreamStart& start,
                         const memory::Ledger& ledger);

/// Makes every byte that `execute` would make, and hands them to `sink` instead of keeping them:
/// stage by stage, the dense slab and then the bank, chunk by chunk. Its progress counts the bytes
/// that the sink gets, those before the start included.
///
/// Memory: ring, stacks and stream_room_bytes; no more for a large tensor, layer or model.
/// Errors: as execute; those of the sink.
Status stream(const LoadPlan& plan, const Binding& binding, const StreamParts& parts);

}  // namespace lode::loader
