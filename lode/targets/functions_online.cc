#include <algorithm>
#include <array>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/formats/online_quantise.h"
#include "lode/targets/function_lists.h"
#include "lode/targets/function_rows.h"

namespace lode::targets {
namespace {

using formats::Format;
using formats::OnlineRows;
using formats::OnlineScheme;
using Tensors = std::vector<NamedTensor>;

/// One tensor of matrices, each quantised by itself.
struct Job {
  OnlineScheme scheme;
  const NamedTensor& source;
};

struct Made {
  std::vector<std::byte> codes;
  std::vector<std::byte> scales;
  std::vector<float> matrix_scales;
};

Status check_job(const Job& job) {
  const NamedTensor& source = job.source;
  const bool known = source.dtype == Format::kBf16 || source.dtype == Format::kF16;
  if (!known || source.shape.size() < 2 || source.bytes.empty()) {
    return Error{.code = Code::kInvalidSource,
                 .thing = fmt::format("tensor {}", source.name),
                 .wanted = "BF16 or F16 [..., rows, k], one number at least",
                 .found = describe(source)};
  }
  const Matrices all = matrices_of(source);
  const std::uint64_t multiple = formats::info(job.scheme).k_multiple;
  if (all.columns % multiple == 0) return {};
  return Error{.code = Code::kUnsupported,
               .thing = fmt::format("tensor {} to {}", source.name, formats::info(job.scheme).name),
               .wanted = fmt::format("rows of a multiple of {} numbers", multiple),
               .found = describe(source)};
}

OnlineRows rows_of(const Job& job, std::uint64_t idx) {
  const Matrices all = matrices_of(job.source);
  return {.first = job.source.bytes.data() + idx * all.rows * all.columns * 2,
          .step_bytes = all.columns * 2,
          .rows = all.rows,
          .k = all.columns,
          .format = job.source.dtype};
}

/// Rows [first, first + count) of these; none if they end before.
OnlineRows part_of(const OnlineRows& rows, std::uint64_t first, std::uint64_t count) {
  OnlineRows part = rows;
  part.rows = rows.rows > first ? std::min(count, rows.rows - first) : 0;
  if (part.rows > 0) part.first += first * rows.step_bytes;
  return part;
}

/// One matrix, whole or in strips.
bool quantise_matrix(const Job& job, Way way, const OnlineRows& rows, float amax,
                     const formats::OnlineOutput& out) {
  const formats::Encoding& encoding = formats::info(job.scheme).encoding;
  const std::uint64_t block_rows = encoding.block_rows == 128 ? 128 : 3;
  const std::uint64_t strip =
      way == Way::kStreamed ? block_rows : std::max<std::uint64_t>(out.rows, 1);
  bool finite = true;
  for (std::uint64_t first = 0; first < out.rows; first += strip) {
    const std::uint64_t rows_now = std::min(strip, out.rows - first);
    const std::uint64_t row_bytes = formats::row_bytes(encoding, out.k);
    const std::uint64_t scale_row = encoding.block_rows == 128 ? first / 128 : first;
    const bool has_scales = !out.scales.empty();
    const std::uint64_t per_row = has_scales ? formats::scales_bytes(encoding, 1, out.k) : 0;
    const std::uint64_t scale_bytes =
        has_scales ? formats::scales_bytes(encoding, rows_now, out.k) : 0;
    const formats::OnlineOutput part{
        rows_now, out.k, out.codes.subspan(first * row_bytes, rows_now * row_bytes),
        out.scales.subspan(has_scales ? scale_row * per_row : 0, scale_bytes)};
    finite = quantise_online(job.scheme, part_of(rows, first, rows_now), amax, part) && finite;
  }
  return finite;
}

Result<Made> quantised(const Request& request, const Job& job) {
  LODE_TRY_STATUS(check_job(job));
  const Matrices all = matrices_of(job.source);
  const formats::Encoding& encoding = formats::info(job.scheme).encoding;
  const bool has_scales = job.scheme != OnlineScheme::kTensorFp8;
  const std::uint64_t code_bytes = all.rows * formats::row_bytes(encoding, all.columns);
  const std::uint64_t scale_bytes =
      has_scales ? formats::scales_bytes(encoding, all.rows, all.columns) : 0;
  Made made;
  made.codes.resize(all.count * code_bytes);
  made.scales.resize(all.count * scale_bytes);
  for (std::uint64_t idx = 0; idx < all.count; ++idx) {
    const OnlineRows rows = rows_of(job, idx);
    const float amax = formats::largest_magnitude(rows);
    made.matrix_scales.push_back(formats::online_matrix_scale(job.scheme, amax));
    const formats::OnlineOutput out{all.rows, all.columns,
                                    std::span(made.codes).subspan(idx * code_bytes, code_bytes),
                                    std::span(made.scales).subspan(idx * scale_bytes, scale_bytes)};
    if (quantise_matrix(job, request.way, rows, amax, out)) continue;
    return Error{.code = Code::kInvalidSource,
                 .thing = fmt::format("tensor {}", job.source.name),
                 .wanted = "finite numbers",
                 .found = fmt::format("an infinity or NaN in matrix {}", idx)};
  }
  return made;
}

std::vector<std::uint64_t> with_last(std::vector<std::uint64_t> shape, std::uint64_t extent) {
  shape.back() = extent;
  return shape;
}

using Extents = std::vector<std::uint64_t>;

/// By w2 [E, K, N].
Status check_experts(const Request& request) {
  LODE_TRY(const NamedTensor* const down, want(request.inputs, "w2"));
  const Params params(request.params);
  const Matrices sizes = matrices_of(*down);
  LODE_TRY_STATUS(check_layer_facts(params, {sizes.count, sizes.rows, sizes.columns}));
  return params.agree("dtype", down->dtype == Format::kF16 ? "fp16" : "bf16");
}

/// w13 and w2 of experts; the extents of a scale are `scale_shape(of the weight)`.
template <class ScaleShape>
Result<Tensors> experts(const Request& request, OnlineScheme scheme, Format codes,
                        ScaleShape scale_shape) {
  LODE_TRY_STATUS(check_experts(request));
  Tensors out;
  for (const std::string_view name : {"w13", "w2"}) {
    LODE_TRY(const NamedTensor* const source,
             want(request.inputs, name, {Format::kBf16, Format::kF16},
                  {kAnyExtent, kAnyExtent, kAnyExtent}));
    LODE_TRY(Made made, quantised(request, Job{scheme, *source}));
    out.push_back({std::string(name), codes, source->shape, std::move(made.codes)});
    const std::string scale_name = fmt::format("{}_scale", name);
    if (made.scales.empty()) {
      out.push_back(tensor_of(scale_name, scale_shape(source->shape), made.matrix_scales));
    } else {
      out.push_back({scale_name, Format::kF32, scale_shape(source->shape), std::move(made.scales)});
    }
  }
  return out;
}

Result<Tensors> fp8_tensor(const Request& request) {
  return experts(request, OnlineScheme::kTensorFp8, Format::kE4m3,
                 [](const Extents& shape) { return Extents{shape[0]}; });
}

Result<Tensors> fp8_channel(const Request& request) {
  return experts(request, OnlineScheme::kRowFp8, Format::kE4m3, [](const Extents& shape) {
    return Extents{shape[0], shape[1], 1};
  });
}

Result<Tensors> int8(const Request& request) {
  return experts(request, OnlineScheme::kRowInt8, Format::kI8, [](const Extents& shape) {
    return Extents{shape[0], shape[1]};
  });
}

Status check_block(const Request& request) {
  LODE_TRY(const auto block, Params(request.params).counts("block"));
  if (block.empty() || (block.size() == 2 && block[0] == 128 && block[1] == 128)) return {};
  return Error{.code = Code::kUnsupported,
               .thing = "param block",
               .wanted = "[128, 128]: engines quantise to no other",
               .found = json::dump(*request.params.find("block"))};
}

/// What of a matrix, or of each of its halves, the checkpoint has; the rest is padding.
struct Known {
  std::uint64_t halves = 1;
  std::uint64_t rows = 0;  // of each half
  std::uint64_t k = 0;
};

/// With zeros for the padding, whatever it holds.
NamedTensor without_padding(const NamedTensor& source, const Known& known) {
  NamedTensor clean = source;
  const Matrices all = matrices_of(source);
  const std::uint64_t half_rows = all.rows / known.halves;
  for (std::uint64_t row = 0; row < all.count * all.rows; ++row) {
    const bool is_known = row % all.rows % half_rows < known.rows;
    const std::uint64_t columns = is_known ? std::min(known.k, all.columns) : 0;
    const auto bytes = std::span(clean.bytes).subspan(row * all.columns * 2, all.columns * 2);
    std::ranges::fill(bytes.subspan(columns * 2), std::byte{0});
  }
  return clean;
}

// What of an extent the checkpoint had before it was padded: all of it unless the param says less.
Result<std::uint64_t> unpadded(const Params& params, std::string_view name, std::uint64_t extent) {
  LODE_TRY(const std::uint64_t known, params.count(name, extent));
  if (known > 0 && known <= extent) return known;
  return Error{.code = Code::kUsage,
               .thing = fmt::format("param {}", name),
               .wanted = fmt::format("1 to {}, the extent of the tensors", extent),
               .found = fmt::format("{}", known)};
}

Result<Tensors> fp8_block(const Request& request) {
  LODE_TRY_STATUS(check_block(request));
  LODE_TRY_STATUS(check_experts(request));
  const Params params(request.params);
  LODE_TRY(const NamedTensor* const w2, want(request.inputs, "w2", {Format::kBf16, Format::kF16},
                                             {kAnyExtent, kAnyExtent, kAnyExtent}));
  const std::uint64_t hidden = w2->shape[1];
  const std::uint64_t intermediate = w2->shape[2];
  LODE_TRY(const NamedTensor* const w13, want(request.inputs, "w13", {Format::kBf16, Format::kF16},
                                              {w2->shape[0], kAnyExtent, hidden}));
  LODE_TRY(const std::uint64_t hidden_known, unpadded(params, "hidden_unpadded", hidden));
  LODE_TRY(const std::uint64_t known, unpadded(params, "intermediate_unpadded", intermediate));
  const std::uint64_t halves = w13->shape[1] == 2 * intermediate ? 2 : 1;
  Tensors out;
  for (const NamedTensor& source : {without_padding(*w13, {halves, known, hidden_known}),
                                    without_padding(*w2, {1, hidden_known, known})}) {
    LODE_TRY(Made made, quantised(request, Job{OnlineScheme::kBlockFp8, source}));
    const Extents& shape = source.shape;
    Extents scale_shape{shape[0], ceil_div<std::uint64_t>(shape[1], 128),
                        ceil_div<std::uint64_t>(shape[2], 128)};
    out.push_back({source.name, Format::kE4m3, shape, std::move(made.codes)});
    out.push_back(
        {source.name + "_scale", Format::kF32, std::move(scale_shape), std::move(made.scales)});
  }
  return out;
}

/// One tensor with scales of one byte a block along k.
struct MxNames {
  std::string_view source, codes;
};
Result<Tensors> mx(const Request& request, OnlineScheme scheme, const MxNames& names,
                   Format codes_dtype, Format scale_dtype) {
  LODE_TRY(const NamedTensor* const source, want(request.inputs, names.source));
  const Params params(request.params);
  const Matrices sizes = matrices_of(*source);
  LODE_TRY_STATUS(params.agree("E", json::Value(sizes.count)));
  LODE_TRY_STATUS(params.agree("M", json::Value(sizes.rows)));
  LODE_TRY_STATUS(params.agree("K", json::Value(sizes.columns)));
  LODE_TRY(Made made, quantised(request, Job{scheme, *source}));
  const formats::Encoding& encoding = formats::info(scheme).encoding;
  const std::uint64_t k = source->shape.back();
  Tensors out;
  out.push_back({std::string(names.codes), codes_dtype,
                 with_last(source->shape, formats::row_bytes(encoding, k)), std::move(made.codes)});
  out.push_back({"scale", scale_dtype, with_last(source->shape, k / encoding.block_k),
                 std::move(made.scales)});
  if (scheme == OnlineScheme::kNv4) {
    out.push_back(tensor_of("scale_2", {made.matrix_scales.size()}, made.matrix_scales));
  }
  return out;
}

Result<Tensors> mxfp4(const Request& request) {
  return mx(request, OnlineScheme::kMx4, {"w", "w"}, Format::kU8, Format::kU8);
}
Result<Tensors> mxfp8(const Request& request) {
  return mx(request, OnlineScheme::kMx8, {"x", "q"}, Format::kE4m3, Format::kU8);
}
Result<Tensors> nvfp4(const Request& request) {
  return mx(request, OnlineScheme::kNv4, {"w", "w"}, Format::kU8, Format::kE4m3);
}

constexpr std::array<InputRow, 2> kExperts{
    {{"w13", "BF16 or F16 [E, rows, K]"}, {"w2", "BF16 or F16 [E, K, N]"}}};
constexpr std::array<InputRow, 1> kMatrices{{{"w", "BF16 or F16 [..., M, K]"}}};
constexpr std::array<InputRow, 1> kActivations{{{"x", "BF16 or F16 [..., M, K]"}}};
constexpr auto kExpertParams =
    joined(kLayerFacts, std::array<ParamRow, 1>{{{"dtype", "bf16 or fp16", ParamUse::kFact, ""}}});
constexpr auto kBlockParams = joined(
    std::array<ParamRow, 3>{
        {{"hidden_unpadded", "hidden size of the checkpoint", ParamUse::kOptional, "K"},
         {"intermediate_unpadded", "intermediate size of the checkpoint", ParamUse::kOptional, "N"},
         {"block", "[128, 128]", ParamUse::kFact, ""}}},
    kExpertParams);
constexpr std::array<ParamRow, 3> kMatrixParams{{{"E", "matrices", ParamUse::kFact, ""},
                                                 {"M", "rows", ParamUse::kFact, ""},
                                                 {"K", "columns", ParamUse::kFact, ""}}};

constexpr std::array<Function, 7> kFunctions{{
    {"online-fp8-tensor",
     {"online.fp8.Fp8PerTensorOnlineMoEMethod.process_weights_after_loading"},
     "16-bit experts to FP8, one scale a matrix",
     kExperts,
     kExpertParams,
     false,
     fp8_tensor},
    {"online-fp8-channel",
     {"online.fp8.Fp8PtpcOnlineMoEMethod.process_weights_after_loading"},
     "16-bit experts to FP8, one scale a row",
     kExperts,
     kExpertParams,
     false,
     fp8_channel},
    {"online-fp8-block",
     {"online.fp8.Fp8PerBlockOnlineMoEMethod.process_weights_after_loading"},
     "16-bit experts to FP8, one scale a block of 128 x 128",
     kExperts,
     kBlockParams,
     false,
     fp8_block},
    {"online-int8",
     {"online.int8.Int8OnlineMoEMethod._quantize_weights"},
     "16-bit experts to INT8, one scale a row",
     kExperts,
     kExpertParams,
     false,
     int8},
    {"online-mxfp4",
     {"quantization.utils.mxfp4_utils.mxfp4_quantize (as called by "
      "online.mxfp4._quantize_mxfp4_moe_weight, one expert at a time)"},
     "16-bit numbers to MXFP4",
     kMatrices,
     kMatrixParams,
     false,
     mxfp4},
    {"online-mxfp8",
     {"mxfp8_utils._mxfp8_e4m3_quantize_torch"},
     "16-bit numbers to MXFP8",
     kActivations,
     kMatrixParams,
     false,
     mxfp8},
    {"online-nvfp4",
     {"online.nvfp4 with true reciprocals"},
     "16-bit numbers to NVFP4, matrix by matrix; a GPU's reciprocals are approximate",
     kMatrices,
     kMatrixParams,
     false,
     nvfp4},
}};

}  // namespace

std::span<const Function> online_functions() noexcept { return kFunctions; }

}  // namespace lode::targets
