#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lode/base/result.h"
#include "lode/formats/quantise.h"
#include "tools/synth/family.h"
#include "tools/synth/shape.h"

namespace lode::synth {

/// How experts are stored as numbers.
enum class WeightFormat : std::uint8_t { kBf16, kMxfp4, kNvfp4, kNvfp4Ct, kFp8Block, kFp8Tensor };

/// How experts lie: by themselves, or all of a layer in one tensor.
enum class Storage : std::uint8_t {
  kPerExpert,
  kFused,        // [E, 2I, H], gate rows, then up rows
  kTransposed,   // [E, H, 2I]
  kInterleaved,  // gate and up alternate, as gpt-oss has it
};

/// What shares one scale of the matrix (NVFP4, FP8 by matrices).
enum class ScaleOver : std::uint8_t {
  kAuto,    // the narrowest that the storage can express
  kMatrix,  // one matrix
  kExpert,  // gate and up of an expert
  kLayer,   // all experts of the layer
};

/// Names of the parts of one quantised matrix, behind a module and behind a stack.
struct PartNames {
  std::string_view codes;
  std::string_view scales;
  std::string_view tensor_scale;
};

struct FormatRow {
  WeightFormat format;
  std::string_view name;              // flag
  std::optional<formats::Rule> rule;  // none: BF16 as it is
  PartNames module;
  PartNames stack;
  std::string_view meaning;
};
std::span<const FormatRow> format_rows() noexcept;
const FormatRow& info(WeightFormat format) noexcept;

struct StorageRow {
  Storage storage;
  std::string_view name;
  std::string_view meaning;
};
std::span<const StorageRow> storage_rows() noexcept;

/// Everything that decides the bytes of a checkpoint.
struct Recipe {
  ModelShape shape;
  std::uint64_t seed = 1;
  WeightFormat format = WeightFormat::kBf16;
  std::optional<formats::Rule> rule;  // instead of the format's own
  bool dense_fp8 = false;             // attention and head as FP8 blocks
  std::optional<Storage> storage;     // none: the family's own
  ScaleOver scale_over = ScaleOver::kAuto;
  std::string prefix = "model.";  // instead of "model." before every name
  std::uint64_t shards = 1;
  bool split_gate_up = false;  // gate and up of an expert in different shards
  bool unaligned = false;      // data that begins at an odd offset
  bool random_codes = false;   // codes and scales out of the hash, no rounding: fast
  // Of random codes: powers of two, with nothing left to a scale of the matrix, so that what any
  // engine makes of the scales is exact.
  bool even_scales = false;
  bool sparse = false;  // holes instead of data
};

/// The parts of `recipe` that follow from others, filled in.
struct Resolved {
  const Family* family;
  Storage storage;
  ScaleOver scale_over;
  std::optional<formats::Rule> rule;
};

/// Errors: kUsage for what cannot be stored in that way, with the reason.
Result<Resolved> resolve(const Recipe& recipe);

}  // namespace lode::synth
