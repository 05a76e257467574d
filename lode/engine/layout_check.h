#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lode/base/result.h"
#include "lode/engine/layout_manifest.h"
#include "lode/targets/functions.h"

namespace lode::engine {

/// The first place where what we computed is not what the manifest's file has.
struct LayoutDifference {
  std::string tensor;        // "w13"
  targets::Way way{};        // which of the ways
  std::uint64_t offset = 0;  // of the first byte that differs; 0 where the shapes do
  std::string wanted;        // "0x3e", or "F32 [2, 64]"
  std::string found;
};

enum class CaseState : std::uint8_t {
  kEqual,
  kDiffers,
  kNotCovered,  // no function of ours computes this, or it has names that ours does not know
  kFault,       // the file is missing or damaged, or the function refused it
};
std::string_view name(CaseState state) noexcept;

struct CaseVerdict {
  std::string name;
  std::string function;  // ours, where it is covered
  CaseState state = CaseState::kNotCovered;
  bool informative = false;        // shown, not counted as a failure
  std::vector<targets::Way> ways;  // those that were compared
  // Params and inputs that ours does not know and has not looked at: an equal case is equal all the
  // same, one that differs is not covered.
  std::vector<std::string> unknown;
  std::optional<LayoutDifference> difference;
  std::optional<Error> fault;
  // Of a case with a marked defect of upstream: upstream's own tensors that differ from the right
  // ones.
  std::vector<std::string> defect_in;
};

struct LayoutVerdict {
  std::vector<CaseVerdict> cases;  // in the manifest's order

  std::uint64_t count(CaseState state) const noexcept;
  /// Those that differ or have a fault, informative ones left aside.
  std::uint64_t failures() const noexcept;
};

struct LayoutCheck {
  std::filesystem::path manifest;
  std::filesystem::path out;    // folder for what was computed, `<case>.safetensors`; empty: none
  std::function<bool()> go_on;  // asked before each case; empty: always
};

/// Runs every case of a manifest through our function of the same meaning, in each of its ways, and
/// compares bytes, dtypes and shapes. A case by itself can not stop the others.
///
/// Where the manifest marks a defect of upstream and gives right_x beside x, our x must be right_x.
///
/// Errors: those of the manifest, kIo where `out` cannot be made or written, kUsage where it is the
///         manifest's own folder, kInterrupted.
/// Memory: the tensors of the largest case: inputs, wanted and computed ones.
Result<LayoutVerdict> check_layouts(const LayoutCheck& check);

}  // namespace lode::engine
