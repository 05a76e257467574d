#include <algorithm>
#include <cstring>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/formats/dequantise.h"
#include "lode/targets/functions_marlin.h"

namespace lode::targets {
namespace {

using formats::Format;

constexpr std::byte kLargestWithRoom{249};

Error wrong_count(const NamedTensor& scales, std::string wanted) {
  return Error{.code = Code::kInvalidSource,
               .thing = fmt::format("tensor {}", scales.name),
               .wanted = std::move(wanted),
               .found = describe(scales)};
}

// Where the scale of a row and a group stands among those of its expert, and how many there are.
struct ScalePlaces {
  std::uint64_t per_expert = 0;
  std::uint64_t groups = 1;
  std::vector<std::uint64_t> of_row;  // of its first group
  std::uint64_t group_step = 0;
};

Result<ScalePlaces> block_places(const Fp8ScalesAsked& asked) {
  if (asked.block.size() != 2 || asked.block[0] == 0 || asked.block[1] == 0) {
    return Error{.code = Code::kUsage,
                 .thing = "param block",
                 .wanted = "two whole numbers above zero: rows and k",
                 .found = fmt::format("{}", asked.block)};
  }
  ScalePlaces places;
  const std::uint64_t block_rows = ceil_div(asked.rows, asked.block[0]);
  places.groups = ceil_div(asked.k, asked.block[1]);
  places.per_expert = block_rows * places.groups;
  places.group_step = asked.k_first ? block_rows : 1;
  const std::uint64_t row_step = asked.k_first ? 1 : places.groups;
  for (std::uint64_t row = 0; row < asked.rows; ++row) {
    places.of_row.push_back(row / asked.block[0] * row_step);
  }
  return places;
}

// Scales of the matrix, of its shards, or of its rows; as the engines tell them apart.
std::optional<ScalePlaces> row_places(const Fp8ScalesAsked& asked, std::uint64_t per_expert) {
  ScalePlaces places;
  places.per_expert = per_expert;
  const auto& widths = asked.logical_widths;
  if (per_expert > 1 && per_expert == widths.size()) {
    for (std::uint64_t shard = 0; shard < widths.size(); ++shard) {
      if (widths[shard] > asked.rows - places.of_row.size()) return std::nullopt;
      places.of_row.insert(places.of_row.end(), widths[shard], shard);
    }
    return places.of_row.size() == asked.rows ? std::optional(std::move(places)) : std::nullopt;
  }
  if (per_expert == 0 || asked.rows % per_expert != 0) return std::nullopt;
  for (std::uint64_t row = 0; row < asked.rows; ++row) {
    places.of_row.push_back(row / (asked.rows / per_expert));
  }
  return places;
}

}  // namespace

Result<Format> activations_param(const Params& params, std::string_view name) {
  const Result<std::string> word = params.word(name, "bf16");
  if (!word) return word.error();
  if (*word == "bf16") return Format::kBf16;
  if (*word == "fp16") return Format::kF16;
  return Error{.code = Code::kUsage,
               .thing = fmt::format("param {}", name),
               .wanted = "bf16 or fp16",
               .found = *word};
}

Result<bool> narrow_activations_param(const Params& params) {
  const Result<std::string> word = params.word("input_dtype", "");
  if (!word) return word.error();
  if (word->empty() || *word == "bf16" || *word == "fp16") return false;
  if (*word == "fp8") return true;
  return Error{.code = Code::kUnsupported,
               .thing = "param input_dtype",
               .wanted = "fp8, bf16 or fp16, or nothing for 16-bit activations",
               .found = *word};
}

Result<std::vector<std::byte>> fp8_scales_by_row(const NamedTensor& scales,
                                                 const Fp8ScalesAsked& asked) {
  if (asked.num_experts == 0 || asked.rows == 0) return wrong_count(scales, "experts with rows");
  if (scales.dtype != Format::kF32 && scales.dtype != Format::kBf16 &&
      scales.dtype != Format::kF16) {
    return wrong_count(scales, "F32, BF16 or F16");
  }
  const std::uint64_t count = scales.bytes.size() * 8 / formats::info(scales.dtype).bits;
  ScalePlaces places;
  if (!asked.block.empty()) {
    LODE_TRY(places, block_places(asked));
    if (count != asked.num_experts * places.per_expert) {
      return wrong_count(scales, fmt::format("{} scales of blocks {}",
                                             asked.num_experts * places.per_expert, asked.block));
    }
  } else {
    const std::uint64_t per_expert = count / asked.num_experts;
    auto found = row_places(asked, per_expert);
    if (!found || count % asked.num_experts != 0) {
      return wrong_count(scales, fmt::format("one scale, one for each of equal shards, or {}, for "
                                             "each of {} experts",
                                             asked.rows, asked.num_experts));
    }
    places = *std::move(found);
  }
  std::vector<std::byte> all(asked.num_experts * asked.rows * places.groups * sizeof(float));
  std::size_t at = 0;
  for (std::uint64_t expert = 0; expert < asked.num_experts; ++expert) {
    for (const std::uint64_t place : places.of_row) {
      for (std::uint64_t group = 0; group < places.groups; ++group, at += sizeof(float)) {
        const float scale =
            formats::number_at(scales.dtype, scales.bytes,
                               expert * places.per_expert + place + group * places.group_step);
        std::memcpy(all.data() + at, &scale, sizeof(scale));
      }
    }
  }
  return all;
}

std::vector<std::byte> rows_from_columns(std::span<const std::byte> bytes, std::uint64_t k,
                                         std::uint64_t rows) {
  std::vector<std::byte> turned(bytes.size());
  for (std::uint64_t row = 0; row < rows; ++row) {
    for (std::uint64_t at = 0; at < k; ++at) turned[row * k + at] = bytes[at * rows + row];
  }
  return turned;
}

std::vector<std::byte> make_units(
    Way way, std::span<const std::byte> source, std::uint64_t unit_bytes, std::uint64_t total_bytes,
    parallel::FunctionRef<void(std::span<const std::byte>, std::uint64_t, std::span<std::byte>)>
        make) {
  if (way == Way::kInPlace && source.size() == total_bytes) {
    std::vector<std::byte> place(source.begin(), source.end());
    const std::vector<std::byte> scratch = place;
    make(scratch, 0, place);
    return place;
  }
  std::vector<std::byte> out(total_bytes);
  if (way != Way::kStreamed) {
    make(source, 0, out);
    return out;
  }
  for (std::uint64_t unit = 0; unit * unit_bytes < total_bytes; ++unit) {
    make(source, unit, std::span(out).subspan(unit * unit_bytes, unit_bytes));
  }
  return out;
}

Status check_room_for_six(const NamedTensor& scales) {
  const auto bad =
      std::ranges::find_if(scales.bytes, [](std::byte scale) { return scale > kLargestWithRoom; });
  if (bad == scales.bytes.end()) return {};
  return Error{.code = Code::kUnsupported,
               .thing = fmt::format("scale {} of {}", bad - scales.bytes.begin(), scales.name),
               .wanted = "at most 249, for kernels with 8-bit activations",
               .found = fmt::format("{}", static_cast<unsigned>(*bad))};
}

}  // namespace lode::targets
