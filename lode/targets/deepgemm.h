#pragma once

#include <cstdint>
#include <memory>

#include "lode/base/result.h"
#include "lode/layout/deepgemm_scales.h"
#include "lode/layout/row_order.h"
#include "lode/targets/target.h"

// DeepGEMM's grouped kernels of SM100, whose block scales are exponents:
//
//   from        weights                                     scales
//   fp8-block   each block of 128 x 128 brought to a        its exponent, for each row of the
//               power of two scale (none if it has one)     block, in words of four
//   mxfp4       as they are, zeros to multiples of 128      as they are, in words of four
//
// Gate's rows and up's stay as the checkpoint has them.
//
// Source: weight_layouts 2.6, 2.8, 3.6; tests/golden/weight_layouts, *deepgemm*.

namespace lode::targets {

/// Errors: kUnsupported naming sizes that are not multiples of 128: the kernels' own.
Result<std::unique_ptr<Preparer>> make_deepgemm_fp8(const ExpertsShape& shape,
                                                    const Options& options);
/// Errors: kUnsupported naming sizes that are not multiples of 32.
Result<std::unique_ptr<Preparer>> make_deepgemm_mxfp4(const ExpertsShape& shape,
                                                      const Options& options);

/// The rows of w13 and w2 and the words of their scales: what both preparers share.
struct DeepgemmLayout {
  layout::RowOrder gate_up;
  layout::RowOrder down;
  layout::DeepgemmScales gate_up_scales;
  layout::DeepgemmScales down_scales;
};
/// With sizes as they are prepared: `hidden` and `intermediate` padded, blocks of block_rows x
/// block_k.
DeepgemmLayout deepgemm_layout(const ExpertsShape& padded,
                               const formats::Encoding& blocks) noexcept;

/// A matrix's row in w13 or w2.
std::uint64_t position_of(const DeepgemmLayout& layout, Matrix matrix, std::uint64_t row) noexcept;

/// Errors: kUnsupported naming a size that is 0, too large or no multiple of `multiple`.
Status check_deepgemm_sizes(const ExpertsShape& shape, std::uint64_t multiple);

}  // namespace lode::targets
