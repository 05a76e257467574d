#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "lode/checkpoint/quant_config.h"
#include "lode/checkpoint/tensor_index.h"
#include "lode/families/family.h"
#include "lode/families/model_spec.h"
#include "lode/families/roles.h"
#include "lode/formats/format.h"

namespace lode::loader {

/// Which axis of a stored matrix [rows, k] is outermost in the file.
enum class Order : std::uint8_t {
  kRowsFirst,  // [out, in]: a row's codes lie side by side
  kKFirst,     // [in, out]: transposed; a unit of k for all rows lies side by side
};

/// A strided region of one shard.
///
/// kRowsFirst: row r begins at offset + r * outer_stride; its bytes are contiguous.
/// kKFirst:    unit u of k begins at offset + u * outer_stride; row r of it at + r * inner_step.
///             A unit is one code, or two of E2M1 (low nibble first) in one byte.
struct Region {
  std::uint32_t shard = 0;
  Order order = Order::kRowsFirst;
  std::uint64_t offset_bytes = 0;  // in the file
  std::uint64_t outer_stride_bytes = 0;
  std::uint64_t inner_step_bytes = 0;  // kKFirst only

  friend bool operator==(const Region&, const Region&) = default;
};

/// One logical matrix [rows, k] and where the files hold it.
///
/// `codes` are this matrix's own: its row 0 lies at the offset. `scales` are those of the stored
/// matrix (of this expert, where the file stacks them): a "row" of that region is a row of blocks,
/// a unit of k one block of k; which row serves which row of this matrix, row_origin and row_step
/// say. Both regions have the same order.
struct MatrixSource {
  formats::Encoding encoding{};  // of the codes and, prepared, of the scales
  std::uint64_t rows = 0;
  std::uint64_t k = 0;
  Region codes{};
  Region scales{};                        // block scales, where the encoding has them
  formats::Format stored_scale_format{};  // e.g. BF16 or E8M0 scales of FP8, prepared as F32
  // Row r of this matrix is row row_origin + r * row_step of the stored one: that row's row of
  // blocks is (row_origin + r * row_step) / block_rows, or 0 where block_rows is kWhole.
  std::uint64_t row_origin = 0;
  std::uint64_t row_step = 1;
  std::uint32_t matrix_scale_shard = 0;
  std::uint64_t matrix_scale_offset_bytes = 0;  // F32; where the encoding has a second-level scale
  // F32: the scale that the producer prescribes for activations, as the encoding's second-level
  // scale is written (multiplier or divisor). Engines with quantised activations want it.
  std::uint32_t input_scale_shard = 0;
  std::uint64_t input_scale_offset_bytes = 0;
  bool input_scale_is_divisor = false;
  bool has_input_scale = false;
  bool present = false;
};

/// One logical vector and where a file holds it: number i at offset + i * step.
struct VectorSource {
  formats::Format format{};
  std::uint64_t count = 0;
  std::uint32_t shard = 0;
  std::uint64_t offset_bytes = 0;
  std::uint64_t step_bytes = 0;
  bool present = false;
};

struct ExpertSource {
  MatrixSource gate;
  MatrixSource up;
  MatrixSource down;
  VectorSource gate_bias;
  VectorSource up_bias;
  VectorSource down_bias;
};

/// What is in the files for each role. Matrices and vectors are kept apart: `matrix(role)` of a
/// vector's role is not present, and the other way round.
struct RoleSources {
  std::array<MatrixSource, families::kNumRoles> matrices;
  std::array<VectorSource, families::kNumRoles> vectors;
};

/// Every tensor of a checkpoint accounted for: consumed by exactly one role, or ignored by a rule.
struct Binding {
  /// kOutputHead is absent where the embedding serves as the head. A file may hold a head although
  /// the config ties it: then the file's head counts, so ask here, not the ModelSpec.
  RoleSources model;
  std::vector<RoleSources> layers;
  std::vector<std::vector<ExpertSource>> experts;  // [layer][expert]; empty for dense layers
  std::vector<std::string> ignored;  // "model.visual.*: 312 tensors" lines, for people
  std::vector<std::string> notes;    // where config and tensors disagree (tensors win), for people

  std::uint64_t held_bytes() const;  // of this value, for the ledger's metadata
};

/// Finds every role of `spec` in the files, in whatever storage they use.
///
/// Errors: kInvalidSource naming the tensor, what was wanted and found, the file and the nearest
/// name for a missing, misshapen, contradictory or left-over tensor; kUnsupported for number
/// formats that panels do not hold.
Result<Binding> bind(const checkpoint::TensorIndex& index, const families::Family& family,
                     const families::ModelSpec& spec, const checkpoint::QuantConfig& quant);

}  // namespace lode::loader
