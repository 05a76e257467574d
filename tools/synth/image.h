#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "lode/base/result.h"
#include "lode/formats/quantise.h"
#include "tools/synth/plan.h"
#include "tools/synth/source.h"

namespace lode::synth {

/// The bytes that a job puts into the checkpoint.
struct Image {
  std::vector<std::byte> codes;
  std::vector<std::byte> scales;
  float tensor_scale = 1.0F;
};

/// Makes rows of one matrix as numbers to be stored.
class RowMaker {
 public:
  virtual ~RowMaker() = default;
  /// Rows `first_row` to `first_row + count` of a matrix of the job, whole blocks of rows.
  ///
  /// Errors: what the float model or the quantiser says.
  virtual Result<formats::Quantised> make(const Job& job, const MatrixId& matrix,
                                          std::uint64_t first_row, std::uint64_t count) const = 0;
};

/// Quantises the float model; `amax` is that of everything under the same scale of the matrix.
class QuantisingMaker : public RowMaker {
 public:
  QuantisingMaker(const FloatSource& source, std::optional<float> amax)
      : source_(source), amax_(amax) {}
  Result<formats::Quantised> make(const Job& job, const MatrixId& matrix, std::uint64_t first_row,
                                  std::uint64_t count) const override;

 private:
  const FloatSource& source_;
  std::optional<float> amax_;
};

/// Codes and scales straight out of the hash: no float model, but of the same spread, and the same
/// in every storage. Cannot fail.
class RandomMaker : public RowMaker {
 public:
  explicit RandomMaker(std::uint64_t seed, bool even_scales = false)
      : seed_(seed), even_scales_(even_scales) {}
  Result<formats::Quantised> make(const Job& job, const MatrixId& matrix, std::uint64_t first_row,
                                  std::uint64_t count) const override;

 private:
  std::uint64_t seed_;
  bool even_scales_;
};

/// Lays the rows of the job's matrices together as they are to be stored.
///
/// Memory: the image, once more while it is transposed, and what 1M numbers take.
/// Errors: what the maker says.
Result<Image> make_image(const Job& job, const RowMaker& maker);

/// Largest magnitude of some matrices.
Result<float> largest_of(const std::vector<MatrixId>& matrices, const FloatSource& source);

}  // namespace lode::synth
