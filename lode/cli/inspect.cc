#include <cstdio>
#include <filesystem>
#include <memory>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/cli/choice_view.h"
#include "lode/cli/inspect_export.h"
#include "lode/cli/program.h"
#include "lode/cli/table.h"
#include "lode/engine/inventory.h"
#include "lode/engine/source.h"
#include "lode/engine/target_fit.h"
#include "lode/json/json.h"
#include "lode/prepared/checkpoint.h"
#include "lode/prepared/consume.h"
#include "lode/prepared/export_folder.h"

namespace lode::cli {
namespace {

// Everything is looked at even when a later step fails: a doctor does not stop at the first
// symptom.
struct Findings {
  checkpoint::TensorIndex index;
  bool has_tokenizer = false;
  Result<checkpoint::HfConfig> config = Error{};
  Result<checkpoint::QuantConfig> quant = Error{};
  Result<const families::Family*> family = Error{};
  Result<families::ModelSpec> spec = Error{};
  Result<loader::Binding> binding = Error{};
  Status whole{};  // not given away in part (--consume)

  const Error* fault() const {
    if (!whole) return &whole.error();
    if (!config) return &config.error();
    if (!quant) return &quant.error();
    if (!family) return &family.error();
    if (!spec) return &spec.error();
    if (!binding) return &binding.error();
    return nullptr;
  }
};

// Why the tensors are not those of `family`; empty where they are.
std::string misfit(const Findings& found, const families::Family& family) {
  const auto spec = family.read_spec(*found.config);
  if (!spec) return to_string(spec.error());
  const auto binding = loader::bind(found.index, family, *spec, *found.quant);
  return binding ? std::string() : to_string(binding.error());
}

struct Candidate {
  std::string family;
  std::string fault;  // empty: every tensor has a role
};

// For a checkpoint that names no family we know: which of ours its tensors would fit.
std::vector<Candidate> candidates(const Findings& found) {
  std::vector<Candidate> list;
  if (!found.config || !found.quant || found.family) return list;
  for (const families::Family* family : families::all_families()) {
    list.push_back({std::string(family->model_type), misfit(found, *family)});
  }
  return list;
}

// Where the parts of a checkpoint contradict each other, or say what nobody asked.
std::vector<std::string> notes_of(const Findings& found) {
  const auto& tensors = found.index.notes();
  std::vector<std::string> notes(tensors.begin(), tensors.end());
  if (found.quant) notes.insert(notes.end(), found.quant->notes.begin(), found.quant->notes.end());
  if (found.binding) {
    notes.insert(notes.end(), found.binding->notes.begin(), found.binding->notes.end());
  }
  if (!found.has_tokenizer) {
    notes.emplace_back("there is no tokenizer.json: `logits` can do without, `run` cannot");
  }
  return notes;
}

json::Value strings(const std::vector<std::string>& lines) {
  json::Array list;
  for (const std::string& line : lines) list.emplace_back(line);
  return json::Value(std::move(list));
}

json::Value as_json(const std::vector<Candidate>& candidates) {
  json::Array list;
  for (const Candidate& candidate : candidates) {
    const bool fits = candidate.fault.empty();
    list.push_back(json::object({{"family", candidate.family},
                                 {"fits", fits},
                                 {"fault", fits ? json::Value() : json::Value(candidate.fault)}}));
  }
  return json::Value(std::move(list));
}

// What the checkpoint can be prepared for; where it is not understood, no target can tell why not.
std::vector<engine::TargetFit> targets_of(const Findings& found) {
  if (found.binding && found.whole) return engine::target_fits(*found.binding);
  std::vector<engine::TargetFit> fits;
  for (const targets::TargetInfo& info : targets::target_table()) {
    fits.push_back({.target = info.target, .reason = to_string(*found.fault())});
  }
  return fits;
}

json::Value as_json(const std::vector<engine::TargetFit>& fits) {
  json::Array list;
  for (const engine::TargetFit& fit : fits) {
    list.push_back(
        json::object({{"name", targets::name(fit.target)},
                      {"possible", fit.possible()},
                      {"reason", fit.possible() ? json::Value() : json::Value(fit.reason)},
                      {"online", fit.online.empty() ? json::Value() : json::Value(fit.online)}}));
  }
  return json::Value(std::move(list));
}

Result<Findings> examine(const std::filesystem::path& folder) {
  LODE_TRY_STATUS(engine::check_folder(folder));
  LODE_TRY(checkpoint::TensorIndex index, checkpoint::open_index(folder));
  Findings found{.index = std::move(index)};
  found.has_tokenizer = engine::has_tokenizer(folder);
  found.whole = prepared::check_not_given_away(folder, {});
  found.config = checkpoint::HfConfig::read(folder);
  if (!found.config) return found;
  found.quant = checkpoint::read_quant_config(folder, *found.config);
  found.family = families::find_family(*found.config);
  if (!found.quant || !found.family) return found;
  found.spec = (*found.family)->read_spec(*found.config);
  if (!found.spec) return found;
  found.binding = loader::bind(found.index, **found.family, *found.spec, *found.quant);
  return found;
}

json::Value as_json(const Findings& found) {
  json::Array dtypes;
  for (const engine::DtypeShare& share : engine::dtype_shares(found.index)) {
    dtypes.push_back(json::object(
        {{"dtype", share.dtype}, {"tensors", share.num_tensors}, {"bytes", share.bytes}}));
  }
  json::Array roles;
  if (found.binding) {
    for (const engine::RoleShare& share : engine::role_shares(*found.binding)) {
      roles.push_back(json::object({{"role", families::name(share.role)},
                                    {"format", share.format},
                                    {"weights", share.num_weights},
                                    {"bytes", share.bytes}}));
    }
  }
  const Error* const fault = found.fault();
  return json::object(
      {{"shards", static_cast<std::uint64_t>(found.index.shards().size())},
       {"tensors", static_cast<std::uint64_t>(found.index.tensors().size())},
       {"bytes", found.index.tensor_bytes()},
       {"architecture", found.config ? json::Value(found.config->architecture()) : json::Value()},
       {"family", found.family ? json::Value((*found.family)->model_type) : json::Value()},
       {"quantisation", found.quant ? json::Value(found.quant->algorithm) : json::Value()},
       {"dtypes", std::move(dtypes)},
       {"roles", std::move(roles)},
       {"ignored", found.binding ? strings(found.binding->ignored) : json::Value(json::Array{})},
       {"notes", strings(notes_of(found))},
       {"would_fit", as_json(candidates(found))},
       {"targets", as_json(targets_of(found))},
       {"runs_on_cpu", fault == nullptr},
       {"fault", fault == nullptr ? json::Value() : json::Value(to_string(*fault))}});
}

void print_dtypes(const Findings& found) {
  Table table({"dtype", "tensors", "bytes", ""}, {1, 2});
  for (const engine::DtypeShare& share : engine::dtype_shares(found.index)) {
    table.add({checkpoint::printable(share.dtype), fmt::format("{}", share.num_tensors),
               fmt::format("{}", share.bytes), human_bytes(share.bytes)});
  }
  fmt::print("{}\n", table.text());
}

void print_roles(const Findings& found) {
  Table table({"role", "format", "weights", "bytes", ""}, {2, 3});
  for (const engine::RoleShare& share : engine::role_shares(*found.binding)) {
    table.add({std::string(families::name(share.role)), share.format,
               fmt::format("{}", share.num_weights), fmt::format("{}", share.bytes),
               human_bytes(share.bytes)});
  }
  fmt::print("{}\n", table.text());
}

void print_targets(const Findings& found) {
  if (!found.binding || !found.whole) return;  // the one fault is said at the end
  Table table({"targets", "", ""});
  for (const engine::TargetFit& fit : engine::target_fits(*found.binding)) {
    table.add({std::string(targets::name(fit.target)), fit.possible() ? "yes" : "no", fit.brief});
    if (!fit.online.empty()) table.add({"", "", "or --online with " + fit.online});
  }
  fmt::print("\n{}", table.text());
}

void print_text(const Findings& found) {
  fmt::print("files     {}, {}, {}\n", count_of(found.index.shards().size(), "shard"),
             count_of(found.index.tensors().size(), "tensor"),
             human_bytes(found.index.tensor_bytes()));
  if (found.config) {
    fmt::print("config    {} ({})\n", checkpoint::printable(found.config->architecture()),
               checkpoint::printable(found.config->model_type()));
  }
  if (found.quant && !found.quant->algorithm.empty()) {
    fmt::print("quantised {} ({})\n", checkpoint::printable(found.quant->algorithm),
               checkpoint::info(found.quant->dialect).quant_method);
  }
  fmt::print("\n");
  print_dtypes(found);
  if (found.binding) print_roles(found);
  for (const std::string& note : notes_of(found)) fmt::print("note      {}\n", note);
  for (const Candidate& candidate : candidates(found)) {
    fmt::print("as {:<18} {}\n", candidate.family,
               candidate.fault.empty()
                   ? "every tensor would have its role; the arithmetic may differ"
                   : candidate.fault);
  }
  if (found.binding) {
    for (const std::string& line : found.binding->ignored) fmt::print("ignored   {}\n", line);
    fmt::print("family    {}: every tensor has its role{}\n", (*found.family)->model_type,
               found.whole ? "; runs on target cpu" : "");
  }
  print_targets(found);
}

// Whether it has the experts of one rank only.
bool is_part(const prepared::Checkpoint& checkpoint) {
  return !checkpoint.index.choice.experts.empty();
}

json::Value as_json(const prepared::Checkpoint& checkpoint) {
  const prepared::Manifest& manifest = checkpoint.manifest;
  json::Array sources;
  for (const prepared::SourceShard& source : manifest.sources) {
    sources.push_back(json::object({{"name", source.name}, {"bytes", source.bytes}}));
  }
  json::Object all{{"prepared_for", manifest.target},
                   {"format_version", std::int64_t{manifest.format_version}},
                   {"family", manifest.family},
                   {"dense", manifest.dense},
                   {"bytes", checkpoint.data_bytes()},
                   {"files", static_cast<std::uint64_t>(checkpoint.files.size())},
                   {"stages", static_cast<std::uint64_t>(checkpoint.index.stages.size())},
                   {"sections", static_cast<std::uint64_t>(checkpoint.index.sections.size())},
                   {"chunks", checkpoint.index.num_chunks()},
                   {"sources", std::move(sources)},
                   {"runs_on_cpu", !is_part(checkpoint)}};
  for (json::Member& member : choice_members(checkpoint.index.choice)) {
    all.push_back(std::move(member));
  }
  return json::Value(std::move(all));
}

void print_text(const prepared::Checkpoint& checkpoint) {
  const prepared::Manifest& manifest = checkpoint.manifest;
  fmt::print("prepared  for target {}, layout {} version {}, matrices outside the experts {}\n",
             manifest.target, manifest.layout.kernel_family, manifest.layout.version,
             manifest.dense);
  fmt::print("family    {}: {}\n", checkpoint::printable(manifest.family),
             count_of(checkpoint.index.stages.size() - 1, "layer"));
  fmt::print(
      "files     {} with {} in chunks of 2 MiB, {}\n", count_of(checkpoint.files.size(), "file"),
      count_of(checkpoint.index.sections.size(), "section"), human_bytes(checkpoint.data_bytes()));
  if (!checkpoint.index.choice.is_cpu()) fmt::print("{}", choice_text(checkpoint.index.choice));
  if (is_part(checkpoint)) fmt::print("runs      not here: experts are missing\n");
  for (const prepared::SourceShard& source : manifest.sources) {
    fmt::print("made of   {}, {}\n", source.name, human_bytes(source.bytes));
  }
}

// Opened as a run opens it, where it can run.
Result<prepared::Checkpoint> open_prepared(const std::filesystem::path& folder) {
  LODE_TRY(const prepared::Checkpoint head, prepared::read_head(folder));
  if (is_part(head)) return prepared::open(folder, prepared::Verification::kHeader);
  LODE_TRY(engine::Source source, engine::open_source(folder));
  return *std::move(source.prepared);
}

Status inspect_prepared(const std::filesystem::path& folder, bool json) {
  LODE_TRY(const prepared::Checkpoint checkpoint, open_prepared(folder));
  if (json) {
    fmt::print("{}\n", json::dump(as_json(checkpoint), 2));
  } else {
    print_text(checkpoint);
  }
  return {};
}

Status inspect(const std::filesystem::path& folder, bool json) {
  if (prepared::is_prepared(folder)) return inspect_prepared(folder, json);
  if (prepared::is_export(folder)) return inspect_export(folder, json);
  LODE_TRY(const Findings found, examine(folder));
  if (json) {
    fmt::print("{}\n", json::dump(as_json(found), 2));
  } else {
    print_text(found);
  }
  if (found.fault() != nullptr) return *found.fault();
  return {};
}

}  // namespace

void add_inspect(Program& program) {
  CLI::App* const command =
      add_command(program, "inspect",
                  "What a checkpoint really contains: bytes per dtype and role, contradictions, "
                  "which family fits, which targets it can go to. Reads headers only.",
                  "  lode inspect ~/models/Qwen3-30B-A3B-NVFP4\n  lode inspect DIR --json\n");
  const auto folder = std::make_shared<std::string>();
  const auto json = std::make_shared<bool>(false);
  command
      ->add_option("DIR", *folder,
                   "Hugging Face folder, or one that `lode prepare` made, exports too")
      ->required();
  command->add_flag("--json", *json, "Print JSON");
  command->callback([&program, folder, json] {
    program.chosen = [folder, json] { return inspect(*folder, *json); };
  });
}

}  // namespace lode::cli
