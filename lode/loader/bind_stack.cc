#include "lode/loader/bind_stack.h"

#include <initializer_list>
#include <utility>

#include "lode/loader/bind_matrix.h"
#include "lode/loader/bind_missing.h"

namespace lode::loader {
namespace {

using checkpoint::InAxis;
using checkpoint::LinearStorage;
using checkpoint::TensorRecord;
using families::Role;
using families::RoleExtents;

// How the two axes of a stack of matrices lie, as far as the tensor itself tells.
enum class Axes : std::uint8_t { kEither, kOutIn, kInOut };

struct Stack {
  std::string module;
  LinearStorage storage;
  RoleExtents extents;  // of one expert, gate and up together where they are fused
  Axes axes = Axes::kEither;
  std::uint64_t parts = 1;
};

std::string shapes_text(const BindContext& context, const RoleExtents& extents) {
  const std::string experts = std::to_string(context.spec.router.num_experts);
  const std::string out = std::to_string(extents.rows);
  const std::string in = std::to_string(extents.k);
  return "matrices [" + experts + ", " + out + ", " + in + "] or [" + experts + ", " + in + ", " +
         out + "]";
}

Result<Axes> axes_of(const BindContext& context, const Stack& stack) {
  const LinearStorage& storage = stack.storage;
  const RoleExtents& extents = stack.extents;
  const bool straight = storage.in_axis != InAxis::kMiddle && storage.rows == extents.rows &&
                        storage.columns == extents.k;
  const bool turned = storage.in_axis != InAxis::kLast && storage.rows == extents.k &&
                      storage.columns == extents.rows;
  if (storage.experts != context.spec.router.num_experts || (!straight && !turned)) {
    return misfit(context.index, *storage.values, shapes_text(context, extents));
  }
  if (straight && turned) return Axes::kEither;
  return straight ? Axes::kOutIn : Axes::kInOut;
}

Result<Stack> find_stack(BindContext& context, const std::string& module, RoleExtents extents,
                         std::uint64_t parts) {
  Stack stack{.module = module, .storage = {}, .extents = extents, .parts = parts};
  auto detected = checkpoint::detect_fused(context.index, module, context.quant);
  if (!detected && !checkpoint::has_fused(context.index, module)) {
    return missing(context, module, shapes_text(context, extents));
  }
  if (!detected) return with_file(context.index, std::move(detected).error());
  stack.storage = *std::move(detected);
  LODE_TRY(stack.axes, axes_of(context, stack));
  return stack;
}

// A square stack lies like its sibling, or else as the family's do: checkpoints_models.md 2.8.
void settle_axes(const BindContext& context, std::initializer_list<Stack*> stacks) {
  Axes known = context.family.stacked.transposed ? Axes::kInOut : Axes::kOutIn;
  for (const Stack* stack : stacks) {
    if (stack->axes != Axes::kEither && stack->storage.in_axis == InAxis::kUnknown) {
      known = stack->axes;
    }
  }
  for (Stack* stack : stacks) {
    if (stack->axes == Axes::kEither) stack->axes = known;
  }
}

Result<StoredMatrix> take_stack(BindContext& context, const Stack& stack) {
  StoredMatrix matrix{.storage = stack.storage,
                      .transposed = stack.axes == Axes::kInOut,
                      .rows = stack.extents.rows,
                      .k = stack.extents.k,
                      .parts = stack.parts};
  const formats::Encoding& encoding = stack.storage.encoding;
  const bool lopsided = stack.storage.kind == checkpoint::StorageKind::kFp8Block &&
                        encoding.block_rows != encoding.block_k;
  if (matrix.transposed && lopsided) {
    Error error =
        misfit(context.index, *stack.storage.values, "square blocks, as it is transposed");
    error.code = Code::kUnsupported;
    return error;
  }
  LODE_TRY_STATUS(check_stored(context, matrix));
  LODE_TRY_STATUS(take_matrix(context, stack.storage, stack.module));
  return matrix;
}

// A stack of biases [E, rows], all of them.
Result<VectorSource> bind_stacked_bias(BindContext& context, const std::string& module,
                                       std::uint64_t rows) {
  const std::uint64_t experts = context.spec.router.num_experts;
  const std::string wanted =
      "BF16, F16 or F32 [" + std::to_string(experts) + ", " + std::to_string(rows) + "]";
  const TensorRecord* bias = context.index.find(module + ".bias");
  if (bias == nullptr) bias = context.index.find(module + "_bias");
  if (bias == nullptr) return missing(context, module + "_bias", wanted);
  const bool fits = bias->dims.size() == 2 && bias->dims[0] == experts && bias->dims[1] == rows;
  if (!fits || !is_plain_float(*bias)) return misfit(context.index, *bias, wanted);
  LODE_TRY_STATUS(context.use.take(*bias));
  return VectorSource{.format = *bias->format,
                      .count = rows,
                      .shard = bias->shard_id,
                      .offset_bytes = bias->file_offset,
                      .step_bytes = number_bytes(*bias->format),
                      .present = true};
}

// Rows of one expert's vector in a stack of them.
VectorSource pick_of(const VectorSource& stack, std::uint64_t expert, const RowPick& pick) {
  VectorSource source = stack;
  source.offset_bytes += (expert * stack.count + pick.origin) * stack.step_bytes;
  source.count = pick.rows;
  source.step_bytes *= pick.step;
  return source;
}

// Everything about a layer's experts: gate and up may be rows of the same stack.
struct Stacks {
  StoredMatrix gate{}, up{}, down{};
  RowPick gate_rows{}, up_rows{}, down_rows{};
  VectorSource gate_bias{}, up_bias{}, down_bias{};  // stacks of all experts'
};

std::vector<ExpertSource> experts_of(const BindContext& context, const Stacks& stacks) {
  std::vector<ExpertSource> experts(context.spec.router.num_experts);
  for (std::uint64_t expert = 0; expert < experts.size(); ++expert) {
    ExpertSource& source = experts[expert];
    source.gate = source_of(stacks.gate, expert, stacks.gate_rows);
    source.up = source_of(stacks.up, expert, stacks.up_rows);
    source.down = source_of(stacks.down, expert, stacks.down_rows);
    if (!context.spec.expert_bias) continue;
    source.gate_bias = pick_of(stacks.gate_bias, expert, stacks.gate_rows);
    source.up_bias = pick_of(stacks.up_bias, expert, stacks.up_rows);
    source.down_bias = pick_of(stacks.down_bias, expert, stacks.down_rows);
  }
  return experts;
}

Status check_pair(const BindContext& context, const Stack& gate, const Stack& up) {
  if (gate.storage.encoding == up.storage.encoding) return {};
  Error error = misfit(context.index, *up.storage.values, "the number format of gate");
  error.code = Code::kUnsupported;
  return error;
}

}  // namespace

StackNames stack_names(const BindContext& context, std::uint32_t layer) {
  const std::string start = context.prefix + "layers." + std::to_string(layer) + ".";
  const auto without_number = [&](Role role) {
    std::string name = module_name(context, role, layer, 0);
    return name.erase(name.rfind(".0."), 2);
  };
  return {.gate_up = start + std::string(context.family.stacked.gate_up),
          .gate = without_number(Role::kExpertGate),
          .up = without_number(Role::kExpertUp),
          .down = start + std::string(context.family.stacked.down)};
}

Result<std::vector<ExpertSource>> bind_fused(BindContext& context, const StackNames& names) {
  const RoleExtents one = families::extents(context.spec, Role::kExpertGate);
  const RoleExtents back = families::extents(context.spec, Role::kExpertDown);
  LODE_TRY(Stack gate_up, find_stack(context, names.gate_up, {2 * one.rows, one.k}, 2));
  LODE_TRY(Stack down, find_stack(context, names.down, back, 1));
  settle_axes(context, {&gate_up, &down});
  const bool interleaved = context.family.stacked.interleaved;
  const std::uint64_t step = interleaved ? 2 : 1;
  Stacks stacks;
  LODE_TRY(stacks.gate, take_stack(context, gate_up));
  LODE_TRY(stacks.down, take_stack(context, down));
  stacks.up = stacks.gate;
  stacks.gate_rows = {.origin = 0, .step = step, .rows = one.rows, .part = 0};
  stacks.up_rows = {
      .origin = interleaved ? 1 : one.rows, .step = step, .rows = one.rows, .part = 1};
  stacks.down_rows = {.rows = back.rows};
  if (context.spec.expert_bias) {
    LODE_TRY(stacks.gate_bias, bind_stacked_bias(context, names.gate_up, 2 * one.rows));
    LODE_TRY(stacks.down_bias, bind_stacked_bias(context, names.down, back.rows));
    stacks.up_bias = stacks.gate_bias;
  }
  return experts_of(context, stacks);
}

Result<std::vector<ExpertSource>> bind_apart(BindContext& context, const StackNames& names) {
  const RoleExtents one = families::extents(context.spec, Role::kExpertGate);
  const RoleExtents back = families::extents(context.spec, Role::kExpertDown);
  LODE_TRY(Stack gate, find_stack(context, names.gate, one, 1));
  LODE_TRY(Stack up, find_stack(context, names.up, one, 1));
  LODE_TRY(Stack down, find_stack(context, names.down, back, 1));
  LODE_TRY_STATUS(check_pair(context, gate, up));
  settle_axes(context, {&gate, &up, &down});
  Stacks stacks{.gate_rows = {.rows = one.rows},
                .up_rows = {.rows = one.rows},
                .down_rows = {.rows = back.rows}};
  LODE_TRY(stacks.gate, take_stack(context, gate));
  LODE_TRY(stacks.up, take_stack(context, up));
  LODE_TRY(stacks.down, take_stack(context, down));
  if (context.spec.expert_bias) {
    LODE_TRY(stacks.gate_bias, bind_stacked_bias(context, names.gate, one.rows));
    LODE_TRY(stacks.up_bias, bind_stacked_bias(context, names.up, one.rows));
    LODE_TRY(stacks.down_bias, bind_stacked_bias(context, names.down, back.rows));
  }
  return experts_of(context, stacks);
}

}  // namespace lode::loader
