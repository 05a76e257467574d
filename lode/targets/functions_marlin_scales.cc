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

// A bias is a row; of scales the number of rows says how many k one of them has.
Result<layout::MarlinScaleOrder> order_of(const NamedTensor& tensor, std::uint64_t k, bool narrow) {
  layout::MarlinScaleOrder order{layout::MarlinScaleMap::kSingle, false};
  if (!tensor.name.starts_with("bias") && tensor.shape.size() == 2 && tensor.shape[0] > 0) {
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

Result<Tensors> permute_scales(const Request& request) {
  const Params params(request.params);
  LODE_TRY(const std::uint64_t k, params.count("size_k", 0));
  LODE_TRY(const bool narrow, params.flag("is_a_8bit", false));
  Tensors made;
  for (const NamedTensor& input : request.inputs) {
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

constexpr std::string_view kScalesMeaning =
    "E4M3 block scales, turned before, as S0E5M3 bytes with the factor of the tensor";

constexpr std::array<Function, 5> kFunctions{{
    {"marlin-permute-scales", "marlin_utils.marlin_permute_scales, marlin_permute_bias",
     "scales [groups, N] and biases, turned as the kernels read them",
     "any [groups, N]; biases if named bias...", "size_k, is_a_8bit", false, permute_scales},
    {"marlin-nvfp4-scales", "marlin_utils_fp4.nvfp4_marlin_process_scales", kScalesMeaning,
     "codes... [groups, N] U8 or F8_E4M3", "param_dtype", false, nvfp4_scales},
    {"marlin-nvfp4-scales",
     "marlin_utils_fp4.nvfp4_marlin_process_scales (scale_factor=None, a_dtype=param dtype)",
     kScalesMeaning, "codes... [groups, N] U8 or F8_E4M3", "param_dtype", false, nvfp4_scales},
    {"marlin-nvfp4-global-scale", "marlin_utils_fp4.nvfp4_marlin_process_global_scale",
     "scales of matrices, moved by what the kernels' bits leave out", "global_scale [any] F32",
     "a_dtype", false, nvfp4_global},
    {"marlin-mx-scales",
     "marlin_utils_fp4.mxfp4_marlin_process_scales; marlin_utils_fp8.mxfp8_marlin_process_scales",
     "E8M0 block scales, turned before, as the kernels read them",
     "bytes [groups, N] U8; bytes_a8 of kernels with 8-bit activations", "param_dtype", false,
     mx_scales},
}};

}  // namespace

std::span<const Function> marlin_scale_functions() noexcept { return kFunctions; }

}  // namespace lode::targets
