#include "lode/loader/transform.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "lode/base/check.h"
#include "lode/base/fmt.h"
#include "lode/kernels/kernel_table.h"
#include "lode/layout/requantise.h"
#include "lode/layout/scatter.h"
#include "lode/loader/extents.h"

namespace lode::loader {
namespace {

using layout::SourceCodes;
using layout::SourceScales;

class Transform {
 public:
  Transform(const Operation& operation, std::span<const std::byte> slot, std::span<std::byte> out)
      : operation_(operation), slot_(slot), out_(out) {}

  Result<Met> run() {
    LODE_TRY_STATUS(put());
    return met_;
  }

 private:
  Status put() {
    switch (operation_.kind) {
      case OperationKind::kCodes:
        layout::scatter_codes(*operation_.panels, operation_.tile, codes(), out_);
        return {};
      case OperationKind::kScales:
        return put_scales();
      case OperationKind::kRequantise:
        return requantise();
      case OperationKind::kMatrixScale:
        return put_matrix_scale();
      case OperationKind::kRowMajor:
        return put_rows();
      case OperationKind::kVector:
        return put_vector();
    }
    return {};
  }

  std::span<const std::byte> bytes(const SlotData& data) const {
    return slot_.subspan(data.slot_offset_bytes, data.extent.total_bytes())
        .subspan(data.begin_bytes);
  }

  SourceCodes codes() const {
    const Region& region = operation_.matrix->codes;
    return {bytes(operation_.codes), region.order == Order::kKFirst,
            operation_.codes.outer_stride_bytes, region.inner_step_bytes};
  }

  SourceScales scales() const {
    const MatrixSource& matrix = *operation_.matrix;
    const ScaleRange range = scale_range(matrix, operation_.tile);
    return {.bytes = bytes(operation_.scales),
            .k_first = matrix.scales.order == Order::kKFirst,
            .outer_stride_bytes = operation_.scales.outer_stride_bytes,
            .inner_step_bytes = matrix.scales.inner_step_bytes,
            .format = matrix.stored_scale_format,
            .row_origin = matrix.row_origin,
            .row_step = matrix.row_step,
            .first_row = range.row_begin,
            .first_column = range.column_begin};
  }

  std::string name() const {
    static constexpr families::Role kGate = families::Role::kExpertGate;
    static constexpr families::Role kMlpGate = families::Role::kMlpGate;
    families::Role role = operation_.target.role;
    if (operation_.tile.matrix == 1) {
      role = role == kGate ? families::Role::kExpertUp
                           : (role == kMlpGate ? families::Role::kMlpUp : role);
    }
    if (operation_.target.expert < 0) return std::string(families::name(role));
    return fmt::format("{} of expert {}", families::name(role), operation_.target.expert);
  }

  Error invalid(std::string wanted, std::string found) const {
    return {.code = Code::kInvalidSource,
            .thing = name(),
            .wanted = std::move(wanted),
            .found = std::move(found)};
  }

  Status put_scales() {
    const auto seen = layout::scatter_scales(*operation_.panels, operation_.tile, scales(), out_);
    met_.negative_scales = seen.negative;
    if (seen) return {};
    return bad_scale(*operation_.panels);
  }

  Status bad_scale(const layout::PanelLayout& panels) const {
    const auto bad = layout::find_bad_scale(panels, operation_.tile, scales());
    LODE_CHECK(bad.has_value(), "a bad scale was seen and cannot be found");
    return invalid("block scales that are finite",
                   fmt::format("{} for row {}, k from {} on", bad->value, bad->row,
                               bad->group * panels.shape().group_k));
  }

  Status requantise() {
    const MatrixSource& matrix = *operation_.matrix;
    const bool scaled = matrix.encoding.has_scale;
    const SourceScales source = scaled ? scales() : SourceScales{};
    if (scaled) {
      const auto stored = layout::PanelLayout::make(matrix.encoding, matrix.rows, matrix.k);
      if (stored) {
        const auto seen = layout::look_at_scales(*stored, operation_.tile, source);
        met_.negative_scales = seen.negative;
        if (!seen) return bad_scale(*stored);
      }
    }
    if (layout::requantise_to_int8(*operation_.panels, operation_.tile, matrix.encoding, codes(),
                                   scaled ? &source : nullptr, out_)) {
      return {};
    }
    return invalid("finite numbers, to make int8 of them",
                   fmt::format("one that is not, in rows {} to {}", operation_.tile.row_begin,
                               operation_.tile.row_end - 1));
  }

  Status put_matrix_scale() const {
    float scale = 0.0F;
    std::memcpy(&scale, bytes(operation_.codes).data(), sizeof scale);
    if (!(scale > 0.0F) || std::isinf(scale)) {
      return invalid("a scale of the matrix that is finite and above zero",
                     fmt::format("{}", scale));
    }
    const std::uint64_t offset = operation_.panels->matrix_scale_offset(operation_.tile.matrix);
    std::memcpy(out_.data() + offset, &scale, sizeof scale);
    return {};
  }

  Status put_rows() const {
    const formats::Format from = operation_.matrix->encoding.element;
    const formats::Format to = operation_.meta.encoding.element;
    const std::uint64_t k = operation_.tile.k_end;
    const std::uint64_t from_bytes = k * formats::info(from).bits / 8;
    const std::uint64_t to_bytes = k * formats::info(to).bits / 8;
    const auto source = bytes(operation_.codes);
    for (std::uint64_t row = operation_.tile.row_begin; row < operation_.tile.row_end; ++row) {
      const std::uint64_t at =
          (row - operation_.tile.row_begin) * operation_.codes.outer_stride_bytes;
      const auto numbers = source.subspan(at, from_bytes);
      if (from == to) {
        std::memcpy(out_.data() + row * to_bytes, numbers.data(), from_bytes);
        continue;
      }
      widen(from, numbers, {k, formats::info(from).bits / 8}, row * k);
    }
    return {};
  }

  struct Numbers {
    std::uint64_t count = 0;
    std::uint64_t step_bytes = 0;
  };
  void widen(formats::Format from, std::span<const std::byte> source, const Numbers& numbers,
             std::uint64_t first) const {
    // The place of a vector need not be aligned to its numbers.
    constexpr std::uint64_t kPiece = 1024;
    std::array<float, kPiece> floats;
    const kernels::KernelTable& table = kernels::active_or_plainest();
    for (std::uint64_t at = 0; at < numbers.count; at += kPiece) {
      const std::uint64_t count = std::min(kPiece, numbers.count - at);
      table.widen(from, source.data() + at * numbers.step_bytes, numbers.step_bytes, count,
                  floats.data());
      std::memcpy(out_.data() + (first + at) * sizeof(float), floats.data(), count * sizeof(float));
    }
  }

  Status put_vector() const {
    const VectorSource& vector = *operation_.vector;
    const std::uint64_t begin = operation_.tile.row_begin;
    widen(vector.format, bytes(operation_.codes),
          {operation_.tile.row_end - begin, vector.step_bytes}, begin);
    return {};
  }

  const Operation& operation_;
  std::span<const std::byte> slot_;
  std::span<std::byte> out_;
  Met met_;
};

}  // namespace

Result<Met> transform(const Operation& operation, std::span<const std::byte> slot,
                      std::span<std::byte> tensor) {
  return Transform(operation, slot, tensor).run();
}

}  // namespace lode::loader
