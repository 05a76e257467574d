#include "lode/engine/layout_check.h"

#include <algorithm>
#include <array>
#include <utility>

#include "lode/base/fmt.h"
#include "lode/engine/layout_apply.h"
#include "lode/targets/function_values.h"

namespace lode::engine {
namespace {

using targets::NamedTensor;
using targets::Way;

constexpr std::string_view kRight = "right_";
constexpr std::string_view kOutPrefix = "out.";
// What manifests say of a case in words, for people.
constexpr std::array<std::string_view, 4> kRemarks{"notes", "columns", "granularity",
                                                   "source_order"};

struct CaseFiles {
  std::vector<NamedTensor> inputs;
  std::vector<NamedTensor> wanted;
};

std::vector<TensorChoice> choices(const std::vector<CaseTensor>& tensors) {
  std::vector<TensorChoice> chosen;
  chosen.reserve(tensors.size());
  for (const CaseTensor& tensor : tensors) chosen.push_back({tensor.name, tensor.stored});
  return chosen;
}

// The file has what the manifest says of it.
Status check_said(const std::vector<CaseTensor>& said, const std::vector<NamedTensor>& read) {
  for (std::size_t i = 0; i < said.size(); ++i) {
    const NamedTensor& tensor = read[i];
    const formats::Format dtype = said[i].dtype.value_or(tensor.dtype);
    const std::vector<std::uint64_t>& shape = said[i].shape ? *said[i].shape : tensor.shape;
    if (dtype == tensor.dtype && shape == tensor.shape) continue;
    return Error{
        .code = Code::kInvalidSource,
        .thing = fmt::format("tensor {}", said[i].stored),
        .wanted = fmt::format("{} {} as the manifest says", formats::info(dtype).safetensors_name,
                              targets::shape_text(shape)),
        .found = targets::describe(tensor)};
  }
  return {};
}

Result<CaseFiles> read_case(const LayoutCase& one, const std::filesystem::path& file) {
  CaseFiles files;
  LODE_TRY(files.inputs, read_named_tensors(file, choices(one.inputs)));
  LODE_TRY_STATUS(check_said(one.inputs, files.inputs));
  LODE_TRY(files.wanted, read_named_tensors(file, choices(one.outputs)));
  LODE_TRY_STATUS(check_said(one.outputs, files.wanted));
  return files;
}

std::optional<LayoutDifference> difference_of(const NamedTensor& wanted, const NamedTensor* found,
                                              Way way) {
  LayoutDifference difference{.tensor = wanted.name, .way = way, .wanted = {}, .found = {}};
  if (found == nullptr || found->dtype != wanted.dtype || found->shape != wanted.shape) {
    difference.wanted = targets::describe(wanted);
    difference.found = found == nullptr ? "no such tensor" : targets::describe(*found);
    return difference;
  }
  const auto [at, other] = std::ranges::mismatch(wanted.bytes, found->bytes);
  if (at == wanted.bytes.end() && other == found->bytes.end()) return std::nullopt;
  const auto hex = [](std::byte byte) {
    return fmt::format("0x{:02x}", std::to_integer<unsigned>(byte));
  };
  difference.offset = static_cast<std::uint64_t>(at - wanted.bytes.begin());
  difference.wanted = at == wanted.bytes.end() ? "the end" : hex(*at);
  difference.found = other == found->bytes.end() ? "the end" : hex(*other);
  return difference;
}

// Ours under the manifest's name: its right_x is our x.
const NamedTensor* ours(const std::vector<NamedTensor>& computed, const LayoutCase& one,
                        std::string_view name) {
  const NamedTensor* const same = targets::find(computed, name);
  if (same != nullptr || !one.upstream_defect || !name.starts_with(kRight)) return same;
  return targets::find(computed, name.substr(kRight.size()));
}

bool has_right_one(const LayoutCase& one, const std::vector<NamedTensor>& wanted,
                   std::string_view name) {
  return one.upstream_defect && targets::find(wanted, std::string(kRight) + std::string(name));
}

std::vector<std::string> unknown_names(const LayoutCase& one, const targets::Function& function) {
  std::vector<std::string> unknown;
  for (const json::Member& param : *one.params.as_object()) {
    const bool remark = std::ranges::find(kRemarks, param.first) != kRemarks.end();
    if (!remark && !targets::takes_param(function, param.first))
      unknown.push_back("param " + param.first);
  }
  for (const CaseTensor& input : one.inputs) {
    if (!targets::takes_input(function, input.name)) unknown.push_back("tensor " + input.name);
  }
  return unknown;
}

class CaseCheck {
 public:
  CaseCheck(const LayoutCase& one, const targets::Function& function, const CaseFiles& files)
      : one_(one), function_(function), files_(files) {
    verdict_.name = one.name;
    verdict_.function = function.name;
    verdict_.informative = one.informative;
    verdict_.state = CaseState::kEqual;
    verdict_.unknown = unknown_names(one, function);
  }

  CaseVerdict run() {
    for (const Way way : {Way::kOutOfPlace, Way::kInPlace, Way::kStreamed}) {
      if (way == Way::kInPlace && !function_.has_in_place) continue;
      run(way);
      if (verdict_.state != CaseState::kEqual) break;
    }
    if (verdict_.state == CaseState::kDiffers && !verdict_.unknown.empty())
      verdict_.state = CaseState::kNotCovered;
    return std::move(verdict_);
  }
  /// What the first way gave.
  const std::vector<NamedTensor>& computed() const { return computed_; }

