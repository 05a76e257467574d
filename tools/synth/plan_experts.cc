#include "tools/synth/plan_experts.h"

#include <algorithm>
#include <numeric>

#include "lode/formats/dequantise.h"

namespace lode::synth {
namespace {

using formats::Format;

Place add_tensor(const Stored& stored, std::string dtype, std::vector<std::uint64_t> dims,
                 std::uint64_t element_bytes, Plan& plan) {
  const std::uint64_t bytes =
      std::accumulate(dims.begin(), dims.end(), element_bytes, std::multiplies<>());
  PlannedTensor tensor{stored.name, std::move(dtype), std::move(dims), bytes};
  tensor.next_shard = stored.next_shard;
  plan.tensors.push_back(std::move(tensor));
  return {plan.tensors.size() - 1, 0};
}

/// The position of the axis along k.
std::size_t k_axis(const Stored& stored) {
  return stored.dims.size() - (stored.transposed ? 2 : 1);
}

/// E8M0 scales lie in U8 tensors in every dialect written here.
std::string dtype_of(Format format) {
  if (format == Format::kE2m1 || format == Format::kE8m0) return "U8";
  return std::string(formats::info(format).safetensors_name);
}

/// The three matrices of one expert and its biases.
struct Expert {
  MatrixId gate, up, down;
  MatrixId gate_bias, up_bias, down_bias;
};

Expert expert_of(const Recipe& recipe, const Resolved& resolved, std::uint64_t layer,
                 std::uint64_t expert) {
  const std::uint64_t hidden = recipe.shape.hidden;
  const std::uint64_t width = recipe.shape.intermediate;
  const ExpertNames& names = resolved.family->experts;
  const auto matrix = [&](std::string_view role, std::string_view module, std::uint64_t rows,
                          std::uint64_t columns) {
    const std::string name = filled(module, layer, expert);
    const bool bias = columns == 1;
    return MatrixId{role,
                    layer,
                    expert,
                    bias ? Kind::kBias : Kind::kExpert,
                    rows,
                    columns,
                    name + (bias ? ".bias" : ".weight")};
  };
  return {matrix("expert_gate", names.gate, width, hidden),
          matrix("expert_up", names.up, width, hidden),
          matrix("expert_down", names.down, hidden, width),
          matrix("expert_gate_bias", names.gate, width, 1),
          matrix("expert_up_bias", names.up, width, 1),
          matrix("expert_down_bias", names.down, hidden, 1)};
}

formats::Encoding encoding_of(const Resolved& resolved) {
  return resolved.rule ? info(*resolved.rule).encoding : formats::kPlainBf16;
}

/// Adds a group of matrices that share a scale; its index.
std::uint64_t add_sharing(std::vector<MatrixId> matrices, Plan& plan) {
  plan.sharing.push_back(std::move(matrices));
  return plan.sharing.size() - 1;
}

/// One expert's matrix under its own name, with its scales.
void add_module(const Recipe& recipe, const Resolved& resolved, const MatrixId& matrix,
                std::uint64_t amax_of, Plan& plan) {
  const PartNames& names = info(recipe.format).module;
  const std::string module = prefixed(recipe, module_of(matrix.name));
  Stored stored{.name = module + std::string(names.codes), .encoding = encoding_of(resolved)};
  stored.dims = {matrix.rows, matrix.columns};
  stored.next_shard = recipe.split_gate_up && matrix.role == "expert_up";
  Job job{.matrices = {matrix}, .rows = matrix.rows};
  job.encoding = stored.encoding;
  job.rule = resolved.rule;
  job.amax_of = amax_of;
  job.codes = add_codes(stored, plan);
  if (has_block_scales(stored.encoding)) {
    stored.name = module + std::string(names.scales);
    job.scales = add_scales(stored, plan);
  }
  if (has_matrix_scale(stored.encoding)) {
    stored.name = module + std::string(names.tensor_scale);
    const bool scalar = recipe.format != WeightFormat::kNvfp4Ct;  // ModelOpt's has no axis
    const std::vector<std::uint64_t> dims(scalar ? 0 : 1, 1);
    job.tensor_scale = add_tensor(stored, "F32", dims, 4, plan);
  }
  plan.jobs.push_back(std::move(job));
}

/// All experts' matrices of one kind in one tensor: down, or gate and up together.
struct Stack {
  std::string module;
  std::vector<std::vector<MatrixId>> experts;  // each one or two matrices
  std::vector<std::uint64_t> amax_of;
};

PartNames stack_names(const Recipe& recipe, const Resolved& resolved) {
  const bool blocks =
      resolved.storage == Storage::kInterleaved && recipe.format == WeightFormat::kMxfp4;
  return blocks ? PartNames{"_blocks", "_scales", ""} : info(recipe.format).stack;
}

Stored stored_stack(const Recipe& recipe, const Resolved& resolved, const Stack& stack) {
  Stored stored{.name = stack.module, .encoding = encoding_of(resolved)};
  const MatrixId& first = stack.experts.front().front();
  const std::uint64_t rows = first.rows * stack.experts.front().size();
  const bool mxfp4 = recipe.format == WeightFormat::kMxfp4;
  const bool interleaved = resolved.storage == Storage::kInterleaved;
  stored.transposed = resolved.storage == Storage::kTransposed || (interleaved && !mxfp4);
  stored.blocks_axis = interleaved && mxfp4;
  stored.dims = {stack.experts.size(), rows, first.columns};
  if (stored.transposed) std::swap(stored.dims[1], stored.dims[2]);
  return stored;
}

void add_stack(const Recipe& recipe, const Resolved& resolved, const Stack& stack, Plan& plan) {
  const PartNames names = stack_names(recipe, resolved);
  Stored stored = stored_stack(recipe, resolved, stack);
  const auto named = [&](std::string_view part) {
    stored.name = stack.module + std::string(part);
    return stored;
  };
  const std::uint64_t num_experts = stack.experts.size();
  const Place codes = add_codes(named(names.codes), plan);
  std::optional<Place> scales;
  std::optional<Place> tensor_scale;
  if (has_block_scales(stored.encoding)) scales = add_scales(named(names.scales), plan);
  const bool one_for_all = stored.transposed;
  if (has_matrix_scale(stored.encoding)) {
    const auto dims = one_for_all ? std::vector<std::uint64_t>{} : std::vector{num_experts};
    tensor_scale = add_tensor(named(names.tensor_scale), "F32", dims, 4, plan);
  }
  for (std::uint64_t expert = 0; expert < num_experts; ++expert) {
    Job job{.matrices = stack.experts[expert]};
    job.rows = job.matrices.front().rows;
    job.interleaved = resolved.storage == Storage::kInterleaved;
    job.transposed = stored.transposed;
    job.encoding = stored.encoding;
    job.rule = resolved.rule;
    job.amax_of = stack.amax_of[expert];
    job.codes = {codes.tensor, expert * (plan.tensors[codes.tensor].bytes / num_experts)};
    if (scales) {
      job.scales = {scales->tensor, expert * (plan.tensors[scales->tensor].bytes / num_experts)};
    }
    if (tensor_scale && !(one_for_all && expert > 0)) {
      job.tensor_scale = {tensor_scale->tensor, expert * 4};
    }
    plan.jobs.push_back(std::move(job));
  }
}

void add_bias_stack(const std::string& module, std::vector<std::vector<MatrixId>> experts,
                    Plan& plan) {
  const std::uint64_t rows = experts.front().front().rows * experts.front().size();
  Stored stored{.name = module + "_bias"};
  stored.dims = {experts.size(), rows};
  const Place place = add_codes(stored, plan);
  for (std::uint64_t expert = 0; expert < experts.size(); ++expert) {
    Job job{.matrices = std::move(experts[expert])};
    job.rows = job.matrices.front().rows;
    job.interleaved = true;
    job.codes = {place.tensor, expert * rows * 2};
    plan.jobs.push_back(std::move(job));
  }
}

/// Which scale each matrix of an expert is under: indices into Plan::sharing.
struct Shares {
  std::uint64_t gate, up, down;
};

std::vector<Shares> share_over_layer(const std::vector<Expert>& experts, Plan& plan) {
  std::vector<MatrixId> gate_up;
  std::vector<MatrixId> down;
  for (const Expert& expert : experts) {
    gate_up.insert(gate_up.end(), {expert.gate, expert.up});
    down.push_back(expert.down);
  }
  const std::uint64_t gate_up_share = add_sharing(std::move(gate_up), plan);
  const std::uint64_t down_share = add_sharing(std::move(down), plan);
  return std::vector<Shares>(experts.size(), {gate_up_share, gate_up_share, down_share});
}

std::vector<Shares> shares_of(const Resolved& resolved, const std::vector<Expert>& experts,
                              Plan& plan) {
  if (resolved.scale_over == ScaleOver::kLayer) return share_over_layer(experts, plan);
  std::vector<Shares> shares;
  for (const Expert& expert : experts) {
    Shares own{};
    if (resolved.scale_over == ScaleOver::kExpert) {
      own.gate = own.up = add_sharing({expert.gate, expert.up}, plan);
    } else {
      own.gate = add_sharing({expert.gate}, plan);
      own.up = add_sharing({expert.up}, plan);
    }
    own.down = add_sharing({expert.down}, plan);
    shares.push_back(own);
  }
  return shares;
}

void add_stacks(const Recipe& recipe, const Resolved& resolved, const std::vector<Expert>& experts,
                const std::vector<Shares>& shares, Plan& plan) {
  const ExpertNames& names = resolved.family->experts;
  const std::uint64_t layer = experts.front().gate.layer;
  Stack gate_up{prefixed(recipe, filled(names.gate_up_stack, layer)), {}, {}};
  Stack down{prefixed(recipe, filled(names.down_stack, layer)), {}, {}};
  std::vector<std::vector<MatrixId>> gate_up_bias;
  std::vector<std::vector<MatrixId>> down_bias;
  for (std::size_t i = 0; i < experts.size(); ++i) {
    gate_up.experts.push_back({experts[i].gate, experts[i].up});
    gate_up.amax_of.push_back(shares[i].gate);
    down.experts.push_back({experts[i].down});
    down.amax_of.push_back(shares[i].down);
    gate_up_bias.push_back({experts[i].gate_bias, experts[i].up_bias});
    down_bias.push_back({experts[i].down_bias});
  }
  add_stack(recipe, resolved, gate_up, plan);
  if (names.interleaved) add_bias_stack(gate_up.module, std::move(gate_up_bias), plan);
  add_stack(recipe, resolved, down, plan);
  if (names.interleaved) add_bias_stack(down.module, std::move(down_bias), plan);
}

}  // namespace

Place add_codes(const Stored& stored, Plan& plan) {
  std::vector<std::uint64_t> dims = stored.dims;
  const bool halves = stored.encoding.element == Format::kE2m1;
  if (halves) dims[k_axis(stored)] /= 2;
  if (stored.blocks_axis) {
    dims.back() /= 16;
    dims.push_back(16);
  }
  const std::uint64_t bits = formats::info(stored.encoding.element).bits;
  return add_tensor(stored, dtype_of(stored.encoding.element), dims, halves ? 1 : bits / 8, plan);
}

Place add_scales(const Stored& stored, Plan& plan) {
  std::vector<std::uint64_t> dims = stored.dims;
  const std::size_t k = k_axis(stored);
  const std::size_t rows = stored.transposed ? k + 1 : k - 1;
  dims[k] = formats::scale_columns(stored.encoding, dims[k]);
  dims[rows] = formats::scale_rows(stored.encoding, dims[rows]);
  const std::uint64_t bytes = formats::info(stored.encoding.scale).bits / 8;
  return add_tensor(stored, dtype_of(stored.encoding.scale), dims, bytes, plan);
}

void add_experts(const Recipe& recipe, const Resolved& resolved, std::uint64_t layer, Plan& plan) {
  std::vector<Expert> experts;
  for (std::uint64_t expert = 0; expert < recipe.shape.experts; ++expert) {
    experts.push_back(expert_of(recipe, resolved, layer, expert));
  }
  const std::vector<Shares> shares = shares_of(resolved, experts, plan);
  if (resolved.storage != Storage::kPerExpert) {
    return add_stacks(recipe, resolved, experts, shares, plan);
  }
  for (std::size_t i = 0; i < experts.size(); ++i) {
    add_module(recipe, resolved, experts[i].gate, shares[i].gate, plan);
    add_module(recipe, resolved, experts[i].up, shares[i].up, plan);
    add_module(recipe, resolved, experts[i].down, shares[i].down, plan);
  }
}

}  // namespace lode::synth
