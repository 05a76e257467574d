#include <algorithm>
#include <array>
#include <cstring>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/formats/ue8m0_requantise.h"
#include "lode/layout/deepgemm_scales.h"
#include "lode/targets/function_lists.h"
#include "lode/targets/function_rows.h"

// Scales that are powers of two, and DeepGEMM's order of them.

namespace lode::targets {
namespace {

using formats::Format;
using Tensors = std::vector<NamedTensor>;

struct Blocks {
  std::uint64_t rows = 128;
  std::uint64_t k = 128;
};

Result<Blocks> blocks_of(const Request& request) {
  LODE_TRY(const auto block, Params(request.params).counts("block"));
  if (block.empty()) return Blocks{};
  if (block.size() == 2 && block[0] > 0 && block[1] > 0) return Blocks{block[0], block[1]};
  return Error{.code = Code::kUsage,
               .thing = "param block",
               .wanted = "two numbers above 0: rows and columns",
               .found = json::dump(*request.params.find("block"))};
}

Error misshapen(const NamedTensor& scale, const Matrices& blocks) {
  return Error{
      .code = Code::kInvalidSource,
      .thing = fmt::format("tensor {}", scale.name),
      .wanted = fmt::format("{} x {} x {} block scales", blocks.count, blocks.rows, blocks.columns),
      .found = describe(scale)};
}

/// FP8 matrices and their block scales.
struct Fp8Blocks {
  const NamedTensor& weight;
  const NamedTensor& scale;
  Matrices codes;
  Matrices scales;
  Blocks block;

