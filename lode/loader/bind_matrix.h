#pragma once

#include <cstdint>
#include <string_view>

#include "lode/base/result.h"
#include "lode/checkpoint/linear_storage.h"
#include "lode/families/model_spec.h"
#include "lode/loader/bind_context.h"
#include "lode/loader/binding.h"

namespace lode::loader {

/// One stored matrix, or a stack of them, and how it is to be read: `transposed` files have
/// [in, out].
struct StoredMatrix {
  checkpoint::LinearStorage storage;
  bool transposed = false;
  std::uint64_t rows = 0;   // out features of one matrix, as stored (2I of a fused gate and up)
  std::uint64_t k = 0;      // in features
  std::uint64_t parts = 1;  // 2: gate and up, which may have a scale each
};

/// Some rows of a stored matrix: origin, origin + step, ...; `part` (0 gate, 1 up) is for
/// scales that come one a part.
struct RowPick {
  std::uint64_t origin = 0;
  std::uint64_t step = 1;
  std::uint64_t rows = 0;
  std::uint64_t part = 0;
};

/// Where member `member` of a stack (0 of a single matrix) has these rows. For matrices that
/// `check_stored` accepts.
MatrixSource source_of(const StoredMatrix& matrix, std::uint64_t member, const RowPick& pick);

/// Whether codes and scales have the sizes that the shape asks for, and panels hold the numbers.
///
/// Errors: kInvalidSource naming the tensor; kUnsupported naming the number format.
Status check_stored(const BindContext& context, const StoredMatrix& matrix);

/// Marks the tensors of a matrix as used, and notes where the config says something else about it.
///
/// Errors: as TensorUse::take.
Status take_matrix(BindContext& context, const checkpoint::LinearStorage& storage,
                   std::string_view module);

/// A linear that must have these extents.
///
/// Errors: kInvalidSource naming tensor, wanted and found; kUnsupported for number formats that
/// panels do not hold.
Result<MatrixSource> bind_linear(BindContext& context, std::string_view module,
                                 const families::RoleExtents& extents);

/// A vector of `count` numbers.
///
/// Errors: kInvalidSource naming the tensor (missing, misshapen, no float).
Result<VectorSource> bind_vector(BindContext& context, std::string_view tensor,
                                 std::uint64_t count);

/// Bytes of one number of a format of whole bytes.
std::uint64_t number_bytes(formats::Format format) noexcept;

/// Whether numbers of this format can be turned into f32: F32, F16 or BF16.
bool is_plain_float(const checkpoint::TensorRecord& tensor) noexcept;

}  // namespace lode::loader
