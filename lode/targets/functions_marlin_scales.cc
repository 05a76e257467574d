// Scales and biases of the Marlin layouts by themselves: permutations and conversions.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "lode/base/fmt.h"
#include "lode/formats/dequantise.h"
#include "lode/layout/marlin_scales.h"
#include "lode/targets/function_lists.h"
#include "lode/targets/functions_marlin.h"

namespace lode::targets {
namespace {

using formats::Format;
using Tensors = std::vector<NamedTensor>;

Error refuse(Code code, std::string thing, std::string wanted, std::string found) {
  return {.code = code,
          .thing = std::move(thing),
          .wanted = std::move(wanted),
          .found = std::move(found)};
}

// Columns of numbers of the tensor's width, in another order.
NamedTensor turned(const NamedTensor& from, std::string name, Format dtype,
                   parallel::FunctionRef<std::uint64_t(std::uint64_t)> source_of) {
  const std::size_t width = formats::info(from.dtype).bits / 8;
  NamedTensor made{std::move(name), dtype, from.shape, std::vector<std::byte>(from.bytes.size())};
  for (std::uint64_t at = 0; at < from.bytes.size() / width; ++at) {
    std::memcpy(made.bytes.data() + at * width, from.bytes.data() + source_of(at) * width, width);
  }
  return made;
}

bool is_bias(const NamedTensor& tensor) { return tensor.name.starts_with("bias"); }

// A bias is a row; of scales the number of rows says how many k one of them has.
Result<layout::MarlinScaleOrder> order_of(const NamedTensor& tensor, std::uint64_t k, bool narrow) {
  layout::MarlinScaleOrder order{layout::MarlinScaleMap::kSingle, false};
  if (!is_bias(tensor) && tensor.shape.size() == 2 && tensor.shape[0] > 0) {
    order.map =
        layout::marlin_scale_map(k / tensor.shape[0], k, narrow || tensor.name.ends_with("_a8"));
  }
  const std::uint64_t bits = formats::info(tensor.dtype).bits;
  if (bits % 8 != 0) {
    return refuse(Code::kInvalidSource, fmt::format("tensor {}", tensor.name),
                  "numbers of whole bytes", describe(tensor));
  }
  if (tensor.bytes.size() * 8 / bits % order.block() == 0) return order;
  return refuse(Code::kUnsupported, fmt::format("tensor {}", tensor.name),
                fmt::format("a multiple of {} numbers", order.block()), describe(tensor));
}

// Several rows of scales are groups of k, which their number alone does not say.
Status check_groups(const NamedTensor& tensor, std::uint64_t k) {
  if (is_bias(tensor) || tensor.shape.size() != 2 || tensor.shape[0] <= 1) return {};
  if (k != 0 && k % tensor.shape[0] == 0) return {};
  return refuse(
      Code::kUsage, "param size_k",
      fmt::format("a multiple of the {} groups of tensor {}", tensor.shape[0], tensor.name),
      k == 0 ? "nothing" : fmt::format("{}", k));
}

// Tensors of several widths may be turned at once: one of them is of this one.
Status check_columns(const Request& request, const Params& params) {
  if (!params.has("size_n")) return {};
  LODE_TRY(const std::uint64_t columns, params.count("size_n"));
  const bool there = std::ranges::any_of(request.inputs, [columns](const NamedTensor& tensor) {
    return !tensor.shape.empty() && tensor.shape.back() == columns;
  });
  if (there) return {};
  return refuse(Code::kUsage, "param size_n", "the columns of one of the tensors",
                fmt::format("{}", columns));
}

Result<Tensors> permute_scales(const Request& request) {
  const Params params(request.params);
  LODE_TRY(const std::uint64_t k, params.count("size_k", 0));
  LODE_TRY(const bool narrow, params.flag("is_a_8bit", false));
  LODE_TRY_STATUS(check_columns(request, params));
  Tensors made;
  for (const NamedTensor& input : request.inputs) {
    LODE_TRY_STATUS(check_groups(input, k));
    LODE_TRY(const layout::MarlinScaleOrder order, order_of(input, k, narrow));
    made.push_back(turned(input, input.name, input.dtype,
                          [&](std::uint64_t column) { return order.row_at(column); }));
  }
  return made;
}

std::uint64_t middle_swapped(std::uint64_t column) {
  constexpr std::array<std::uint64_t, 4> kOrder{0, 2, 1, 3};
  return column - column % 4 + kOrder[column % 4];
}

// Bytes through a table, perhaps with 0 2 1 3 within every four.
Result<NamedTensor> converted(const NamedTensor& from, std::string name, Format dtype,
                              const layout::ByteTable& table, bool swapped) {
  if (formats::info(from.dtype).bits != 8 || from.bytes.size() % 4 != 0) {
    return refuse(Code::kInvalidSource, fmt::format("tensor {}", from.name),
                  "bytes, a multiple of four", describe(from));
  }
  NamedTensor made = turned(from, std::move(name), dtype, [&](std::uint64_t column) {
    return swapped ? middle_swapped(column) : column;
  });
  for (std::byte& byte : made.bytes) {
    byte = static_cast<std::byte>(table[static_cast<std::uint8_t>(byte)]);
  }
  return made;
}

NamedTensor number_tensor(std::string name, std::span<const float> numbers) {
  NamedTensor made{std::move(name), Format::kF32, {numbers.size()}, {}};
  made.bytes.resize(numbers.size_bytes());
  std::ranges::copy(std::as_bytes(numbers), made.bytes.begin());
  return made;
}

float largest_of(const NamedTensor& scales) {
  float largest = 0.0F;
  for (std::uint64_t i = 0; i < scales.bytes.size(); ++i) {
    const float scale = formats::number_at(Format::kE4m3, scales.bytes, i);
    if (scale > largest) largest = scale;  // NaN is never larger
  }
  return largest;
}

// "codes_x" gives "s0e5m3_x" and "factor_x".
Result<Tensors> nvfp4_scales(const Request& request) {
  LODE_TRY(const Format activations, activations_param(Params(request.params), "param_dtype"));
  Tensors made;
  for (const NamedTensor& input : request.inputs) {
    std::string_view rest = input.name;
    if (rest.starts_with("codes")) rest.remove_prefix(std::string_view("codes").size());
    const std::string suffix =
        rest.empty() || rest.starts_with("_") ? std::string(rest) : fmt::format("_{}", rest);
    const float factor = layout::nvfp4_marlin_factor(largest_of(input), activations);
    LODE_TRY(NamedTensor bytes, converted(input, fmt::format("s0e5m3{}", suffix), Format::kE4m3,
                                          layout::nvfp4_marlin_bytes(factor, activations), true));
    made.push_back(std::move(bytes));
    made.push_back(number_tensor(fmt::format("factor{}", suffix), std::span(&factor, 1)));
  }
  return made;
}

Result<Tensors> nvfp4_global(const Request& request) {
  LODE_TRY(const Format activations, activations_param(Params(request.params), "a_dtype"));
  LODE_TRY(const NamedTensor* const scales, want(request.inputs, "global_scale"));
  if (scales->dtype != Format::kF32) {
    return refuse(Code::kInvalidSource, "tensor global_scale", "F32", describe(*scales));
  }
  std::vector<float> numbers(scales->bytes.size() / sizeof(float));
  std::ranges::copy(scales->bytes, std::as_writable_bytes(std::span(numbers)).begin());
  for (float& number : numbers) number = layout::nvfp4_marlin_global(number, 1.0F, activations);
  NamedTensor out = number_tensor("out", numbers);
  out.shape = scales->shape;
  return Tensors{std::move(out)};
}

Result<Tensors> mx_scales(const Request& request) {
  LODE_TRY(const Format activations, activations_param(Params(request.params), "param_dtype"));
  const layout::ByteTable wide = layout::mx_marlin_bytes(activations, false);
  Tensors made;
  if (const NamedTensor* const bytes = find(request.inputs, "bytes")) {
    for (const char* name : {"a16", "mxfp8"}) {
      LODE_TRY(NamedTensor out, converted(*bytes, name, Format::kE8m0, wide, true));
      made.push_back(std::move(out));
    }
  }
  if (const NamedTensor* const bytes = find(request.inputs, "bytes_a8")) {
    LODE_TRY_STATUS(check_room_for_six(*bytes));
    const layout::ByteTable narrow = layout::mx_marlin_bytes(activations, true);
    LODE_TRY(NamedTensor out, converted(*bytes, "a8", Format::kE8m0, narrow, false));
    made.push_back(std::move(out));
  }
  if (made.empty()) return want(request.inputs, "bytes").error();
  return made;
}

constexpr std::array<InputRow, 1> kPermuteInputs{
    {{kAnyName, "any [groups, N], or [N]; biases if named bias..."}}};
constexpr std::array<ParamRow, 3> kPermuteParams{
    {{"size_k", "K, needed where there are several groups", ParamUse::kOptional, "0"},
     {"is_a_8bit", "for 8-bit activations", ParamUse::kOptional, "false"},
     {"size_n", "N of one of the tensors", ParamUse::kFact, ""}}};
constexpr std::array<InputRow, 1> kNvfp4Inputs{
    {{kAnyName, "U8 or F8_E4M3 [groups, N]; codes_x gives s0e5m3_x and factor_x"}}};
constexpr std::array<InputRow, 1> kGlobalInputs{{{"global_scale", "F32 [any]"}}};
constexpr std::array<InputRow, 2> kMxInputs{
    {{"bytes", "U8 [groups, N]", false},
     {"bytes_a8", "the same, of kernels with 8-bit activations", false}}};
constexpr std::string_view kActivations = "the activations: bf16 or fp16";
constexpr std::array<ParamRow, 1> kParamDtype{
    {{"param_dtype", kActivations, ParamUse::kOptional, "bf16"}}};
constexpr std::array<ParamRow, 1> kActivationDtype{
    {{"a_dtype", kActivations, ParamUse::kOptional, "bf16"}}};

constexpr std::array<Function, 4> kFunctions{{
    {"marlin-permute-scales",
     {"marlin_utils.marlin_permute_scales, marlin_permute_bias"},
     "scales [groups, N] and biases, turned as the kernels read them",
     kPermuteInputs,
     kPermuteParams,
     false,
     permute_scales},
    {"marlin-nvfp4-scales",
     {"marlin_utils_fp4.nvfp4_marlin_process_scales",
      "marlin_utils_fp4.nvfp4_marlin_process_scales (scale_factor=None, a_dtype=param dtype)"},
     "E4M3 block scales, turned before, as S0E5M3 bytes with the factor of the tensor",
     kNvfp4Inputs,
     kParamDtype,
     false,
     nvfp4_scales},
    {"marlin-nvfp4-global-scale",
     {"marlin_utils_fp4.nvfp4_marlin_process_global_scale"},
     "scales of matrices, moved by what the kernels' bits leave out",
     kGlobalInputs,
     kActivationDtype,
     false,
     nvfp4_global},
    {"marlin-mx-scales",
     {"marlin_utils_fp4.mxfp4_marlin_process_scales; marlin_utils_fp8.mxfp8_marlin_process_scales"},
     "E8M0 block scales, turned before, as the kernels read them",
     kMxInputs,
     kParamDtype,
     false,
     mx_scales},
}};

}  // namespace

std::span<const Function> marlin_scale_functions() noexcept { return kFunctions; }

}  // namespace lode::targets
