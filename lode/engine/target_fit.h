#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lode/loader/binding.h"
#include "lode/targets/target.h"

namespace lode::engine {

/// Whether a checkpoint can go to a target.
struct TargetFit {
  targets::Target target{};
  std::string reason{};  // why not, with the first layer that cannot; empty: it can
  std::string brief{};   // the same in a few words
  std::string
      online{};  // the `--online` schemes that make it possible: "mxfp4, nvfp4"; mostly none

  bool possible() const { return reason.empty(); }
};

/// Every target, in the order of its table: `binding` itself is what the cpu asks for. Reads
/// nothing; what a preparation finds in the bytes may still stop it.
std::vector<TargetFit> target_fits(const loader::Binding& binding);

}  // namespace lode::engine
