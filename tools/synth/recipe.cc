#include "tools/synth/recipe.h"

#include <array>

namespace lode::synth {
namespace {

using formats::Rule;

constexpr std::array<FormatRow, 6> kFormats{{
    {WeightFormat::kBf16, "bf16", std::nullopt, {".weight", "", ""}, {"", "", ""}, "as they are"},
    {WeightFormat::kMxfp4,
     "mxfp4",
     Rule::kOcpMxfp4Floor,
     {".weight_packed", ".weight_scale", ""},
     {"_packed", "_scale", ""},
     "compressed-tensors names; in gpt_oss _blocks and _scales"},
    {WeightFormat::kNvfp4,
     "nvfp4",
     Rule::kModeloptNvfp4,
     {".weight", ".weight_scale", ".weight_scale_2"},
     {"", "_weight_scale", "_weight_scale_2"},
     "ModelOpt names"},
    {WeightFormat::kNvfp4Ct,
     "nvfp4-ct",
     Rule::kCtNvfp4,
     {".weight_packed", ".weight_scale", ".weight_global_scale"},
     {"_packed", "_scale", "_global_scale"},
     "compressed-tensors names; the scale of the matrix divides"},
    {WeightFormat::kFp8Block,
     "fp8-block",
     Rule::kTransformersFp8Block,
     {".weight", ".weight_scale_inv", ""},
     {"", "_scale_inv", ""},
     "E4M3 with an F32 scale for 128 x 128"},
    {WeightFormat::kFp8Tensor,
     "fp8-tensor",
     Rule::kModeloptFp8Tensor,
     {".weight", "", ".weight_scale"},
     {"", "", "_weight_scale"},
     "E4M3 with one F32 scale a matrix, ModelOpt names"},
}};

constexpr std::array<StorageRow, 4> kStorages{{
    {Storage::kPerExpert, "per-expert", "one tensor a matrix"},
    {Storage::kFused, "fused", "[E, 2I, H]: gate rows, then up rows"},
    {Storage::kTransposed, "transposed", "[E, H, 2I]"},
    {Storage::kInterleaved, "interleaved", "gate and up alternate (gpt_oss only)"},
}};

Error cannot(std::string thing, std::string wanted, std::string found) {
  return Error{.code = Code::kUsage,
               .thing = std::move(thing),
               .wanted = std::move(wanted),
               .found = std::move(found)};
}

Status check_storage(const Recipe& recipe, const Resolved& resolved) {
  const bool interleaved = resolved.storage == Storage::kInterleaved;
  if (interleaved != resolved.family->experts.interleaved) {
    return cannot("storage of experts", "interleaved for gpt_oss, and for no other family",
                  recipe.shape.family);
  }
  const bool stacked = resolved.storage != Storage::kPerExpert;
  const bool fp8 = recipe.format == WeightFormat::kFp8Block;
  if (fp8 && stacked &&
      (resolved.storage != Storage::kFused || recipe.shape.intermediate % 128 != 0)) {
    return cannot("fp8-block experts in one tensor", "storage fused, a width divisible by 128",
                  std::to_string(recipe.shape.intermediate));
  }
  if (recipe.format == WeightFormat::kFp8Tensor && stacked && resolved.storage != Storage::kFused) {
    return cannot("fp8-tensor experts in one tensor", "storage fused", "another");
  }
  const bool transposable =
      recipe.format == WeightFormat::kBf16 || recipe.format == WeightFormat::kNvfp4;
  if (resolved.storage == Storage::kTransposed && !transposable) {
    return cannot("transposed experts", "bf16 or nvfp4", std::string(info(recipe.format).name));
  }
  if (interleaved && recipe.format == WeightFormat::kNvfp4Ct) {
    return cannot("gpt_oss experts", "bf16, mxfp4 or nvfp4", "nvfp4-ct");
  }
  if (recipe.dense_fp8 && recipe.format == WeightFormat::kFp8Tensor) {
    return cannot("matrices outside fp8-tensor experts", "bf16", "fp8-block");
  }
  if (recipe.split_gate_up && (stacked || recipe.shards < 2)) {
    return cannot("gate and up in different shards", "storage per-expert and two shards",
                  std::to_string(recipe.shards));
  }
  return {};
}

Status check_shape(const ModelShape& shape) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 24;
  for (const std::uint64_t number :
       {shape.layers, shape.hidden, shape.intermediate, shape.experts, shape.top_k, shape.heads,
        shape.kv_heads, shape.head_dim, shape.vocab}) {
    if (number == 0 || number > kMost) {
      return cannot("a size of the model", "1 to 2^24", std::to_string(number));
    }
  }
  if (shape.top_k > shape.experts || shape.heads % shape.kv_heads != 0) {
    return cannot("shape of the model", "top-k <= experts and heads a multiple of kv heads",
                  std::to_string(shape.top_k) + " of " + std::to_string(shape.experts));
  }
  return {};
}

/// Blocks of one row must divide both widths of the experts.
Status check_blocks(const ModelShape& shape, const Resolved& resolved) {
  if (!resolved.rule) return {};
  const formats::Encoding& encoding = info(*resolved.rule).encoding;
  if (encoding.block_rows != 1 || encoding.block_k == formats::kWhole) return {};
  for (const std::uint64_t width : {shape.hidden, shape.intermediate}) {
    if (width % encoding.block_k == 0) continue;
    return cannot("widths of the experts", "multiples of " + std::to_string(encoding.block_k),
                  std::to_string(width));
  }
  return {};
}

/// The narrowest sharing that the names of the format can express.
ScaleOver narrowest(WeightFormat format, Storage storage) {
  if (storage == Storage::kPerExpert) return ScaleOver::kMatrix;
  const bool middle = storage != Storage::kFused;  // one scale without axes for all experts
  return format == WeightFormat::kNvfp4 && middle ? ScaleOver::kLayer : ScaleOver::kExpert;
}

}  // namespace

