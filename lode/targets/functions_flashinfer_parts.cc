#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/layout/block_major.h"
#include "lode/layout/block_scales.h"
#include "lode/layout/half_swap.h"
#include "lode/targets/function_lists.h"
#include "lode/targets/function_rows.h"
#include "lode/targets/nvfp4_scalars.h"

// Single steps of the preparation for FlashInfer, as its Python has them.

namespace lode::targets {
namespace {

using formats::Format;
using layout::GateUpOrder;
using layout::OrderedRows;
using layout::RowOrder;
using layout::RowShuffle;
using Outputs = Result<std::vector<NamedTensor>>;

Error misshapen(const NamedTensor& tensor, std::string_view wanted) {
  return {.code = Code::kInvalidSource,
          .thing = "tensor " + tensor.name,
          .wanted = std::string(wanted),
          .found = describe(tensor)};
}

/// Units in the order of the way: all at once, or the last first, each by itself.
template <class Function>
void by_unit(Way way, std::uint64_t num_units, std::span<std::byte> out, Function&& function) {
  if (way != Way::kStreamed || num_units == 0) {
    function(std::uint64_t{0}, out);
    return;
  }
  const std::uint64_t unit_bytes = out.size() / num_units;
  for (std::uint64_t unit = num_units; unit-- > 0;) {
    function(unit, out.subspan(unit * unit_bytes, unit_bytes));
  }
}

// Block scales, 128x4.

/// Scales [..., M, C] of one byte, every matrix by itself.
Result<std::vector<std::byte>> swizzled(const NamedTensor& scales, Way way) {
  const std::size_t rank = scales.shape.size();
  const bool bytes = formats::info(scales.dtype).bits == 8;
  if ((rank != 2 && rank != 3) || !bytes || scales.bytes.empty()) {
    return misshapen(scales, "scales of one byte, [M, C] or [E, M, C]");
  }
  const std::uint64_t rows = scales.shape[rank - 2];
  const std::uint64_t columns = scales.shape[rank - 1];
  const std::uint64_t experts = rank == 3 ? scales.shape[0] : 1;
  const layout::BlockScales places{layout::kScales128x4, rows, columns};
  LODE_TRY(NamedTensor out, make_tensor(scales.name, scales.dtype,
                                        {experts, places.padded_rows(), places.padded_columns()}));
  for (std::uint64_t expert = 0; expert < experts; ++expert) {
    const auto matrix = std::span(scales.bytes).subspan(expert * rows * columns, rows * columns);
    const OrderedRows from{layout::rows_of(matrix, 1, columns), {1, rows}, places.padded_columns()};
    by_unit(way, places.padded_rows() / places.tile.rows,
            std::span(out.bytes).subspan(expert * places.bytes(), places.bytes()),
            [&](std::uint64_t unit, std::span<std::byte> part) {
              layout::block_scales_into(from, places.tile, unit, part);
            });
  }
  return std::move(out.bytes);
}

std::vector<std::uint64_t> padded_shape(const NamedTensor& scales) {
  std::vector<std::uint64_t> shape = scales.shape;
  const std::size_t rank = shape.size();
  shape[rank - 2] = align_up<std::uint64_t>(shape[rank - 2], 128);
  shape[rank - 1] = align_up<std::uint64_t>(shape[rank - 1], 4);
  return shape;
}

/// vLLM's function keeps the axes; FlashInfer's, whose inputs are called fi_*, gives one.
Outputs swizzle_blockscale(const Request& request) {
  std::vector<NamedTensor> outputs;
  for (const NamedTensor& input : request.inputs) {
    LODE_TRY(std::vector<std::byte> bytes, swizzled(input, request.way));
    if (!input.name.starts_with("fi_")) {
      outputs.push_back({input.name, input.dtype, padded_shape(input), std::move(bytes)});
      continue;
    }
    const std::string rest = input.name.substr(3);
    for (const std::string_view begin : {"fi_", "mx8_", "mx4_"}) {
      outputs.push_back({std::string(begin) + rest, input.dtype, {bytes.size()}, bytes});
    }
  }
  return outputs;
}

// Rows shuffled, blocks of K.

Result<NamedTensor> ordered(const NamedTensor& matrix, const RowOrder& order, std::string_view name,
                            Way way) {
  const std::uint64_t block = layout::block_rows(order.shuffle);
  if (matrix.shape.size() != 2 || matrix.bytes.empty() || matrix.shape[0] % block != 0) {
    return misshapen(matrix, fmt::format("[R, columns], R a multiple of {}", block));
  }
  NamedTensor out{std::string(name), matrix.dtype, matrix.shape, {}};
  out.bytes.resize(matrix.bytes.size());
  const std::uint64_t row_bytes = matrix.bytes.size() / matrix.shape[0];
  const OrderedRows from{layout::rows_of(matrix.bytes, 1, row_bytes), order, row_bytes};
  by_unit(way, matrix.shape[0], out.bytes, [&](std::uint64_t row, std::span<std::byte> part) {
    layout::ordered_rows_into(from, row, part);
  });
  return out;
}

Result<NamedTensor> block_major(const NamedTensor& matrix, Way way) {
  const std::uint64_t rows = matrix.shape[0];
  const std::uint64_t row_bytes = matrix.bytes.size() / rows;
  if (row_bytes % layout::kBlockMajorBytes != 0) {
    return misshapen(matrix, "rows of a multiple of 128 bytes");
  }
  const std::uint64_t blocks = row_bytes / layout::kBlockMajorBytes;
  NamedTensor out{"w_block", matrix.dtype, {blocks, rows, matrix.shape[1] / blocks}, {}};
  out.bytes.resize(matrix.bytes.size());
  const OrderedRows from{layout::rows_of(matrix.bytes, 1, row_bytes), {1, rows}, row_bytes};
  by_unit(way, blocks, out.bytes, [&](std::uint64_t unit, std::span<std::byte> part) {
    layout::block_major_into(from, unit, part);
  });
  return out;
}

Outputs shuffle_matrices(const Request& request) {
  const Params params(request.params);
  std::vector<NamedTensor> outputs;
  if (const NamedTensor* const scales = find(request.inputs, "sf")) {
    const Matrices sizes = matrices_of(*scales);
    LODE_TRY_STATUS(params.agree("M", json::Value(sizes.rows)));
    LODE_TRY_STATUS(params.agree("C", json::Value(sizes.columns)));
    const RowOrder by_32{1, scales->shape.empty() ? 0 : scales->shape[0], {}, RowShuffle::kBy32};
    LODE_TRY(NamedTensor rows, ordered(*scales, by_32, "sf", request.way));
    if (rows.shape[0] % 128 != 0) return misshapen(*scales, "[M, C], M a multiple of 128");
    LODE_TRY(rows.bytes, swizzled(rows, request.way));
    rows.shape = {rows.bytes.size()};
    outputs.push_back(std::move(rows));
  }
  if (const NamedTensor* const weight = find(request.inputs, "w")) {
    const std::uint64_t num_rows = weight->shape.empty() ? 0 : weight->shape[0];
    for (const auto& [name, shuffle] : {std::pair{"w_shuffled", RowShuffle::kBy32},
                                        std::pair{"w_shuffled16", RowShuffle::kBy16}}) {
      LODE_TRY(NamedTensor out, ordered(*weight, {1, num_rows, {}, shuffle}, name, request.way));
      outputs.push_back(std::move(out));
    }
    LODE_TRY(NamedTensor blocks, block_major(*weight, request.way));
    outputs.push_back(std::move(blocks));
  }
  return outputs;
}

// Which row goes where.

NamedTensor row_map(const std::string& name, const RowOrder& order) {
  NamedTensor out{name, Format::kI32, {order.rows()}, {}};
  out.bytes.resize(order.rows() * sizeof(std::int32_t));
  for (std::uint64_t position = 0; position < order.rows(); ++position) {
    const layout::HalfRow row = order.at(position);
    const auto index = static_cast<std::int32_t>(row.half * order.half_rows + row.row);
    std::memcpy(out.bytes.data() + position * sizeof index, &index, sizeof index);
  }
  return out;
}

Outputs row_maps(const Request& request) {
  std::vector<NamedTensor> outputs;
  for (const NamedTensor& input : request.inputs) {
    LODE_TRY(const NamedTensor* const number,
             want(request.inputs, input.name, {Format::kI32}, {1}));
    std::int32_t rows = 0;
    std::memcpy(&rows, number->bytes.data(), sizeof rows);
    constexpr std::int32_t kMostRows = 1 << 24;
    if (rows <= 0 || rows % 32 != 0 || rows > kMostRows) {
      return Error{.code = Code::kUnsupported,
                   .thing = "rows in tensor " + input.name,
                   .wanted = fmt::format("a multiple of 32, at most {}", kMostRows),
                   .found = std::to_string(rows)};
    }
    const auto all = static_cast<std::uint64_t>(rows);
    const RowOrder turn{2, all / 2, GateUpOrder::kGateUpInTurn, RowShuffle::kNone};
    const RowOrder gated{2, all / 2, GateUpOrder::kGateUpInTurn, RowShuffle::kBy32};
    const RowOrder by_32{1, all, {}, RowShuffle::kBy32};
    outputs.push_back(row_map("p1_32_" + input.name, by_32));
    outputs.push_back(row_map("p1_16_" + input.name, {1, all, {}, RowShuffle::kBy16}));
    outputs.push_back(row_map("p0_" + input.name, turn));
    outputs.push_back(row_map("gated_" + input.name, gated));
    outputs.push_back(row_map("nongated_" + input.name, by_32));
  }
  return outputs;
}

// Halves swapped.

Result<tensor::Tensor> tensor_of(memory::Ledger& ledger, const NamedTensor& named) {
  if (named.shape.size() != 3) return misshapen(named, "[E, 2N, columns]");
  LODE_TRY(tensor::Tensor made,
           tensor::make_tensor(ledger, memory::Tag::kWeights,
                               {formats::Encoding{.element = named.dtype},
                                tensor::Layout::kRowMajor,
                                {named.shape[0], named.shape[1], named.shape[2]}},
                               named.name));
  if (made.view().bytes().size() != named.bytes.size()) {
    return misshapen(named, "as many bytes as its shape has");
  }
  std::ranges::copy(named.bytes, made.mutate().bytes().begin());
  return made;
}

/// K may be twice the bytes of a row: two codes a byte.
Status check_swap_facts(const Params& params, const NamedTensor& weight) {
  const Matrices sizes = matrices_of(weight);
  LODE_TRY_STATUS(params.agree("E", json::Value(sizes.count)));
  LODE_TRY_STATUS(params.agree("N", json::Value(sizes.rows / 2)));
  LODE_TRY(const std::uint64_t columns, params.count("K", sizes.columns));
  if (weight.dtype == Format::kU8 && columns == 2 * sizes.columns) return {};
  return params.agree("K", json::Value(sizes.columns));
}

Outputs swap_in_place(const Request& request) {
  memory::Ledger ledger(2 * kMaxTensorBytes);
  layout::GateUpTensors tensors;
  LODE_TRY(const NamedTensor* const weight, want(request.inputs, "w13"));
  LODE_TRY(tensors.weight, tensor_of(ledger, *weight));
  const NamedTensor* const scale = find(request.inputs, "w13_scale");
  if (scale != nullptr) {
    LODE_TRY(tensors.scale, tensor_of(ledger, *scale));
  }
  LODE_TRY(const layout::HalfSwap plan, layout::plan_half_swap(tensors));
  tensors = layout::run(plan, std::move(tensors));
  std::vector<NamedTensor> outputs;
  const auto add = [&](const NamedTensor& from, const tensor::Tensor& to) {
    const auto bytes = to.view().bytes();
    outputs.push_back({from.name, from.dtype, from.shape, {bytes.begin(), bytes.end()}});
  };
  add(*weight, tensors.weight);
  if (scale != nullptr) add(*scale, tensors.scale);
  return outputs;
}

Outputs swap_halves(const Request& request) {
  LODE_TRY(const NamedTensor* const weight, want(request.inputs, "w13"));
  LODE_TRY_STATUS(check_swap_facts(Params(request.params), *weight));
  if (request.way == Way::kInPlace) return swap_in_place(request);
  std::vector<NamedTensor> outputs;
  for (const NamedTensor& input : request.inputs) {
    if (input.shape.size() != 3 || input.shape[1] % 2 != 0 || input.bytes.empty()) {
      return misshapen(input, "[E, 2N, columns]");
    }
    NamedTensor out{input.name, input.dtype, input.shape, {}};
    out.bytes.resize(input.bytes.size());
    const std::uint64_t expert_bytes = input.bytes.size() / input.shape[0];
    const std::uint64_t row_bytes = expert_bytes / input.shape[1];
    for (std::uint64_t expert = 0; expert < input.shape[0]; ++expert) {
      const auto matrix = std::span(input.bytes).subspan(expert * expert_bytes, expert_bytes);
      const OrderedRows from{layout::rows_of(matrix, 2, row_bytes),
                             {2, input.shape[1] / 2, GateUpOrder::kUpThenGate, RowShuffle::kNone},
                             row_bytes};
      by_unit(request.way, input.shape[1],
              std::span(out.bytes).subspan(expert * expert_bytes, expert_bytes),
              [&](std::uint64_t row, std::span<std::byte> part) {
                layout::ordered_rows_into(from, row, part);
              });
    }
    outputs.push_back(std::move(out));
  }
  return outputs;
}

// Single numbers.

using Floats = std::vector<float>;

NamedTensor named(std::string name, const Floats& values) {
  NamedTensor out{std::move(name), Format::kF32, {values.size()}, {}};
  out.bytes.resize(values.size() * sizeof(float));
  std::memcpy(out.bytes.data(), values.data(), out.bytes.size());
  return out;
}

Result<Floats> floats_of(std::span<const NamedTensor> inputs, std::string_view name,
                         std::initializer_list<std::uint64_t> extents) {
  LODE_TRY(const NamedTensor* const tensor, want(inputs, name, {Format::kF32}, extents));
  Floats values(tensor->bytes.size() / sizeof(float));
  if (values.empty()) return misshapen(*tensor, "at least one number");
  std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
  return values;
}

struct ScalarLayer {
  ExpertsShape shape;
  LayerScalars scalars;

