#include <array>
#include <cstring>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/formats/bf16.h"
#include "lode/formats/block_scale.h"
#include "lode/formats/e2m1.h"
#include "lode/formats/f16.h"
#include "lode/targets/function_lists.h"
#include "lode/targets/function_rows.h"

// What the numbers of a checkpoint mean, as engines decode them.

namespace lode::targets {
namespace {

using formats::Encoding;
using formats::Format;
using Tensors = std::vector<NamedTensor>;

/// fp32 numbers as another format.
Result<NamedTensor> rounded(std::string_view name, Format format,
                            const std::vector<std::uint64_t>& shape,
                            std::span<const float> numbers) {
  if (format == Format::kF32) return tensor_of(name, shape, numbers);
  LODE_TRY(NamedTensor out, make_tensor(name, format, shape));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::uint16_t code =
        format == Format::kF16 ? formats::encode_f16(numbers[i]) : formats::encode_bf16(numbers[i]);
    std::memcpy(out.bytes.data() + i * 2, &code, 2);
  }
  return out;
}

/// Matrices of codes with their scales, in fp32 by the law.
struct Codes {
  const NamedTensor& codes;
  const NamedTensor& scales;
  Encoding encoding;
  std::vector<float> matrix_scales{};  // one a matrix, if there are any
};

Result<std::vector<float>> decoded(const Codes& all, std::vector<std::uint64_t>& shape) {
  const Matrices matrices = matrices_of(all.codes);
  shape = all.codes.shape;
  if (all.encoding.element == Format::kE2m1) shape.back() *= 2;
  const std::uint64_t k = shape.back();
  const std::uint64_t code_bytes = matrices.rows * matrices.columns;
  const std::uint64_t scale_bytes = formats::scales_bytes(all.encoding, matrices.rows, k);
  if (all.scales.bytes.size() != scale_bytes * matrices.count ||
      (!all.matrix_scales.empty() && all.matrix_scales.size() != matrices.count)) {
    return Error{.code = Code::kInvalidSource,
                 .thing = fmt::format("tensor {}", all.scales.name),
                 .wanted = fmt::format("the scales of {}", describe(all.codes)),
                 .found = describe(all.scales)};
  }
  std::vector<float> out(matrices.count * matrices.rows * k);
  if (all.codes.bytes.empty()) return out;
  for (std::uint64_t idx = 0; idx < matrices.count; ++idx) {
    const formats::EncodedMatrix matrix{
        all.encoding,
        matrices.rows,
        k,
        std::span(all.codes.bytes).subspan(idx * code_bytes, code_bytes),
        std::span(all.scales.bytes).subspan(idx * scale_bytes, scale_bytes),
        all.matrix_scales.empty() ? 1.0F : all.matrix_scales[idx]};
    LODE_TRY_STATUS(formats::check_matrix(matrix));
    for (std::uint64_t row = 0; row < matrices.rows; ++row) {
      dequantise_row(matrix, row, std::span(out).subspan((idx * matrices.rows + row) * k, k));
    }
  }
  return out;
}

struct Decoding {
  std::string_view codes;
  std::string_view scales;
  Encoding encoding;
  std::string_view matrix_scales{};
};

/// Adds the numbers of a matrix under each name and format; nothing if it is not there.
Status add_decoded(const Request& request, const Decoding& what,
                   std::initializer_list<std::pair<std::string_view, Format>> outputs,
                   Tensors& out) {
  const NamedTensor* const codes = find(request.inputs, what.codes);
  if (codes == nullptr) return {};
  const Format wanted = what.encoding.element == Format::kE2m1 ? Format::kU8 : Format::kE4m3;
  if (codes->dtype != wanted || codes->shape.empty()) {
    return Error{.code = Code::kInvalidSource,
                 .thing = fmt::format("tensor {}", codes->name),
                 .wanted = std::string(formats::info(wanted).safetensors_name),
                 .found = describe(*codes)};
  }
  LODE_TRY(const NamedTensor* const scales, want(request.inputs, what.scales));
  Codes all{*codes, *scales, what.encoding};
  if (!what.matrix_scales.empty()) {
    LODE_TRY(const NamedTensor* const tensor_scales, want(request.inputs, what.matrix_scales));
    all.matrix_scales = numbers_of(*tensor_scales);
  }
  std::vector<std::uint64_t> shape;
  LODE_TRY(const std::vector<float> numbers, decoded(all, shape));
  for (const auto& [name, format] : outputs) {
    LODE_TRY(NamedTensor tensor, rounded(name, format, shape, numbers));
    out.push_back(std::move(tensor));
  }
  return {};
}

/// E2M1 pairs as numbers, and packed again.
void add_pairs(const NamedTensor& pairs, Tensors& out) {
  std::vector<float> numbers(pairs.bytes.size() * 2);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = formats::number_at(Format::kE2m1, pairs.bytes, i);
  }
  std::vector<std::uint64_t> shape = pairs.shape;
  if (!shape.empty()) shape.back() *= 2;
  out.push_back(tensor_of("e2m1", shape, numbers));
  out.push_back(tensor_of("e2m1_ct", shape, numbers));
  NamedTensor packed = renamed(pairs, "repacked_ct", Format::kU8);
  for (std::size_t i = 0; i < packed.bytes.size(); ++i) {
    packed.bytes[i] = std::byte{formats::nibble_pair(formats::encode_e2m1(numbers[2 * i]),
                                                     formats::encode_e2m1(numbers[2 * i + 1]))};
  }
  out.push_back(std::move(packed));
}

