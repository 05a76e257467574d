#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lode/base/result.h"
#include "lode/targets/experts.h"
#include "lode/targets/functions.h"
#include "lode/targets/preparer.h"

namespace lode::targets {

/// Which of a layer's tensors of the checkpoint, all experts in one.
enum class LayerPart : std::uint8_t {
  kGateUp,
  kDown,
  kGateUpScales,
  kDownScales,
  kGateUpBias,
  kDownBias,
};
inline constexpr std::size_t kNumLayerParts = 6;

/// The tensors of a layer as a model has them before it is prepared; empty where there is none.
/// Gate's rows stand before up's, or with them in turn as ExpertsShape has it.
///
/// Shapes: gate and up [E, halves * I, row bytes of H], down [E, H, row bytes of I]; block scales
///         the same with rows and columns of blocks; biases [E, halves * I] and [E, H].
struct LayerTensors {
  std::array<std::vector<std::byte>, kNumLayerParts> parts;

  std::vector<std::byte>& operator[](LayerPart part) noexcept {
    return parts[static_cast<std::size_t>(part)];
  }
  const std::vector<std::byte>& operator[](LayerPart part) const noexcept {
    return parts[static_cast<std::size_t>(part)];
  }
};

/// How `prepare_layer` goes about it. Nothing of this changes a byte.
struct LayerRun {
  Way way = Way::kOutOfPlace;
  std::size_t num_threads = 1;
  std::uint64_t seed = 1;  // of the sizes of chunks, where they are streamed
};

/// Makes all tensors of a layer that is in memory as a whole: for `lode layout` and tests. Models
/// stream through the loader instead.
///
/// kInPlace puts a tensor where its source was, expert by expert with one expert of scratch, where
/// the bytes are as many and nobody else needs that source. kStreamed hands the preparer one expert
/// at a time in a buffer of its own, and takes the units in chunks of odd sizes.
///
/// Errors: kInvalidSource naming a part that is not as large as the shape says; kUnsupported for
///         sizes that leave a part of a byte; those of a refiner.
Result<std::vector<NamedTensor>> prepare_layer(const Preparer& preparer, const ExpertsShape& shape,
                                               LayerTensors tensors, LayerScalars scalars,
                                               const LayerRun& run);

/// One expert's bytes of each part; empty where there are none.
using PartBytes = std::array<std::span<const std::byte>, kNumLayerParts>;
/// The same as rows.
ExpertSource source_of(const ExpertsShape& shape, const PartBytes& bytes) noexcept;

/// The bytes that one expert has of a part: what `prepare_layer` wants, times the experts.
std::uint64_t part_bytes(const ExpertsShape& shape, LayerPart part) noexcept;

}  // namespace lode::targets