 private:
  void run(Way way) {
    auto made = function_.run({files_.inputs, one_.params, way});
    if (!made) {
      verdict_.state = CaseState::kFault;
      verdict_.fault = std::move(made).error();
      return;
    }
    verdict_.ways.push_back(way);
    compare(*made, way);
    if (way == Way::kOutOfPlace) computed_ = *std::move(made);
  }
  void compare(const std::vector<NamedTensor>& made, Way way) {
    verdict_.defect_in.clear();
    for (const NamedTensor& wanted : files_.wanted) {
      auto difference = difference_of(wanted, ours(made, one_, wanted.name), way);
      if (!difference) continue;
      if (has_right_one(one_, files_.wanted, wanted.name)) {
        verdict_.defect_in.push_back(wanted.name);
        continue;
      }
      verdict_.state = CaseState::kDiffers;
      verdict_.difference = std::move(difference);
      return;
    }
  }

  const LayoutCase& one_;
  const targets::Function& function_;
  const CaseFiles& files_;
  std::vector<NamedTensor> computed_;
  CaseVerdict verdict_;
};

CaseVerdict not_covered(const LayoutCase& one) {
  CaseVerdict verdict;
  verdict.name = one.name;
  verdict.informative = one.informative;
  return verdict;
}

CaseVerdict faulty(const LayoutCase& one, Error error) {
  CaseVerdict verdict;
  verdict.name = one.name;
  verdict.state = CaseState::kFault;
  verdict.fault = std::move(error);
  return verdict;
}

// Under the manifest's names, in its order; what it has no name for is left away.
Status write_computed(const LayoutCase& one, const std::vector<NamedTensor>& computed,
                      const std::filesystem::path& folder, const std::filesystem::path& source) {
  std::vector<NamedTensor> written;
  for (const CaseTensor& output : one.outputs) {
    const NamedTensor* const tensor = ours(computed, one, output.name);
    if (tensor == nullptr) continue;
    written.push_back(*tensor);
    written.back().name = output.name;
  }
  return write_named_tensors(folder / (one.name + ".safetensors"), kOutPrefix, written, source);
}

Result<CaseVerdict> check_case(const LayoutCase& one, const LayoutCheck& check,
                               const std::filesystem::path& folder) {
  const targets::Function* const function = targets::function_by_name(one.function);
  const std::filesystem::path file = folder / one.file;
  auto files = read_case(one, file);
  if (!files) return faulty(one, at(file.string(), std::move(files).error()));
  if (function == nullptr) return not_covered(one);
  CaseCheck checked(one, *function, *files);
  CaseVerdict verdict = checked.run();
  if (!check.out.empty() && !checked.computed().empty())
    LODE_TRY_STATUS(write_computed(one, checked.computed(), check.out, file));
  return verdict;
}

Status make_folder(const LayoutCheck& check) {
  if (check.out.empty()) return {};
  std::error_code fault;
  std::filesystem::create_directories(check.out, fault);
  if (!std::filesystem::is_directory(check.out)) {
    return Error{.code = Code::kIo,
                 .thing = check.out.string(),
                 .wanted = "a folder to write into",
                 .found = fault ? fault.message() : "a file"};
  }
  const std::filesystem::path manifest = std::filesystem::absolute(check.manifest);
  if (!std::filesystem::equivalent(check.out, manifest.parent_path(), fault)) return {};
  return Error{.code = Code::kUsage,
               .thing = check.out.string(),
               .wanted = "another folder than the manifest's"};
}

}  // namespace

std::string_view name(CaseState state) noexcept {
  constexpr std::array<std::string_view, 4> kNames{"equal", "differs", "not covered", "fault"};
  return kNames[static_cast<std::size_t>(state)];
}

std::uint64_t LayoutVerdict::count(CaseState state) const noexcept {
  return static_cast<std::uint64_t>(std::ranges::count(cases, state, &CaseVerdict::state));
}

std::uint64_t LayoutVerdict::failures() const noexcept {
  return static_cast<std::uint64_t>(std::ranges::count_if(cases, [](const CaseVerdict& verdict) {
    if (verdict.state == CaseState::kFault) return true;
    return verdict.state == CaseState::kDiffers && !verdict.informative;
  }));
}

Result<LayoutVerdict> check_layouts(const LayoutCheck& check) {
  LODE_TRY(const LayoutManifest manifest, read_layout_manifest(check.manifest));
  LODE_TRY_STATUS(make_folder(check));
  LayoutVerdict verdict;
  for (const LayoutCase& one : manifest.cases) {
    if (check.go_on && !check.go_on()) {
      return Error{.code = Code::kInterrupted,
                   .thing = "checking " + check.manifest.string(),
                   .found = fmt::format("stopped after {} of {} cases", verdict.cases.size(),
                                        manifest.cases.size())};
    }
    LODE_TRY(CaseVerdict checked, check_case(one, check, manifest.folder));
    verdict.cases.push_back(std::move(checked));
  }
  return verdict;
}

}  // namespace lode::engine
