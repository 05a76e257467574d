#include "lode/loader/bind_context.h"

#include <array>
#include <cctype>

#include "lode/base/check.h"
#include "lode/checkpoint/linear_storage.h"

namespace lode::loader {
namespace {

using checkpoint::TensorIndex;
using families::Role;

// What wrappers put before "layers", the commonest first. Source: checkpoints_models.md 2.8.
constexpr std::array<std::string_view, 4> kPrefixes{"model.", "model.language_model.",
                                                    "language_model.model.", ""};
const std::string kTensor = "tensor ";  // before names, as in the errors of checkpoint

constexpr std::array<std::string_view, 4> kHeadPrefixes{"", "language_model.", "model.",
                                                        "model.language_model."};

std::string find_prefix(const TensorIndex& index) {
  for (const std::string_view prefix : kPrefixes) {
    std::string start(prefix);
    if (!index.with_prefix(start + "layers.").empty()) return start;
    if (!index.with_prefix(start + "embed_tokens.").empty()) return start;
  }
  return std::string(kPrefixes.front());
}

std::string find_head(const TensorIndex& index, std::string_view module) {
  for (const std::string_view prefix : kHeadPrefixes) {
    std::string name = std::string(prefix) + std::string(module);
    if (checkpoint::has_linear(index, name)) return name;
  }
  return std::string(module);
}

void replace(std::string& text, std::string_view mark, std::uint32_t number) {
  const std::size_t at = text.find(mark);
  if (at != std::string::npos) text.replace(at, mark.size(), std::to_string(number));
}

std::string_view pattern_of(const families::Family& family, Role role) {
  for (const families::ModulePattern& pattern : family.modules) {
    if (pattern.role == role) return pattern.module;
  }
  LODE_CHECK(false, "a family whose spec has a role that its modules lack");
  return {};
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

Status TensorUse::take(const checkpoint::TensorRecord& tensor) {
  const auto position = static_cast<std::size_t>(&tensor - index_.tensors().data());
  LODE_CHECK(position < taken_.size(), "a tensor of another index");
  if (taken_[position]) return misfit(index_, tensor, "one role for each tensor");
  taken_[position] = true;
  return {};
}

void NoteBook::add(std::string sentence) {
  std::string key;
  for (const char c : sentence) {
    if (!is_digit(c)) {
      key += c;
    } else if (key.empty() || key.back() != '#') {
      key += '#';
    }
  }
  Entry& entry = entries_[key];
  if (entry.count == 0) entry.first = std::move(sentence);
  ++entry.count;
}

std::vector<std::string> NoteBook::lines() const {
  std::vector<std::string> lines;
  for (const auto& [key, entry] : entries_) {
    lines.push_back(entry.first);
    if (entry.count > 1) lines.back() += " (and " + std::to_string(entry.count - 1) + " like it)";
  }
  return lines;
}

BindContext make_context(const TensorIndex& index, const families::Family& family,
                         const families::ModelSpec& spec, const checkpoint::QuantConfig& quant) {
  return BindContext{.index = index,
                     .family = family,
                     .spec = spec,
                     .quant = quant,
                     .prefix = find_prefix(index),
                     .head_module = find_head(index, pattern_of(family, Role::kOutputHead)),
                     .use = TensorUse(index),
                     .notes = {}};
}

std::string module_name(const BindContext& context, Role role, std::uint32_t layer,
                        std::uint32_t expert) {
  if (role == Role::kOutputHead) return context.head_module;
  std::string name = context.prefix;
  name += pattern_of(context.family, role);
  replace(name, "{layer}", layer);
  replace(name, "{expert}", expert);
  return name;
}

Error misfit(const TensorIndex& index, const checkpoint::TensorRecord& tensor, std::string wanted,
             std::string hint) {
  return Error{.code = Code::kInvalidSource,
               .thing = kTensor + checkpoint::printable(tensor.name),
               .wanted = std::move(wanted),
               .found = checkpoint::describe(tensor),
               .where = index.shard_of(tensor).name,
               .hint = std::move(hint)};
}

Error with_file(const TensorIndex& index, Error error) {
  if (!error.where.empty() || error.thing.rfind(kTensor, 0) != 0) return error;
  const auto* const tensor = index.find(std::string_view(error.thing).substr(kTensor.size()));
  if (tensor != nullptr) error.where = index.shard_of(*tensor).name;
  return error;
}

}  // namespace lode::loader
