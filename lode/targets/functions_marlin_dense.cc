// Dense layers for the Marlin kernels: one matrix [N, K], padded in both.
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "lode/base/fmt.h"
#include "lode/formats/dequantise.h"
#include "lode/targets/function_lists.h"
#include "lode/targets/functions_marlin.h"
#include "lode/targets/marlin_matrix.h"

namespace lode::targets {
namespace {

using formats::Encoding;
using formats::Format;
using Tensors = std::vector<NamedTensor>;

// The matrix of a layer with what it has beside it, rows first.
struct Dense {
  std::uint64_t rows = 0;
  std::uint64_t k = 0;
  std::vector<std::byte> codes;
  std::string scale_name;
  std::vector<std::byte> scales;  // of each row
  Encoding encoding;
  MarlinKernel kernel;
};

layout::MatrixRows rows_in(std::span<const std::byte> bytes, std::uint64_t rows) {
  return layout::rows_of(bytes, 1, bytes.size() / rows);
}

Result<MarlinMatrix> matrix_of(const Dense& dense) {
  LODE_TRY(const layout::MarlinSize padded,
           layout::marlin_padded_size({dense.rows, dense.k}, dense.encoding.block_k));
  return MarlinMatrix::make({1, false, dense.rows, padded.rows, dense.k, padded.k}, dense.encoding,
                            dense.encoding.scale, dense.kernel);
}

NamedTensor weights_of(const MarlinMatrix& matrix, const Dense& dense, Way way) {
  const layout::MarlinLayout& made = matrix.weights();
  const auto make = [&](std::span<const std::byte> from, std::uint64_t first,
                        std::span<std::byte> out) {
    matrix.make_weights(rows_in(from, dense.rows), first, out);
  };
  return {"weight",
          Format::kI32,
          {made.k() / 16, made.total_bytes() / (made.k() / 16) / 4},
          make_units(way, dense.codes, made.unit_bytes(), made.total_bytes(), make)};
}

NamedTensor scales_of(const MarlinMatrix& matrix, const Dense& dense,
                      const MarlinMatrix::Tables& tables, Way way) {
  const auto make = [&](std::span<const std::byte> from, std::uint64_t first,
                        std::span<std::byte> out) {
    const layout::MatrixRows rows = rows_in(from, dense.rows);
    if (matrix.rule() == MarlinScaleRule::kFp8) {
      matrix.make_scale_words(rows, {}, first, out);
    } else {
      matrix.make_scale_bytes(rows, tables, first, out);
    }
  };
  return {dense.scale_name,
          matrix.scale_dtype(),
          {matrix.groups(), matrix.rows().rows()},
          make_units(way, dense.scales, matrix.scale_unit_bytes(),
                     matrix.groups() * matrix.scale_unit_bytes(), make)};
}

Status add_bias(const Request& request, const MarlinMatrix& matrix, std::uint64_t rows,
                Tensors& made) {
  if (find(request.inputs, "bias") == nullptr) return {};
  LODE_TRY(const NamedTensor* const bias,
           want(request.inputs, "bias", {Format::kF32, Format::kBf16, Format::kF16}, {rows}));
  const std::uint64_t count = matrix.rows().rows();
  NamedTensor out{"bias", matrix.kernel().activations, {count}, {}};
  out.bytes.resize(count * 2);
  matrix.make_bias(rows_in(bias->bytes, rows), bias->dtype, out.bytes);
  made.push_back(std::move(out));
  return {};
}

Error misshapen(const NamedTensor& tensor) {
  return Error{.code = Code::kInvalidSource,
               .thing = fmt::format("tensor {}", tensor.name),
               .wanted = "a matrix",
               .found = describe(tensor)};
}

// What manifests say of the sizes, and of those that the matrix is padded to.
Status check_sizes(const Params& params, const Dense& dense) {
  LODE_TRY(const layout::MarlinSize padded,
           layout::marlin_padded_size({dense.rows, dense.k}, dense.encoding.block_k));
  LODE_TRY_STATUS(params.agree("size_n", json::Value(dense.rows)));
  LODE_TRY_STATUS(params.agree("size_k", json::Value(dense.k)));
  LODE_TRY_STATUS(params.agree("padded_n", json::Value(padded.rows)));
  return params.agree("padded_k", json::Value(padded.k));
}

Result<Dense> read_fp4(const Request& request) {
  const Params params(request.params);
  Dense dense;
  dense.encoding =
      find(request.inputs, "weight_global_scale") != nullptr ? formats::kNvfp4 : formats::kMxfp4;
  LODE_TRY(dense.kernel.activations, activations_param(params, "param_dtype"));
  LODE_TRY(dense.kernel.narrow_activations, narrow_activations_param(params));
  LODE_TRY(const NamedTensor* const weight,
           want(request.inputs, "weight", {Format::kU8}, {kAnyExtent, kAnyExtent}));
  if (weight->bytes.empty()) return misshapen(*weight);
  dense.rows = weight->shape[0];
  dense.k = 2 * weight->shape[1];
  LODE_TRY_STATUS(params.agree("kind", dense.encoding == formats::kNvfp4 ? "nvfp4" : "mxfp4"));
  LODE_TRY_STATUS(check_sizes(params, dense));
  dense.codes = weight->bytes;
  dense.scale_name = "weight_scale";
  LODE_TRY(const NamedTensor* const scales,
           want(request.inputs, dense.scale_name, {Format::kU8, dense.encoding.scale},
                {dense.rows, formats::scale_columns(dense.encoding, dense.k)}));
  if (dense.kernel.narrow_activations) LODE_TRY_STATUS(check_room_for_six(*scales));
  dense.scales = scales->bytes;
  return dense;
}

// The power of two and the table of NVFP4; of MX the table alone.
float fp4_tables(const Dense& dense, MarlinMatrix::Tables& tables) {
  const Format activations = dense.kernel.activations;
  if (dense.encoding == formats::kMxfp4) {
    tables[0] = layout::mx_marlin_bytes(activations, dense.kernel.narrow_activations);
    return 1.0F;
  }
  float largest = 0.0F;
  for (std::uint64_t i = 0; i < dense.scales.size(); ++i) {
    const float scale = formats::number_at(Format::kE4m3, dense.scales, i);
    if (scale > largest) largest = scale;  // NaN is never larger
  }
  const float factor = layout::nvfp4_marlin_factor(largest, activations);
  tables[0] = layout::nvfp4_marlin_bytes(factor, activations);
  return factor;
}

Result<Tensors> fp4_layer(const Request& request) {
  LODE_TRY(const Dense dense, read_fp4(request));
  LODE_TRY(const MarlinMatrix matrix, matrix_of(dense));
  MarlinMatrix::Tables tables{};
  const float factor = fp4_tables(dense, tables);
  Tensors made;
  made.push_back(weights_of(matrix, dense, request.way));
  made.push_back(scales_of(matrix, dense, tables, request.way));
  if (dense.encoding == formats::kNvfp4) {
    const std::string_view name = "weight_global_scale";
    LODE_TRY(const NamedTensor* const stored, want(request.inputs, name));
    if (stored->dtype != Format::kF32 || stored->bytes.size() != sizeof(float)) {
      return Error{.code = Code::kInvalidSource,
                   .thing = fmt::format("tensor {}", name),
                   .wanted = "one F32",
                   .found = describe(*stored)};
    }
    const float global = layout::nvfp4_marlin_global(
        formats::number_at(Format::kF32, stored->bytes, 0), factor, dense.kernel.activations);
    NamedTensor out = *stored;
    std::memcpy(out.bytes.data(), &global, sizeof(global));
    made.push_back(std::move(out));
  }
  LODE_TRY_STATUS(add_bias(request, matrix, dense.rows, made));
  return made;
}

Result<Dense> read_fp8(const Request& request) {
  const Params params(request.params);
  Dense dense;
  LODE_TRY(dense.kernel.activations, activations_param(params, "orig_dtype"));
  LODE_TRY(const bool k_first, params.flag("size_k_first", false));
  LODE_TRY(std::vector<std::uint64_t> block, params.counts("weight_block_size"));
  LODE_TRY(std::vector<std::uint64_t> widths, params.counts("logical_widths"));
  LODE_TRY(const NamedTensor* const weight,
           want(request.inputs, "weight", {Format::kE4m3, Format::kU8}, {kAnyExtent, kAnyExtent}));
  if (weight->bytes.empty()) return misshapen(*weight);
  dense.rows = weight->shape[k_first ? 1 : 0];
  dense.k = weight->shape[k_first ? 0 : 1];
  dense.codes = k_first ? rows_from_columns(weight->bytes, dense.k, dense.rows) : weight->bytes;
  dense.encoding = formats::kFp8Channel;
  if (block.size() == 2) dense.encoding.block_k = static_cast<std::uint32_t>(block[1]);
  LODE_TRY_STATUS(check_sizes(params, dense));
  const bool inverse = find(request.inputs, "weight_scale_inv") != nullptr;
  dense.scale_name = inverse ? "weight_scale_inv" : "weight_scale";
  LODE_TRY(const NamedTensor* const scales, want(request.inputs, dense.scale_name));
  LODE_TRY(dense.scales, fp8_scales_by_row(*scales, {1, dense.rows, dense.k, std::move(block),
                                                     std::move(widths), k_first}));
  return dense;
}

Result<Tensors> fp8_layer(const Request& request) {
  LODE_TRY(const Dense dense, read_fp8(request));
  LODE_TRY(const MarlinMatrix matrix, matrix_of(dense));
  Tensors made;
  made.push_back(weights_of(matrix, dense, request.way));
  made.push_back(scales_of(matrix, dense, {}, request.way));
  LODE_TRY_STATUS(add_bias(request, matrix, dense.rows, made));
  return made;
}

constexpr std::array<InputRow, 4> kFp4Inputs{
    {{"weight", "U8 [N, K/2]"},
     {"weight_scale", "U8, F8_E8M0 or of NVFP4 F8_E4M3 [N, groups]"},
     {"weight_global_scale", "F32 [1], of NVFP4", false},
     {"bias", "F32, BF16 or F16 [N]", false}}};
constexpr std::array<InputRow, 4> kFp8Inputs{
    {{"weight", "F8_E4M3 [N, K] or [K, N]"},
     {"weight_scale", "F32, BF16 or F16 [1], [shards] or [N, 1]", false},
     {"weight_scale_inv", "the same of blocks, instead of weight_scale", false},
     {"bias", "F32, BF16 or F16 [N]", false}}};
constexpr std::array<ParamRow, 4> kSizes{{{"size_n", "N", ParamUse::kFact, ""},
                                          {"size_k", "K", ParamUse::kFact, ""},
                                          {"padded_n", "N, padded", ParamUse::kFact, ""},
                                          {"padded_k", "K, padded", ParamUse::kFact, ""}}};
constexpr auto kFp4Params = joined(
    std::array<ParamRow, 3>{{{"param_dtype", kActivationsParam, ParamUse::kOptional, "bf16"},
                             {"input_dtype", kInputDtypeParam, ParamUse::kOptional, "nothing"},
                             {"kind", "nvfp4 or mxfp4", ParamUse::kFact, ""}}},
    kSizes);
constexpr auto kFp8Params = joined(
    std::array<ParamRow, 4>{
        {{"orig_dtype", kActivationsParam, ParamUse::kOptional, "bf16"},
         {"size_k_first", "whether the weight is [K, N]", ParamUse::kOptional, "false"},
         {"weight_block_size", "[rows, k] of a block", ParamUse::kOptional, "no blocks"},
         {"logical_widths", "rows of each shard", ParamUse::kOptional, "equal shards"}}},
    kSizes);

constexpr std::array<Function, 2> kFunctions{{
    {"marlin-fp4-dense",
     {"marlin_utils_fp4.prepare_fp4_layer_for_marlin"},
     "an NVFP4 or MXFP4 matrix for the Marlin kernels, padded in both extents",
     kFp4Inputs,
     kFp4Params,
     true,
     fp4_layer},
    {"marlin-fp8-dense",
     {"marlin_utils_fp8.prepare_fp8_layer_for_marlin"},
     "an FP8 matrix for the Marlin kernels, padded in both extents",
     kFp8Inputs,
     kFp8Params,
     true,
     fp8_layer},
}};

}  // namespace

std::span<const Function> marlin_dense_functions() noexcept { return kFunctions; }

}  // namespace lode::targets
