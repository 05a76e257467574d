#include "lode/loader/place.h"

#include "lode/base/fmt.h"
#include "lode/layout/panels.h"

namespace lode::loader {
namespace {

using families::Role;

constexpr std::uint64_t kBigTensorBytes = 64 * kKiB;

Error unsupported(const StagePlan& stage, Role role, std::string wanted, std::string found) {
  return {.code = Code::kUnsupported,
          .thing = fmt::format("{} of {}", families::name(role), stage.name),
          .wanted = std::move(wanted),
          .found = std::move(found)};
}

// Large tensors begin on a page, small ones on a line.
void append(StagePlan& stage, Role role, const tensor::Meta& meta, std::uint64_t bytes,
            std::uint64_t used_bytes) {
  const std::uint64_t alignment =
      bytes >= kBigTensorBytes ? layout::kRecordAlignment : kernels::kLineBytes;
  const std::uint64_t offset = align_up(stage.slab_bytes, alignment);
  stage.places.push_back({role, meta, offset, bytes});
  stage.slab_bytes = offset + align_up<std::uint64_t>(bytes, kernels::kLineBytes);
  stage.used_bytes += used_bytes;
}

void append_row_major(StagePlan& stage, Role role, formats::Format format,
                      const tensor::Shape& shape) {
  const std::uint64_t bytes = shape.elements() * formats::info(format).bits / 8;
  append(stage, role, {{.element = format}, tensor::Layout::kRowMajor, shape}, bytes, bytes);
}

Status append_panels(StagePlan& stage, Role role, const MatrixSource& source,
                     const formats::Encoding& prepared, std::uint32_t num_matrices) {
  const auto panels = layout::PanelLayout::make(prepared, source.rows, source.k, num_matrices);
  if (!panels) {
    return unsupported(stage, role, "numbers that panels hold",
                       std::string(formats::name(prepared)));
  }
  append(stage, role, panels->meta(), panels->total_bytes(), panels->used_bytes());
  return {};
}

bool same_pair(const MatrixSource& gate, const MatrixSource& up) {
  return gate.encoding == up.encoding && gate.rows == up.rows && gate.k == up.k;
}

bool plain(const MatrixSource& source) {
  return !source.encoding.has_scale && source.codes.order == Order::kRowsFirst;
}

Status place_matrix(const RoleSources& sources, Role role, DenseFormat dense, StagePlan& stage) {
  const auto matrix = [&](Role of) -> const MatrixSource& {
    return sources.matrices[static_cast<std::size_t>(of)];
  };
  const MatrixSource& source = matrix(role);
  const bool tied = role == Role::kTokenEmbedding && !matrix(Role::kOutputHead).present;
  if (role == Role::kRouter || (role == Role::kTokenEmbedding && !tied)) {
    if (!plain(source)) {
      return unsupported(stage, role, "plain numbers, row after row",
                         std::string(formats::name(source.encoding)));
    }
    const auto format = role == Role::kRouter ? formats::Format::kF32 : source.encoding.element;
    append_row_major(stage, role, format, {source.rows, source.k});
    return {};
  }
  if (role == Role::kMlpUp) return {};  // lies with its gate
  if (role == Role::kMlpGate && !same_pair(source, matrix(Role::kMlpUp))) {
    return unsupported(stage, role, "gate and up of one encoding and shape",
                       fmt::format("{} and {}", formats::name(source.encoding),
                                   formats::name(matrix(Role::kMlpUp).encoding)));
  }
  return append_panels(stage, role, source, prepared_encoding(source.encoding, dense),
                       role == Role::kMlpGate ? 2 : 1);
}

bool same_kind(const ExpertSource& a, const ExpertSource& b) {
  return same_pair(a.gate, b.gate) && same_pair(a.gate, b.up) && same_pair(a.down, b.down) &&
         a.gate_bias.present == b.gate_bias.present && a.up_bias.present == b.up_bias.present &&
         a.down_bias.present == b.down_bias.present;
}

Status check_slots(const std::vector<std::uint32_t>& slots, std::size_t num_experts,
                   const StagePlan& stage) {
  for (std::size_t slot = 0; slot < slots.size(); ++slot) {
    if (slots[slot] < num_experts) continue;
    return Error{.code = Code::kUsage,
                 .thing = fmt::format("slot {} of {}", slot, stage.name),
                 .wanted = fmt::format("an expert below {}", num_experts),
                 .found = fmt::format("{}", slots[slot])};
  }
  return {};
}

}  // namespace

formats::Encoding prepared_encoding(const formats::Encoding& stored, DenseFormat dense) noexcept {
  using formats::Format;
  if (dense == DenseFormat::kAsStored) return stored;
  switch (stored.element) {
    case Format::kF32:
    case Format::kF16:
    case Format::kBf16:
    case Format::kE4m3:
      return formats::kInt8Row128;
    default:
      return stored;  // nothing is gained by making four bits eight
  }
}

Status place_dense(const RoleSources& sources, DenseFormat dense, StagePlan& stage) {
  for (std::size_t i = 0; i < families::kNumRoles; ++i) {
    const auto role = static_cast<Role>(i);
    if (sources.matrices[i].present) {
      LODE_TRY_STATUS(place_matrix(sources, role, dense, stage));
    }
    const VectorSource& vector = sources.vectors[i];
    if (vector.present) {
      append_row_major(stage, role, formats::Format::kF32, {vector.count});
    }
  }
  return {};
}

Status place_experts(const std::vector<ExpertSource>& experts,
                     const std::vector<std::uint32_t>* slots, StagePlan& stage) {
  if (experts.empty()) return {};
  const ExpertSource& first = experts.front();
  for (std::size_t expert = 0; expert < experts.size(); ++expert) {
    if (same_kind(first, experts[expert])) continue;
    return unsupported(stage, Role::kExpertGate, "all experts of a layer in one encoding and shape",
                       fmt::format("expert {} unlike expert 0, or its gate unlike its up", expert));
  }
  const auto record = layout::make_expert_record(first.gate.k, first.gate.rows, first.gate.encoding,
                                                 first.down.encoding, first.gate_bias.present);
  if (!record) {
    return unsupported(stage, Role::kExpertGate, "numbers that panels hold",
                       fmt::format("{} and {}", formats::name(first.gate.encoding),
                                   formats::name(first.down.encoding)));
  }
  stage.bank = BankPlan{*record, experts.size()};
  stage.used_bytes += stage.bank->used_bytes();
  return slots != nullptr ? keep_slots(*slots, stage) : Status{};
}

Status keep_slots(const std::vector<std::uint32_t>& slots, StagePlan& stage) {
  BankPlan& bank = *stage.bank;
  LODE_TRY_STATUS(check_slots(slots, bank.num_experts, stage));
  stage.used_bytes -= bank.used_bytes();
  bank.num_experts = slots.size();
  bank.slots = slots;
  stage.used_bytes += bank.used_bytes();
  return {};
}

}  // namespace lode::loader
