#include "lode/loader/bind_experts.h"

#include <string>

#include "lode/loader/bind_matrix.h"
#include "lode/loader/bind_stack.h"

namespace lode::loader {
namespace {

using checkpoint::TensorRecord;
using families::Role;

// Some tensor whose name begins with `module`, or null.
const TensorRecord* any_under(const BindContext& context, const std::string& module) {
  const auto tensors = context.index.with_prefix(module);
  return tensors.empty() ? nullptr : &tensors.front();
}

// "….experts.": what stands before the number of an expert.
std::string before_expert(const BindContext& context, std::uint32_t layer) {
  const std::string name = module_name(context, Role::kExpertGate, layer, 0);
  return name.substr(0, name.rfind("0."));
}

// The first tensor of "….experts.<number>.", or null.
const TensorRecord* any_numbered(const BindContext& context, std::uint32_t layer) {
  const std::string prefix = before_expert(context, layer);
  for (char digit = '0'; digit <= '9'; ++digit) {
    const TensorRecord* const tensor = any_under(context, prefix + digit);
    if (tensor != nullptr) return tensor;
  }
  return nullptr;
}

// llm-compressor cuts the interleaved matrix of gpt-oss into halves and calls them gate and up; a
// later version really sorts the rows. Nothing in the file tells which: checkpoints_models.md 2.4.
Status refuse_halves(const BindContext& context, const TensorRecord& tensor) {
  const bool unclear = context.family.stacked.interleaved &&
                       context.quant.dialect == checkpoint::Dialect::kCompressedTensors;
  if (!unclear) return {};
  Error error = misfit(context.index, tensor, "stacked experts");
  error.code = Code::kUnsupported;
  error.hint = "its writer has two orders of gate and up rows under the same names";
  return error;
}

Status bind_expert_biases(BindContext& context, std::uint32_t layer, std::uint32_t expert,
                          ExpertSource& source) {
  if (!context.spec.expert_bias) return {};
  const auto bias_of = [&](Role role) -> Result<VectorSource> {
    return bind_vector(context, module_name(context, role, layer, expert) + ".bias",
                       families::extents(context.spec, role).rows);
  };
  LODE_TRY(source.gate_bias, bias_of(Role::kExpertGateBias));
  LODE_TRY(source.up_bias, bias_of(Role::kExpertUpBias));
  LODE_TRY(source.down_bias, bias_of(Role::kExpertDownBias));
  return {};
}

Result<ExpertSource> bind_expert(BindContext& context, std::uint32_t layer, std::uint32_t expert) {
  const auto matrix_of = [&](Role role) -> Result<MatrixSource> {
    return bind_linear(context, module_name(context, role, layer, expert),
                       families::extents(context.spec, role));
  };
  ExpertSource source;
  LODE_TRY(source.gate, matrix_of(Role::kExpertGate));
  LODE_TRY(source.up, matrix_of(Role::kExpertUp));
  LODE_TRY(source.down, matrix_of(Role::kExpertDown));
  LODE_TRY_STATUS(bind_expert_biases(context, layer, expert, source));
  return source;
}

// Records of a layer's experts have one shape, so that their numbers must have one encoding.
Status check_same_encoding(const BindContext& context, std::uint32_t layer, std::uint32_t expert,
                           const ExpertSource& source, const ExpertSource& first) {
  const bool gate = source.gate.encoding == first.gate.encoding;
  const bool up = source.up.encoding == first.gate.encoding;
  if (gate && up && source.down.encoding == first.down.encoding) return {};
  const Role role = !gate ? Role::kExpertGate : !up ? Role::kExpertUp : Role::kExpertDown;
  return Error{.code = Code::kUnsupported,
               .thing = module_name(context, role, layer, expert),
               .wanted = "the number format of expert 0, the same for gate and up",
               .found = "another one"};
}

Result<std::vector<ExpertSource>> bind_numbered(BindContext& context, std::uint32_t layer) {
  std::vector<ExpertSource> experts;
  for (std::uint32_t expert = 0; expert < context.spec.router.num_experts; ++expert) {
    LODE_TRY(ExpertSource source, bind_expert(context, layer, expert));
    experts.push_back(source);
    LODE_TRY_STATUS(check_same_encoding(context, layer, expert, source, experts.front()));
  }
  experts.shrink_to_fit();
  return experts;
}

}  // namespace

Result<std::vector<ExpertSource>> bind_experts(BindContext& context, std::uint32_t layer) {
  const StackNames names = stack_names(context, layer);
  const TensorRecord* const numbered = any_numbered(context, layer);
  const TensorRecord* const fused = any_under(context, names.gate_up);
  const TensorRecord* const apart = any_under(context, names.gate);
  const TensorRecord* seen = nullptr;
  for (const TensorRecord* way : {numbered, fused, apart}) {
    if (way == nullptr) continue;
    if (seen != nullptr) {
      return misfit(context.index, *way, "experts kept in one way",
                    "the file also has " + checkpoint::printable(seen->name));
    }
    seen = way;
  }
  const bool stacked = fused != nullptr || (numbered == nullptr && any_under(context, names.down));
  if (apart != nullptr) return bind_apart(context, names);
  if (stacked) return bind_fused(context, names);
  if (numbered != nullptr) {
    LODE_TRY_STATUS(refuse_halves(context, *numbered));
  }
  return bind_numbered(context, layer);
}

}  // namespace lode::loader