  std::uint64_t strip_bytes() const noexcept { return block.rows * codes.columns; }
  std::uint64_t matrix_bytes() const noexcept { return codes.rows * codes.columns; }
};

Result<Fp8Blocks> fp8_blocks(const Request& request, std::string_view weight_name,
                             std::string_view scale_name) {
  LODE_TRY(const NamedTensor* const weight, want(request.inputs, weight_name));
  LODE_TRY(const NamedTensor* const scale, want(request.inputs, scale_name));
  if (weight->dtype != Format::kE4m3) {
    return Error{.code = Code::kInvalidSource,
                 .thing = fmt::format("tensor {}", weight_name),
                 .wanted = "F8_E4M3",
                 .found = describe(*weight)};
  }
  LODE_TRY(const Blocks block, blocks_of(request));
  const Fp8Blocks all{*weight, *scale, matrices_of(*weight), matrices_of(*scale), block};
  const Matrices wanted{all.codes.count, ceil_div(all.codes.rows, block.rows),
                        ceil_div(all.codes.columns, block.k)};
  const Format format = scale->dtype;
  const bool known = format == Format::kF32 || format == Format::kBf16 || format == Format::kU8 ||
                     format == Format::kE8m0;
  if (!known || wanted.count != all.scales.count || wanted.rows != all.scales.rows ||
      wanted.columns != all.scales.columns) {
    return misshapen(*scale, wanted);
  }
  return all;
}

bool are_exponents(const NamedTensor& scale) {
  return scale.dtype == Format::kU8 || scale.dtype == Format::kE8m0;
}

/// Brings all blocks of matrix `idx` to powers of two.
void requantise_matrix(const Fp8Blocks& all, std::uint64_t idx, Way way, std::span<std::byte> codes,
                       std::span<float> scales) {
  const std::uint64_t columns = all.scales.columns;
  const std::uint64_t scale_bytes = columns * formats::info(all.scale.dtype).bits / 8;
  const auto from = std::span(all.weight.bytes).subspan(idx * codes.size(), codes.size());
  make_units(way, from, all.strip_bytes(), codes, [&](auto in, auto out, std::uint64_t first) {
    for (std::uint64_t at = 0; at < in.size(); at += all.strip_bytes()) {
      const std::uint64_t row = first + at / all.strip_bytes();
      const std::uint64_t bytes = std::min<std::uint64_t>(all.strip_bytes(), in.size() - at);
      const std::uint64_t scale_row = idx * all.scales.rows + row;
      const formats::Fp8Strip strip{
          .first = in.data() + at,
          .step_bytes = all.codes.columns,
          .rows = bytes / all.codes.columns,
          .k = all.codes.columns,
          .block_k = all.block.k,
          .scales = std::span(all.scale.bytes).subspan(scale_row * scale_bytes, scale_bytes),
          .scale_format = all.scale.dtype};
      requantise_strip(strip, out.subspan(at, bytes), all.codes.columns,
                       scales.subspan(row * columns, columns));
    }
  });
}

struct Requantised {
  NamedTensor weight;
  NamedTensor scale;  // fp32 powers of two
};

Result<Requantised> requantised(const Request& request, const Fp8Blocks& all) {
  Requantised out;
  LODE_TRY(out.weight, make_tensor(all.weight.name, Format::kE4m3, all.weight.shape));
  std::vector<float> scales(all.scales.count * all.scales.rows * all.scales.columns);
  const std::uint64_t per_matrix = all.scales.rows * all.scales.columns;
  const std::uint64_t count = all.weight.bytes.empty() ? 0 : all.codes.count;
  for (std::uint64_t idx = 0; idx < count; ++idx) {
    const auto codes =
        std::span(out.weight.bytes).subspan(idx * all.matrix_bytes(), all.matrix_bytes());
    requantise_matrix(all, idx, request.way, codes,
                      std::span(scales).subspan(idx * per_matrix, per_matrix));
  }
  out.scale = tensor_of(all.scale.name, all.scale.shape, scales);
  return out;
}

Result<Tensors> ue8m0_requant(const Request& request) {
  LODE_TRY(const Fp8Blocks all, fp8_blocks(request, "weight", "weight_scale"));
  const Params params(request.params);
  LODE_TRY_STATUS(params.agree("E", json::Value(all.codes.count)));
  LODE_TRY_STATUS(params.agree("M", json::Value(all.codes.rows)));
  LODE_TRY_STATUS(params.agree("K", json::Value(all.codes.columns)));
  if (are_exponents(all.scale)) return Tensors{all.weight, all.scale};
  LODE_TRY(Requantised made, requantised(request, all));
  return Tensors{std::move(made.weight), std::move(made.scale)};
}

// DeepGEMM's words.

std::vector<std::byte> exponents_of(const NamedTensor& scale) {
  if (scale.dtype != Format::kF32) return scale.bytes;
  std::vector<std::byte> exponents;
  for (const float one : numbers_of(scale)) {
    exponents.push_back(std::byte{formats::exponent_byte(one)});
  }
  return exponents;
}

/// Exponents of matrices of `rows` rows in words, without the words behind the rows: as engines'
/// tensors have them, whose strides step over those.
Result<NamedTensor> packed(const Request& request, const NamedTensor& scale, std::uint64_t rows,
                           std::uint64_t block_rows) {
  const Matrices blocks = matrices_of(scale);
  const layout::DeepgemmScales words{rows, blocks.columns, block_rows};
  std::vector<std::uint64_t> shape{words.word_rows(), rows};
  if (scale.shape.size() > 2) shape.insert(shape.begin(), blocks.count);
  LODE_TRY(NamedTensor out, make_tensor(scale.name, Format::kI32, std::move(shape)));
  if (out.bytes.empty()) return out;  // its other extents may be anything
  const std::vector<std::byte> exponents = exponents_of(scale);
  const std::uint64_t step = request.way == Way::kStreamed ? 1 : words.word_rows();
  std::vector<std::byte> buffer(words.bytes());
  std::byte* to = out.bytes.data();
  for (std::uint64_t idx = 0; idx < blocks.count; ++idx) {
    const std::uint64_t one = blocks.rows * blocks.columns;
    const auto rows_of_blocks =
        layout::rows_of(std::span(exponents).subspan(idx * one, one), 1, blocks.columns);
    for (std::uint64_t first = 0; first < words.word_rows(); first += step) {
      const auto part = std::span(buffer).first(step * words.word_row_bytes());
      layout::deepgemm_scales_into(words, {1, rows}, rows_of_blocks, first, part);
      for (std::uint64_t i = 0; i < step; ++i, to += rows * 4) {
        std::memcpy(to, part.data() + i * words.word_row_bytes(), rows * 4);
      }
    }
  }
  return out;
}

/// By w2 [E, K, N]; of FP4 a byte has two codes.
Status check_sizes(const Request& request) {
  LODE_TRY(const NamedTensor* const down, want(request.inputs, "w2"));
  const Matrices sizes = matrices_of(*down);
  const std::uint64_t codes_of_byte = down->dtype == Format::kU8 ? 2 : 1;
  return check_layer_facts(Params(request.params),
                           {sizes.count, sizes.rows, sizes.columns * codes_of_byte});
}

Result<Tensors> deepgemm_fp8(const Request& request) {
  LODE_TRY_STATUS(check_sizes(request));
  Tensors weights, scales;
  for (const std::string_view name : {"w13", "w2"}) {
    LODE_TRY(const Fp8Blocks all, fp8_blocks(request, name, fmt::format("{}_scale", name)));
    Requantised made{all.weight, all.scale};
    if (!are_exponents(all.scale)) {
      LODE_TRY(made, requantised(request, all));
    }
    LODE_TRY(NamedTensor words, packed(request, made.scale, all.codes.rows, all.block.rows));
    weights.push_back(std::move(made.weight));
    scales.push_back(std::move(words));
  }
  weights.insert(weights.end(), scales.begin(), scales.end());
  return weights;
}

Result<Tensors> deepgemm_mxfp4(const Request& request) {
  LODE_TRY_STATUS(check_sizes(request));
  Tensors out;
  for (const std::string_view name : {"w13", "w2"}) {
    LODE_TRY(const NamedTensor* const weight,
             want(request.inputs, name, {Format::kU8, Format::kE2m1},
                  {kAnyExtent, kAnyExtent, kAnyExtent}));
    LODE_TRY(const NamedTensor* const scale,
             want(request.inputs, fmt::format("{}_scale", name), {Format::kU8, Format::kE8m0},
                  {weight->shape[0], weight->shape[1], kAnyExtent}));
    LODE_TRY(NamedTensor words, packed(request, *scale, weight->shape[1], 1));
    out.push_back(*weight);
    out.push_back(std::move(words));
  }
  return out;
}

constexpr std::string_view kOf128 = "bn_";
constexpr std::uint64_t kRowsOfOne = 32;  // of the matrix under bn_x for each row of x

/// Every scale tensor by itself; bn_x has rows of blocks of 128 rows, of a matrix that has 32 rows
/// for each of x.
Result<Tensors> pack_words(const Request& request) {
  Tensors out;
  for (const NamedTensor& scale : request.inputs) {
    if (scale.shape.size() < 2 || (scale.dtype != Format::kF32 && !are_exponents(scale))) {
      return Error{.code = Code::kInvalidSource,
                   .thing = fmt::format("tensor {}", scale.name),
                   .wanted = "F32, U8 or F8_E8M0 [..., rows, blocks]",
                   .found = describe(scale)};
    }
    std::uint64_t rows = matrices_of(scale).rows;
    const bool of_128 = scale.name.starts_with(kOf128);
    if (of_128) {
      LODE_TRY(const NamedTensor* const other,
               want(request.inputs, std::string_view(scale.name).substr(kOf128.size())));
      rows = matrices_of(*other).rows * kRowsOfOne;
      const Matrices blocks = matrices_of(scale);
      const Matrices wanted{blocks.count, ceil_div<std::uint64_t>(rows, 128), blocks.columns};
      if (blocks.rows != wanted.rows) return misshapen(scale, wanted);
    }
    LODE_TRY(NamedTensor words, packed(request, scale, rows, of_128 ? 128 : 1));
    out.push_back(std::move(words));
  }
  return out;
}

constexpr std::array<InputRow, 2> kRequantInputs{
    {{"weight", "F8_E4M3 [E, M, K]"}, {"weight_scale", "F32 [E, rows, columns]"}}};
constexpr ParamRow kBlock{"block", "[rows, k] of a block", ParamUse::kOptional, "[128, 128]"};
constexpr std::array kRequantParams{kBlock, ParamRow{"E", "experts", ParamUse::kFact, ""},
                                    ParamRow{"M", "rows", ParamUse::kFact, ""},
                                    ParamRow{"K", "columns", ParamUse::kFact, ""}};
constexpr std::array<InputRow, 1> kWordInputs{
    {{kAnyName, "F32, U8 or F8_E8M0 [b, rows, C]; bn_x: scales of 128 rows of what x has 32 of"}}};
constexpr std::array<InputRow, 4> kFp8Inputs{{{"w13", "F8_E4M3 [E, rows, K]"},
                                              {"w2", "F8_E4M3 [E, K, N]"},
                                              {"w13_scale", "F32 or U8, of blocks"},
                                              {"w2_scale", "F32 or U8, of blocks"}}};
constexpr auto kFp8Params = joined(std::array{kBlock}, kLayerFacts);
constexpr std::array<InputRow, 4> kMxfp4Inputs{{{"w13", "U8 [E, rows, K/2]"},
                                                {"w2", "U8 [E, K, N/2]"},
                                                {"w13_scale", "U8 or F8_E8M0 [E, rows, K/32]"},
                                                {"w2_scale", "U8 or F8_E8M0 [E, K, N/32]"}}};

constexpr std::array<Function, 4> kFunctions{{
    {"ue8m0-requantise",
     {"fp8_utils.requant_weight_ue8m0_inplace -> deep_gemm.per_block_cast_to_fp8(use_ue8m0=True)"},
     "brings FP8 blocks to scales that are powers of two",
     kRequantInputs,
     kRequantParams,
     true,
     ue8m0_requant},
    {"deepgemm-scales",
     {"DeepGEMM tests/test_layout.get_mn_major_tma_aligned_packed_ue8m0_tensor_torch_impl"},
     "exponents of scales in words of four, rows side by side",
     kWordInputs,
     {},
     false,
     pack_words},
    {"deepgemm-fp8",
     {"fp8_utils.prepare_fp8_moe_layer_for_deepgemm (E8M0 on)"},
     "FP8 blocks with scales that are powers of two, in words of four",
     kFp8Inputs,
     kFp8Params,
     true,
     deepgemm_fp8},
    {"deepgemm-mxfp4",
     {"oracle.mxfp4.convert_weight_to_mxfp4_moe_kernel_format (DEEPGEMM)",
      "oracle.mxfp4.convert_gpt_oss_weight_to_mxfp4_moe_kernel_format (DEEPGEMM)"},
     "MXFP4 experts as they are, scales in words of four",
     kMxfp4Inputs,
     kLayerFacts,
     false,
     deepgemm_mxfp4},
}};

}  // namespace

std::span<const Function> fp8_block_functions() noexcept { return kFunctions; }

}  // namespace lode::targets
