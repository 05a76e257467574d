#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "lode/base/result.h"
#include "tools/synth/family.h"

namespace lode::synth {

/// One matrix of the float model, [rows, columns] with the output features as rows; a vector has
/// one column.
struct MatrixId {
  std::string_view role;
  std::uint64_t layer = 0;
  std::uint64_t expert = 0;
  Kind kind = Kind::kDense;
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  std::string name;  // as an unquantised checkpoint with separate experts calls it
};

/// The float model: numbers that BF16 can hold.
class FloatSource {
 public:
  virtual ~FloatSource() = default;

  /// Rows from `first_row` on, as many as fit `out`. May be called from several threads.
  ///
  /// Shapes: out [rows, columns].
  /// Errors: kInvalidSource or kIo where numbers are read from files.
  virtual Status rows(const MatrixId& matrix, std::uint64_t first_row,
                      std::span<float> out) const = 0;
};

/// A source without memory: a number depends on seed, role, layer, expert, row and column, nothing
/// else. Roughly normal; matrices have the spread 1/sqrt(columns), so that logits stay finite.
class HashSource : public FloatSource {
 public:
  explicit HashSource(std::uint64_t seed) : seed_(seed) {}
  Status rows(const MatrixId& matrix, std::uint64_t first_row, std::span<float> out) const override;

 private:
  std::uint64_t seed_;
};

/// 64 well mixed bits of `state`.
constexpr std::uint64_t mixed(std::uint64_t state) noexcept {
  state += 0x9E3779B97F4A7C15U;
  state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9U;
  state = (state ^ (state >> 27)) * 0x94D049BB133111EBU;
  return state ^ (state >> 31);
}

/// The stream of random bits that belongs to one row of a matrix.
std::uint64_t row_key(std::uint64_t seed, const MatrixId& matrix, std::uint64_t row) noexcept;

/// Spread of the numbers of a matrix.
float spread(const MatrixId& matrix) noexcept;

}  // namespace lode::synth