  template <class Function>
  Floats each(Function&& function, InputScales whose = InputScales::kLargestOfAll) const {
    Floats values;
    for (std::uint64_t expert = 0; expert < shape.num_experts; ++expert) {
      values.push_back(function(nvfp4_scalars(shape, scalars, whose, expert)));
    }
    return values;
  }
};

Result<ScalarLayer> scalar_layer(std::span<const NamedTensor> inputs) {
  ScalarLayer layer;
  LayerScalars& scalars = layer.scalars;
  LODE_TRY(scalars.down_input_scale, floats_of(inputs, "a2", {kAnyExtent}));
  const std::uint64_t experts = scalars.down_input_scale.size();
  LODE_TRY(const Floats both, floats_of(inputs, "a13", {experts, kAnyExtent}));
  LODE_TRY(scalars.gate_scale, floats_of(inputs, "w13_scale_2", {experts}));
  LODE_TRY(scalars.down_scale, floats_of(inputs, "w2_scale_2", {experts}));
  layer.shape.num_experts = experts;
  layer.shape.input_scales = true;
  layer.shape.gated = both.size() / experts == 2;
  const std::size_t halves = both.size() / experts;
  for (std::size_t at = 0; at < both.size(); at += halves) {
    scalars.gate_input_scale.push_back(both[at]);
    if (layer.shape.gated) scalars.up_input_scale.push_back(both[at + 1]);
  }
  scalars.largest_gate_up_input_scale = *std::ranges::max_element(both);
  scalars.largest_down_input_scale = *std::ranges::max_element(scalars.down_input_scale);
  return layer;
}

/// What the TRT-LLM kernels read beside the alphas, for activations that clamp.
Status add_trtllm_scalars(const ScalarLayer& layer, const Params& params,
                          std::vector<NamedTensor>& outputs) {
  LODE_TRY(const double clamp, params.number("clamp", 7.0));
  LODE_TRY(const double beta, params.number("beta", 1.0));
  LODE_TRY(const double alpha, params.number("alpha", 1.702));
  const auto over_alpha = [&](double number) {
    return layer.each(
        [&](const Nvfp4Scalars& one) { return static_cast<float>(number) / one.g1_alpha(); });
  };
  const auto g1_alpha = [](const Nvfp4Scalars& one) { return one.g1_alpha(); };
  const auto g2_alpha = [](const Nvfp4Scalars& one) { return one.g2_alpha(); };
  for (const bool gated : {true, false}) {
    const std::string begin = gated ? "gated_" : "nongated_";
    outputs.push_back(named(begin + "g1_alphas", layer.each(g1_alpha)));
    outputs.push_back(named(begin + "g2_alphas", layer.each(g2_alpha)));
    outputs.push_back(named(begin + "g1_scale_c", layer.each([&](const Nvfp4Scalars& one) {
      return one.g1_scale_c(gated);
    })));
    outputs.push_back(named(begin + "clamp_limit", over_alpha(clamp)));
    outputs.push_back(named(begin + "beta", over_alpha(beta)));
    outputs.push_back(
        named(begin + "alpha", Floats(layer.shape.num_experts, static_cast<float>(alpha))));
  }
  return {};
}

Outputs nvfp4_numbers(const Request& request) {
  LODE_TRY(const ScalarLayer layer, scalar_layer(request.inputs));
  const auto a13 = [](const Nvfp4Scalars& one) { return one.gate_up_input_scale; };
  const auto a2 = [](const Nvfp4Scalars& one) { return one.down_input_scale; };
  std::vector<NamedTensor> outputs;
  outputs.push_back(named("fi_a13", layer.each(a13)));
  outputs.push_back(named("fi_a2", layer.each(a2)));
  LODE_TRY_STATUS(Params(request.params).agree("E", json::Value(layer.shape.num_experts)));
  LODE_TRY_STATUS(add_trtllm_scalars(layer, Params(request.params), outputs));
  const Floats a1_gscale = layer.each([](const Nvfp4Scalars& one) { return one.a1_gscale(); });
  const Floats a2_gscale = layer.each([](const Nvfp4Scalars& one) { return one.a2_gscale(); });
  outputs.push_back(named("a1_gscale", a1_gscale));
  outputs.push_back(named("a2_gscale", a2_gscale));
  outputs.push_back(named("cutlass_a13", layer.each(a13, InputScales::kOfEachExpert)));
  outputs.push_back(named("emulation_a13", {a1_gscale[0]}));
  outputs.push_back(named("emulation_a2", {a2_gscale[0]}));
  return outputs;
}

// Sizes.

struct RoundUp {
  std::string_view backend;
  std::uint64_t hidden;
  std::uint64_t intermediate;
};
constexpr std::array<RoundUp, 10> kRoundUps{{{"MARLIN", 256, 128},
                                             {"FLASHINFER_TRTLLM_MXFP4_BF16", 256, 128},
                                             {"FLASHINFER_TRTLLM_MXFP4_MXFP8", 256, 128},
                                             {"FLASHINFER_CUTLASS_MXFP4_BF16", 128, 128},
                                             {"FLASHINFER_CUTLASS_MXFP4_MXFP8", 128, 128},
                                             {"DEEPGEMM_MXFP4", 128, 128},
                                             {"EMULATION", 32, 32},
                                             {"CPU", 32, 32},
                                             {"TRITON", 1, 64},
                                             {"TRITON_UNFUSED", 1, 64}}};

Outputs round_up_sizes(const Request& request) {
  LODE_TRY(const NamedTensor* const sizes,
           want(request.inputs, "hn", {Format::kI32}, {kAnyExtent, 2}));
  std::vector<NamedTensor> outputs;
  for (const RoundUp& round : kRoundUps) {
    NamedTensor out{std::string(round.backend), Format::kI32, sizes->shape, sizes->bytes};
    for (std::size_t at = 0; at < out.bytes.size(); at += sizeof(std::int32_t)) {
      std::int32_t size = 0;
      std::memcpy(&size, out.bytes.data() + at, sizeof size);
      if (size < 0 || size > (1 << 30)) return misshapen(*sizes, "sizes of at most 2^30");
      const std::uint64_t unit = at % (2 * sizeof size) == 0 ? round.hidden : round.intermediate;
      size = static_cast<std::int32_t>(align_up(static_cast<std::uint64_t>(size), unit));
      std::memcpy(out.bytes.data() + at, &size, sizeof size);
    }
    outputs.push_back(std::move(out));
  }
  return outputs;
}

constexpr std::array<InputRow, 2> kSwapInputs{
    {{"w13", "any dtype [E, 2N, columns]"}, {"w13_scale", "the same", false}}};
constexpr std::array<InputRow, 1> kScalesInputs{
    {{kAnyName, "one byte [M, C] or [E, M, C]; of those called fi_... outputs are flat"}}};
constexpr std::array<InputRow, 2> kShuffleInputs{
    {{"sf", "U8 [M, C]", false}, {"w", "U8 [R, columns]", false}}};
constexpr std::array<ParamRow, 2> kShuffleParams{
    {{"M", "rows of sf", ParamUse::kFact, ""}, {"C", "columns of sf", ParamUse::kFact, ""}}};
constexpr std::array<InputRow, 1> kMapInputs{{{kAnyName, "I32 [1]: a number of rows"}}};
constexpr std::array<InputRow, 4> kScalarInputs{{{"w13_scale_2", "F32 [E]"},
                                                 {"w2_scale_2", "F32 [E]"},
                                                 {"a13", "F32 [E, halves]"},
                                                 {"a2", "F32 [E]"}}};
constexpr std::array<ParamRow, 4> kScalarParams{
    {{"clamp", "of the activation", ParamUse::kOptional, "7.0"},
     {"beta", "of the activation", ParamUse::kOptional, "1.0"},
     {"alpha", "of the activation", ParamUse::kOptional, "1.702"},
     {"E", "experts", ParamUse::kFact, ""}}};
constexpr std::array<InputRow, 1> kSizesInputs{{{"hn", "I32 [any, 2]: hidden, intermediate"}}};

constexpr std::array<Function, 6> kFunctions{{
    {"half-swap",
     {"flashinfer_fp4_moe.reorder_w1w3_to_w3w1"},
     "gate and up change places",
     kSwapInputs,
     kLayerFacts,
     true,
     swap_halves},
    {"scales-128x4",
     {"nvfp4_utils.swizzle_blockscale; flashinfer.block_scale_interleave (fi_*); "
      "mxfp8_utils.swizzle_mxfp8_scale (mx8_*); experts.cutlass_moe.swizzle_mxfp4_scales (mx4_*)"},
     "block scales in tiles of 128 rows by 4",
     kScalesInputs,
     {},
     false,
     swizzle_blockscale},
    {"trtllm-shuffles",
     {"flashinfer.shuffle_matrix_sf_a, shuffle_matrix_a, convert_to_block_layout"},
     "rows shuffled by 32 and 16, blocks of 128 bytes of K",
     kShuffleInputs,
     kShuffleParams,
     false,
     shuffle_matrices},
    {"trtllm-row-maps",
     {"flashinfer.utils.get_shuffle_matrix_a_row_indices; "
      "flashinfer.fused_moe.core.get_reorder_rows_for_gated_act_gemm_row_indices, "
      "_maybe_get_cached_w3_w1_permute_indices"},
     "which row each row of a shuffle takes",
     kMapInputs,
     {},
     false,
     row_maps},
    {"nvfp4-scalars",
     {"quant_utils.amax_for_moe_activation_quant; oracle.nvfp4.make_nvfp4_moe_quant_config; "
      "TrtLlmNvFp4Experts*.process_weights_after_loading"},
     "single numbers of NVFP4 experts",
     kScalarInputs,
     kScalarParams,
     false,
     nvfp4_numbers},
    {"mxfp4-sizes",
     {"oracle.mxfp4.mxfp4_round_up_hidden_size_and_intermediate_size"},
     "sizes that the backends pad MXFP4 layers to",
     kSizesInputs,
     {},
     false,
     round_up_sizes},
}};

}  // namespace

std::span<const Function> flashinfer_part_functions() noexcept { return kFunctions; }

}  // namespace lode::targets
