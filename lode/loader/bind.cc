#include <array>
#include <string>
#include <utility>

#include "lode/loader/bind_context.h"
#include "lode/loader/bind_experts.h"
#include "lode/loader/bind_leftovers.h"
#include "lode/loader/bind_matrix.h"
#include "lode/loader/binding.h"

namespace lode::loader {
namespace {

using families::Part;
using families::Role;

std::size_t slot(Role role) { return static_cast<std::size_t>(role); }

// Embedding and router are read by rows and kept plain.
bool must_be_plain(Role role) { return role == Role::kTokenEmbedding || role == Role::kRouter; }

Status bind_matrix_role(BindContext& context, Role role, std::uint32_t layer, RoleSources& into) {
  const std::string module = module_name(context, role, layer);
  LODE_TRY(MatrixSource source,
           bind_linear(context, module, families::extents(context.spec, role)));
  if (must_be_plain(role) && source.encoding.has_scale) {
    return Error{.code = Code::kUnsupported,
                 .thing = module + ".weight",
                 .wanted = "BF16, F16 or F32",
                 .found = std::string(formats::name(source.encoding)),
                 .where = context.index.shards()[source.codes.shard].name};
  }
  into.matrices[slot(role)] = source;
  return {};
}

Status bind_vector_role(BindContext& context, Role role, std::uint32_t layer, RoleSources& into) {
  std::string tensor = module_name(context, role, layer);
  const Part part = families::info(role).part;
  if (part == Part::kNormWeight) tensor += ".weight";
  if (part == Part::kBias) tensor += ".bias";
  LODE_TRY(into.vectors[slot(role)],
           bind_vector(context, tensor, families::extents(context.spec, role).rows));
  return {};
}

Status bind_role(BindContext& context, Role role, std::uint32_t layer, RoleSources& into) {
  return families::is_matrix(role) ? bind_matrix_role(context, role, layer, into)
                                   : bind_vector_role(context, role, layer, into);
}

// Gate and up of a dense MLP go into common panels.
Status check_dense_pair(const BindContext& context, std::uint32_t layer,
                        const RoleSources& sources) {
  const MatrixSource& gate = sources.matrices[slot(Role::kMlpGate)];
  const MatrixSource& up = sources.matrices[slot(Role::kMlpUp)];
  if (gate.encoding == up.encoding) return {};
  return Error{.code = Code::kUnsupported,
               .thing = module_name(context, Role::kMlpUp, layer),
               .wanted = std::string(formats::name(gate.encoding)) + ", as its gate",
               .found = std::string(formats::name(up.encoding))};
}

Status bind_layer(BindContext& context, std::uint32_t layer, RoleSources& into) {
  for (std::size_t row = 0; row < families::kNumRoles; ++row) {
    const auto role = static_cast<Role>(row);
    if (families::scope(role) != families::Scope::kLayer) continue;
    if (!families::has_role(context.spec, role, layer)) continue;
    LODE_TRY_STATUS(bind_role(context, role, layer, into));
  }
  return check_dense_pair(context, layer, into);
}

// A head in the file counts even where the config ties it: transformers does not tie what the file
// has twice with different values, and with equal values either is right.
Status bind_head(BindContext& context, RoleSources& into) {
  const bool in_file = checkpoint::has_linear(context.index, context.head_module);
  if (context.spec.tied_embeddings && !in_file) return {};
  if (context.spec.tied_embeddings) {
    context.notes.add("config.json ties the output head to the embedding, but the file has " +
                      context.head_module + ": it is used");
  }
  auto bound = bind_role(context, Role::kOutputHead, 0, into);
  if (bound || in_file) return bound;
  Error error = std::move(bound).error();
  error.hint += (error.hint.empty() ? "" : "; ");
  error.hint += "config.json does not tie the head to the embedding";
  return error;
}

template <class T>
std::uint64_t vector_bytes(const std::vector<T>& values) {
  return values.capacity() * sizeof(T);
}

}  // namespace

std::uint64_t Binding::held_bytes() const {
  std::uint64_t bytes = sizeof(Binding) + vector_bytes(layers) + vector_bytes(experts) +
                        vector_bytes(ignored) + vector_bytes(notes);
  for (const auto& layer : experts) bytes += vector_bytes(layer);
  for (const auto* lines : {&ignored, &notes}) {
    for (const std::string& line : *lines) bytes += line.capacity();
  }
  return bytes;
}

Result<Binding> bind(const checkpoint::TensorIndex& index, const families::Family& family,
                     const families::ModelSpec& spec, const checkpoint::QuantConfig& quant) {
  BindContext context = make_context(index, family, spec, quant);
  Binding binding;
  LODE_TRY_STATUS(bind_role(context, Role::kTokenEmbedding, 0, binding.model));
  LODE_TRY_STATUS(bind_role(context, Role::kFinalNorm, 0, binding.model));
  LODE_TRY_STATUS(bind_head(context, binding.model));
  for (std::uint32_t layer = 0; layer < spec.num_layers; ++layer) {
    // one at a time, so that a config cannot ask for more memory than its file has layers
    LODE_TRY_STATUS(bind_layer(context, layer, binding.layers.emplace_back()));
    binding.experts.emplace_back();
    if (!spec.layers[layer].moe) continue;
    LODE_TRY(binding.experts.back(), bind_experts(context, layer));
  }
  binding.layers.shrink_to_fit();
  LODE_TRY(binding.ignored, account_for_leftovers(context));
  binding.notes = context.notes.lines();
  return binding;
}

}  // namespace lode::loader
