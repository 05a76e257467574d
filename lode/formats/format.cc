#include "lode/formats/format.h"

#include <algorithm>
#include <cstddef>

namespace lode::formats {
namespace {

constexpr std::string_view kIeee = "IEEE 754-2019";
constexpr std::string_view kOcpFp8 = "OCP 8-bit Floating Point Specification 1.0";
constexpr std::string_view kOcpMx = "OCP Microscaling Formats Specification 1.0";
constexpr std::string_view kFnuz = "ONNX float8 documentation, FNUZ types";
constexpr std::string_view kCpp = "two's complement";
constexpr std::string_view kHeader = "safetensors README";

constexpr std::array<FormatInfo, 22> kFormats{{
    {Format::kF32, "f32", "F32", 32, 3.4028234663852886e38, true, true, kIeee},
    {Format::kF16, "f16", "F16", 16, 65504.0, true, true, kIeee},
    {Format::kBf16, "bf16", "BF16", 16, 3.3895313892515355e38, true, true, "upper half of F32"},
    {Format::kE4m3, "e4m3", "F8_E4M3", 8, 448.0, false, true, kOcpFp8},
    {Format::kE5m2, "e5m2", "F8_E5M2", 8, 57344.0, true, true, kOcpFp8},
    {Format::kE8m0, "e8m0", "F8_E8M0", 8, 1.7014118346046923e38, false, true, kOcpMx},
    {Format::kE2m1, "e2m1", "F4", 4, 6.0, false, false, kOcpMx},
    {Format::kI8, "i8", "I8", 8, 127.0, false, false, kCpp},
    {Format::kU8, "u8", "U8", 8, 255.0, false, false, kCpp},
    {Format::kI16, "i16", "I16", 16, 32767.0, false, false, kCpp},
    {Format::kU16, "u16", "U16", 16, 65535.0, false, false, kCpp},
    {Format::kI32, "i32", "I32", 32, 2147483647.0, false, false, kCpp},
    {Format::kU32, "u32", "U32", 32, 4294967295.0, false, false, kCpp},
    {Format::kI64, "i64", "I64", 64, 9223372036854775807.0, false, false, kCpp},
    {Format::kU64, "u64", "U64", 64, 18446744073709551615.0, false, false, kCpp},
    {Format::kF64, "f64", "F64", 64, 1.7976931348623157e308, true, true, kIeee},
    {Format::kBool, "bool", "BOOL", 8, 1.0, false, false, kHeader},
    {Format::kE2m3, "e2m3", "F6_E2M3", 6, 7.5, false, false, kOcpMx},
    {Format::kE3m2, "e3m2", "F6_E3M2", 6, 28.0, false, false, kOcpMx},
    {Format::kE4m3Fnuz, "e4m3fnuz", "F8_E4M3FNUZ", 8, 240.0, false, true, kFnuz},
    {Format::kE5m2Fnuz, "e5m2fnuz", "F8_E5M2FNUZ", 8, 57344.0, false, true, kFnuz},
    {Format::kC64, "c64", "C64", 64, 3.4028234663852886e38, true, true, kHeader},
}};

constexpr bool in_order() {
  for (std::size_t i = 0; i < kFormats.size(); ++i) {
    if (static_cast<std::size_t>(kFormats[i].format) != i) return false;
  }
  return true;
}
static_assert(in_order(), "format_table() is indexed by the enum");

constexpr std::array<EncodingInfo, 11> kEncodings{{
    {kMxfp4, "mxfp4", "E2M1 codes, one E8M0 scale per 32 along k"},
    {kNvfp4, "nvfp4", "E2M1 codes, one E4M3 scale per 16 along k, a multiplier for the matrix"},
    {kNvfp4Divisor, "nvfp4-divisor", "as nvfp4, but the scale of the matrix divides"},
    {kFp8Block128, "fp8-block", "E4M3 codes, one F32 scale per 128 x 128"},
    {kFp8Channel, "fp8-channel", "E4M3 codes, one F32 scale per row"},
    {kFp8Tensor, "fp8-tensor", "E4M3 codes, one F32 scale for the matrix"},
    {kMxfp8, "mxfp8", "E4M3 codes, one E8M0 scale per 32 along k"},
    {kInt8Row128, "int8-row128", "I8 codes, one F32 scale per 128 along k"},
    {kPlainBf16, "bf16", "BF16 without scales"},
    {kPlainF16, "f16", "F16 without scales"},
    {kPlainF32, "f32", "F32 without scales"},
}};

}  // namespace

std::span<const FormatInfo> format_table() noexcept { return kFormats; }

const FormatInfo& info(Format format) noexcept {
  return kFormats[static_cast<std::size_t>(format)];
}

std::optional<Format> format_by_safetensors_name(std::string_view name) noexcept {
  const auto row = std::ranges::find(kFormats, name, &FormatInfo::safetensors_name);
  if (row == kFormats.end()) return std::nullopt;
  return row->format;
}

std::optional<Format> format_by_name(std::string_view name) noexcept {
  const auto row = std::ranges::find(kFormats, name, &FormatInfo::name);
  if (row == kFormats.end()) return std::nullopt;
  return row->format;
}

std::span<const EncodingInfo> encoding_table() noexcept { return kEncodings; }

std::string_view name(const Encoding& encoding) noexcept {
  const auto row = std::ranges::find(kEncodings, encoding, &EncodingInfo::encoding);
  return row == kEncodings.end() ? std::string_view("unnamed") : row->name;
}

std::optional<Encoding> encoding_by_name(std::string_view name) noexcept {
  const auto row = std::ranges::find(kEncodings, name, &EncodingInfo::name);
  if (row == kEncodings.end()) return std::nullopt;
  return row->encoding;
}

}  // namespace lode::formats
