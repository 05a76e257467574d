#include "lode/engine/layout_apply.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/checkpoint/safetensors_writer.h"
#include "lode/checkpoint/tensor_index.h"
#include "lode/memory/budget.h"
#include "lode/targets/function_values.h"

namespace lode::engine {
namespace {

using checkpoint::TensorIndex;
using checkpoint::TensorRecord;
using targets::NamedTensor;

constexpr std::string_view kInPrefix = "in.";
constexpr std::string_view kOutPrefix = "out.";

Status check_memory(const std::filesystem::path& file, std::uint64_t bytes) {
  LODE_TRY(const memory::MachineMemory machine, memory::read_machine_memory());
  const std::uint64_t most =
      memory::decide_budget(machine, std::nullopt).limit_bytes / kMemoryShare;
  if (bytes <= most) return {};
  return Error{.code = Code::kOverBudget,
               .thing = file.string(),
               .wanted = fmt::format("tensors of at most {}, a third of the memory that is left",
                                     human_bytes(most)),
               .found = human_bytes(bytes),
               .hint = "take a file of fewer tensors, one layer or one expert"};
}

Result<std::vector<const TensorRecord*>> records_of(const TensorIndex& index,
                                                    std::span<const TensorChoice> chosen) {
  std::vector<const TensorRecord*> records;
  for (const TensorChoice& choice : chosen) {
    LODE_TRY(const TensorRecord* const record, index.want(choice.stored));
    records.push_back(record);
  }
  return records;
}

std::vector<std::string> described(std::span<const NamedTensor> tensors) {
  std::vector<std::string> lines;
  for (const NamedTensor& tensor : tensors)
    lines.push_back(fmt::format("{} {}", tensor.name, targets::describe(tensor)));
  return lines;
}

// "a, b, c and 12 more": files may have thousands.
std::string few_of(std::span<const std::string> names) {
  constexpr std::size_t kFew = 6;
  if (names.empty()) return "no tensors";
  const auto few = names.first(std::min(names.size(), kFew));
  const std::string more =
      names.size() > kFew ? fmt::format(" and {} more", names.size() - kFew) : "";
  return fmt::format("{}{}", fmt::join(few, ", "), more);
}

std::uint64_t bytes_of(std::span<const NamedTensor> tensors) {
  std::uint64_t bytes = 0;
  for (const NamedTensor& tensor : tensors) bytes += tensor.bytes.size();
  return bytes;
}

// Those that the user named, all of which the function must take; or those of the file that it
// does.
Result<std::vector<TensorChoice>> choose(const LayoutApply& apply,
                                         const targets::Function& function,
                                         std::vector<std::string>& left_aside) {
  std::vector<std::string> names;
  for (const TensorChoice& choice : apply.chosen) names.push_back(choice.name);
  LODE_TRY_STATUS(targets::check_inputs(function, names));
  if (!apply.chosen.empty()) return apply.chosen;
  LODE_TRY(std::vector<TensorChoice> chosen, offered_tensors(apply.in));
  std::erase_if(chosen, [&](const TensorChoice& choice) {
    if (targets::takes_input(function, choice.name)) return false;
    left_aside.push_back(choice.stored);
    return true;
  });
  if (!chosen.empty()) return chosen;
  return Error{
      .code = Code::kInvalidSource,
      .thing = apply.in.string(),
      .wanted = fmt::format("tensor {}", function.inputs.front().name),
      .found = few_of(left_aside),
      .hint = fmt::format("--tensor {}=NAME_IN_THE_FILE takes one that is called otherwise",
                          function.inputs.front().name)};
}

}  // namespace

Result<std::vector<NamedTensor>> read_named_tensors(const std::filesystem::path& file,
                                                    std::span<const TensorChoice> chosen) {
  LODE_TRY(const TensorIndex index, checkpoint::open_file(file));
  LODE_TRY(const std::vector<const TensorRecord*> records, records_of(index, chosen));
  std::uint64_t bytes = 0;
  for (const TensorRecord* const record : records) bytes += record->bytes;
  LODE_TRY_STATUS(check_memory(file, bytes));
  std::vector<NamedTensor> tensors;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    LODE_TRY(std::vector<std::byte> content, checkpoint::read_tensor(index, *records[i]));
    tensors.push_back({chosen[i].name,
                       *records[i]->format,
                       {records[i]->dims.begin(), records[i]->dims.end()},
                       std::move(content)});
  }
  return tensors;
}

Result<std::vector<TensorChoice>> offered_tensors(const std::filesystem::path& file) {
  LODE_TRY(const TensorIndex index, checkpoint::open_file(file));
  std::vector<TensorChoice> chosen;
  for (const TensorRecord& record : index.with_prefix(kInPrefix))
    chosen.push_back({std::string(record.name.substr(kInPrefix.size())), std::string(record.name)});
  if (!chosen.empty()) return chosen;
  for (const TensorRecord& record : index.tensors())
    chosen.push_back({std::string(record.name), std::string(record.name)});
  return chosen;
}

Status write_named_tensors(const std::filesystem::path& file, std::string_view prefix,
                           std::span<const NamedTensor> tensors,
                           const std::filesystem::path& not_over) {
  std::error_code neither_exists;
  if (std::filesystem::equivalent(file, not_over, neither_exists)) {
    return Error{.code = Code::kUsage,
                 .thing = file.string(),
                 .wanted = "another file than the one that is read",
                 .found = not_over.string()};
  }
  std::vector<checkpoint::TensorToWrite> written;
  for (const NamedTensor& tensor : tensors)
    written.push_back(
        {std::string(prefix) + tensor.name, tensor.dtype, tensor.shape, tensor.bytes});
  return checkpoint::write_safetensors(file, written);
}

Result<Applied> apply_layout(const LayoutApply& apply) {
  LODE_TRY(const targets::Function* const function, targets::want_function(apply.function));
  LODE_TRY_STATUS(targets::check_params(*function, apply.params));
  std::vector<std::string> left_aside;
  LODE_TRY(const std::vector<TensorChoice> chosen, choose(apply, *function, left_aside));
  LODE_TRY(const std::vector<NamedTensor> inputs, read_named_tensors(apply.in, chosen));
  LODE_TRY(const std::vector<NamedTensor> outputs,
           function->run({inputs, json::Value(apply.params), apply.way}));
  const bool golden = std::ranges::any_of(
      chosen, [](const TensorChoice& choice) { return choice.stored.starts_with(kInPrefix); });
  LODE_TRY_STATUS(write_named_tensors(apply.out, golden ? kOutPrefix : "", outputs, apply.in));
  return Applied{.inputs = described(inputs),
                 .outputs = described(outputs),
                 .left_aside = std::move(left_aside),
                 .bytes_in = bytes_of(inputs),
                 .bytes_out = bytes_of(outputs)};
}

}  // namespace lode::engine