Result<Encoding> fp8_block_encoding(const Request& request) {
  Encoding encoding = formats::kFp8Block128;
  LODE_TRY(const auto block, Params(request.params).counts("fp8_block"));
  if (block.empty()) return encoding;
  constexpr std::uint64_t kMost = 1U << 24;
  if (block.size() != 2 || block[0] == 0 || block[1] == 0 || block[0] > kMost || block[1] > kMost) {
    return Error{.code = Code::kUsage,
                 .thing = "param fp8_block",
                 .wanted = "two numbers above 0: rows and columns",
                 .found = json::dump(*request.params.find("fp8_block"))};
  }
  encoding.block_rows = static_cast<std::uint32_t>(block[0]);
  encoding.block_k = static_cast<std::uint32_t>(block[1]);
  return encoding;
}

Result<Tensors> decode(const Request& request) {
  Tensors out;
  if (const NamedTensor* const codes = find(request.inputs, "w8")) {
    const Params params(request.params);
    LODE_TRY_STATUS(params.agree("M", json::Value(matrices_of(*codes).rows)));
    LODE_TRY_STATUS(params.agree("K", json::Value(matrices_of(*codes).columns)));
  }
  if (const NamedTensor* const pairs = find(request.inputs, "bytes")) add_pairs(*pairs, out);
  LODE_TRY_STATUS(add_decoded(request, {"w4", "w4_scale", formats::kNvfp4, "w4_scale_2"},
                              {{"nvfp4_f32", Format::kF32}, {"nvfp4_bf16", Format::kBf16}}, out));
  LODE_TRY_STATUS(add_decoded(request, {"w8", "w8_mx_scale", formats::kMxfp8},
                              {{"mxfp8_bf16", Format::kBf16}}, out));
  LODE_TRY(const Encoding blocks, fp8_block_encoding(request));
  LODE_TRY_STATUS(add_decoded(request, {"w8", "w8_block_scale", blocks},
                              {{"fp8_block_f32", Format::kF32}}, out));
  LODE_TRY_STATUS(add_decoded(request, {"w8", "w8_tensor_scale", formats::kFp8Tensor},
                              {{"fp8_tensor_f16", Format::kF16}}, out));
  return out;
}

constexpr std::array<InputRow, 8> kInputs{{{"bytes", "U8, E2M1 pairs", false},
                                           {"w4", "U8 [any, rows, K/2]", false},
                                           {"w4_scale", "F8_E4M3, with w4", false},
                                           {"w4_scale_2", "F32, with w4", false},
                                           {"w8", "F8_E4M3 [M, K]", false},
                                           {"w8_mx_scale", "U8 [M, K/32], with w8", false},
                                           {"w8_block_scale", "F32, of blocks, with w8", false},
                                           {"w8_tensor_scale", "F32 [1], with w8", false}}};
constexpr std::array<ParamRow, 3> kParams{
    {{"fp8_block", "[rows, k] of a block of w8", ParamUse::kOptional, "[128, 128]"},
     {"M", "rows of w8", ParamUse::kFact, ""},
     {"K", "columns of w8", ParamUse::kFact, ""}}};

constexpr std::array<Function, 1> kFunctions{{
    {"decode",
     {"nvfp4_emulation_utils.break_fp4_bytes, dequantize_to_dtype; compressed_tensors 0.20.1 "
      "unpack_fp4_from_uint8, pack_fp4_to_uint8; mxfp8_utils.dequant_mxfp8_to_bf16; "
      "quant_utils.scaled_dequantize; w8a8_utils.per_tensor_dequantize"},
     "what the codes of the formats of checkpoints mean",
     kInputs,
     kParams,
     false,
     decode},
}};

}  // namespace

std::span<const Function> decode_functions() noexcept { return kFunctions; }

}  // namespace lode::targets
