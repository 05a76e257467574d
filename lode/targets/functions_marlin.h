#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "lode/base/result.h"
#include "lode/parallel/function_ref.h"
#include "lode/targets/function_values.h"

// What the functions of the Marlin layouts share.

namespace lode::targets {

/// The param `name` as the format of the activations: "bf16" or "fp16"; "bf16" where it is not
/// there.
///
/// Errors: kUsage naming the param where it is another word.
Result<formats::Format> activations_param(const Params& params, std::string_view name);

inline constexpr std::string_view kActivationsParam = "the activations: bf16 or fp16";
inline constexpr std::string_view kInputDtypeParam = "fp8 for 8-bit activations";

/// Whether the param input_dtype asks for 8-bit activations ("fp8").
///
/// Errors: kUnsupported for any other word.
Result<bool> narrow_activations_param(const Params& params);

/// Which scale an FP8 weight's row has in each group of k: everything that checkpoints have,
/// written out.
struct Fp8ScalesAsked {
  std::uint64_t num_experts = 1;
  std::uint64_t rows = 0;
  std::uint64_t k = 0;
  std::vector<std::uint64_t> block;           // rows, k; empty where scales are of whole rows
  std::vector<std::uint64_t> logical_widths;  // rows that one scale each stands for; may be empty
  bool k_first = false;                       // blocks stand [k/bk, rows/bn]
};
/// Shapes: scales [E], [E, shards], [E, rows], or [E, blocks of rows, blocks of k] in any rank; the
///         result [E, rows, groups of k] f32.
/// Errors: kInvalidSource naming the tensor where it has another number of scales or dtype; kUsage
///         for a block that is none.
Result<std::vector<std::byte>> fp8_scales_by_row(const NamedTensor& scales,
                                                 const Fp8ScalesAsked& asked);

/// A matrix of bytes that is stored with k first, with its rows first.
///
/// Shapes: bytes [k, rows]; the result [rows, k].
std::vector<std::byte> rows_from_columns(std::span<const std::byte> bytes, std::uint64_t k,
                                         std::uint64_t rows);

/// Makes a tensor as `way` has it: `make(first, out)` makes units from `first` on. kInPlace puts
/// it over `source`, where that has as many bytes: of it a copy is read then, by `make`'s `from`.
///
/// Shapes: source [any]; out [n * unit_bytes].
std::vector<std::byte> make_units(
    Way way, std::span<const std::byte> source, std::uint64_t unit_bytes, std::uint64_t total_bytes,
    parallel::FunctionRef<void(std::span<const std::byte> from, std::uint64_t first,
                               std::span<std::byte> out)>
        make);

/// Refuses E8M0 scales that are too large to take six more.
///
/// Errors: kUnsupported naming the tensor and the scale.
Status check_room_for_six(const NamedTensor& scales);

}  // namespace lode::targets
