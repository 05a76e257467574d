#include "lode/prepared/model_fit.h"

#include <string>
#include <utility>

#include "lode/base/fmt.h"

namespace lode::prepared {
namespace {

using families::ModelSpec;
using families::Role;
using loader::StagePlan;
using loader::TensorPlace;
using tensor::Layout;

Error misfit(std::string thing, std::string wanted, std::string found) {
  return {.code = Code::kInvalidSource,
          .thing = std::move(thing),
          .wanted = std::move(wanted),
          .found = std::move(found),
          .where = "index.bin",
          .hint = "the index is not that of this config.json: prepare the checkpoint again"};
}

const TensorPlace* find(const StagePlan& stage, Role role) {
  for (const TensorPlace& place : stage.places) {
    if (place.role == role) return &place;
  }
  return nullptr;
}

bool plain_rows(const tensor::Meta& meta) {
  if (meta.encoding.has_scale || meta.encoding.tensor_scale != formats::TensorScale::kNone) {
    return false;
  }
  switch (meta.encoding.element) {
    case formats::Format::kF32:
    case formats::Format::kF16:
    case formats::Format::kBf16:
      return true;
    default:
      return false;
  }
}

// The form of a role's weight in its slab: that of loader::place_dense.
struct Form {
  Layout layout{};
  tensor::Shape shape{};
  bool f32 = false;         // else any numbers that the layout holds
  bool plain_rows = false;  // f32, f16 or bf16
};

Form form_of(const ModelSpec& spec, Role role, bool tied) {
  const families::RoleExtents extents = families::extents(spec, role);
  if (extents.k == 0) return {.layout = Layout::kRowMajor, .shape = {extents.rows}, .f32 = true};
  const tensor::Shape matrix{extents.rows, extents.k};
  if (role == Role::kRouter) return {.layout = Layout::kRowMajor, .shape = matrix, .f32 = true};
  if (role == Role::kTokenEmbedding && !tied) {
    return {.layout = Layout::kRowMajor, .shape = matrix, .plain_rows = true};
  }
  if (role == Role::kMlpGate) {
    return {.layout = Layout::kGateUpPanels, .shape = {2, extents.rows, extents.k}};
  }
  return {.layout = Layout::kPanels, .shape = matrix};
}

std::string describe(const tensor::Meta& meta) {
  return fmt::format("{} {} in {}", formats::name(meta.encoding), tensor::to_string(meta.shape),
                     tensor::name(meta.layout));
}

Status check_form(const StagePlan& stage, const TensorPlace& place, const Form& form) {
  const tensor::Meta& meta = place.meta;
  const bool right = meta.layout == form.layout && meta.shape == form.shape &&
                     (!form.f32 || meta.encoding == formats::kPlainF32) &&
                     (!form.plain_rows || plain_rows(meta));
  if (right) return {};
  return misfit(fmt::format("{} of {}", families::name(place.role), stage.name),
                fmt::format("{}{} in {}", form.f32 ? "f32 " : "", tensor::to_string(form.shape),
                            tensor::name(form.layout)),
                describe(meta));
}

// Whether the stage must have a place for the role; a head may be there although it is tied.
bool is_wanted(const ModelSpec& spec, const StagePlan& stage, Role role) {
  const bool model = stage.layer == StagePlan::kModel;
  const auto scope = families::scope(role);
  if (scope != (model ? families::Scope::kModel : families::Scope::kLayer)) return false;
  if (role == Role::kMlpUp) return false;  // lies with its gate
  return families::has_role(spec, role, model ? 0 : static_cast<std::uint32_t>(stage.layer));
}

Status check_places(const ModelSpec& spec, const StagePlan& stage) {
  const bool tied = find(stage, Role::kOutputHead) == nullptr;
  for (std::size_t i = 0; i < families::kNumRoles; ++i) {
    const auto role = static_cast<Role>(i);
    const TensorPlace* const place = find(stage, role);
    const bool wanted = is_wanted(spec, stage, role) && !(role == Role::kOutputHead && tied);
    if (place != nullptr && (wanted || role == Role::kOutputHead)) {
      LODE_TRY_STATUS(check_form(stage, *place, form_of(spec, role, tied)));
    } else if (wanted != (place != nullptr)) {
      return misfit(fmt::format("{} of {}", families::name(role), stage.name),
                    wanted ? "a weight" : "none", wanted ? "none" : describe(place->meta));
    }
  }
  return {};
}

Status check_bank(const ModelSpec& spec, const StagePlan& stage) {
  const bool wanted =
      stage.layer != StagePlan::kModel && spec.layers[static_cast<std::size_t>(stage.layer)].moe;
  const std::string thing = fmt::format("experts of {}", stage.name);
  if (wanted != stage.bank.has_value()) {
    return misfit(thing, wanted ? "a bank" : "none", wanted ? "none" : "a bank");
  }
  if (!wanted) return {};
  const layout::ExpertRecord& record = stage.bank->record;
  const bool right =
      stage.bank->num_experts == spec.router.num_experts && record.hidden == spec.hidden &&
      record.intermediate == spec.expert_intermediate && record.bias == spec.expert_bias;
  if (right) return {};
  const auto text = [](std::uint64_t experts, std::uint64_t hidden, std::uint64_t intermediate,
                       bool bias) {
    return fmt::format("{} experts {} x {}{}", experts, hidden, intermediate,
                       bias ? " with biases" : "");
  };
  return misfit(
      thing, text(spec.router.num_experts, spec.hidden, spec.expert_intermediate, spec.expert_bias),
      text(stage.bank->num_experts, record.hidden, record.intermediate, record.bias));
}

}  // namespace

Status check_model(std::span<const loader::StagePlan> stages, const ModelSpec& spec) {
  if (stages.size() != std::size_t{spec.num_layers} + 1) {
    return misfit("stages",
                  fmt::format("{} of a model with {} layers", spec.num_layers + 1, spec.num_layers),
                  fmt::format("{}", stages.size()));
  }
  for (const StagePlan& stage : stages) {
    LODE_TRY_STATUS(check_places(spec, stage));
    LODE_TRY_STATUS(check_bank(spec, stage));
  }
  return {};
}

}  // namespace lode::prepared