std::span<const FormatRow> format_rows() noexcept { return kFormats; }
const FormatRow& info(WeightFormat format) noexcept {
  return kFormats[static_cast<std::size_t>(format)];
}
std::span<const StorageRow> storage_rows() noexcept { return kStorages; }

Result<Resolved> resolve(const Recipe& recipe) {
  const Family* family = family_by_name(recipe.shape.family);
  if (family == nullptr) {
    std::string known;
    for (const Family& row : families())
      known += (known.empty() ? "" : ", ") + std::string(row.name);
    return cannot("family", known, recipe.shape.family);
  }
  const Storage own = family->experts.interleaved ? Storage::kInterleaved : Storage::kPerExpert;
  Resolved resolved{family, recipe.storage.value_or(own), recipe.scale_over, recipe.rule};
  LODE_TRY_STATUS(check_shape(recipe.shape));
  LODE_TRY_STATUS(check_storage(recipe, resolved));
  const auto& own_rule = info(recipe.format).rule;
  if (!resolved.rule) resolved.rule = own_rule;
  if (own_rule && !(info(*resolved.rule).encoding == info(*own_rule).encoding)) {
    return cannot("rule for " + std::string(info(recipe.format).name),
                  "one with the same scales, such as " + std::string(info(*own_rule).name),
                  std::string(info(*resolved.rule).name));
  }
  if (!own_rule && recipe.rule) return cannot("rule for bf16", "none", "one");
  LODE_TRY_STATUS(check_blocks(recipe.shape, resolved));
  const ScaleOver least = narrowest(recipe.format, resolved.storage);
  if (resolved.scale_over == ScaleOver::kAuto) resolved.scale_over = least;
  if (resolved.scale_over < least) {
    return cannot("sharing of the scale of a matrix", "expert, or layer where transposed",
                  "narrower");
  }
  return resolved;
}

}  // namespace lode::synth
