#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lode/base/result.h"
#include "lode/formats/format.h"
#include "lode/json/json.h"

namespace lode::engine {

/// A tensor that a case names: where it is in the case's file and what it is, if the manifest says.
struct CaseTensor {
  std::string name;    // "w13"
  std::string stored;  // "in.w13"
  std::optional<formats::Format> dtype;
  std::optional<std::vector<std::uint64_t>> shape;
};

/// One case: tensors that went into a function of an engine and those that came out.
struct LayoutCase {
  std::string name;
  std::string file;      // a name in the manifest's folder, never a path
  std::string function;  // what made the outputs, in the manifest's words
  json::Value params;    // an object
  std::vector<CaseTensor> inputs;
  std::vector<CaseTensor> outputs;
  bool informative = false;      // its bytes may differ: shown, not counted
  bool upstream_defect = false;  // outputs right_* are what is right, where there are any
};

/// A manifest of golden cases, checked. Which function a case is of and with what params, it says
/// itself; nothing follows from its name.
struct LayoutManifest {
  std::filesystem::path folder;
  std::vector<LayoutCase> cases;
};

/// Reads a manifest (format 1). Members that we have no use for are left aside.
///
/// Errors: kInvalidSource naming the case and member: not JSON, another format, names that are
/// missing, given twice or lead out of the folder, no such dtype; kIo.
Result<LayoutManifest> read_layout_manifest(const std::filesystem::path& path);

/// The same out of text, for a manifest in `folder`.
///
/// Errors: as read_layout_manifest, without kIo.
Result<LayoutManifest> parse_layout_manifest(std::string_view text,
                                             const std::filesystem::path& folder);

}  // namespace lode::engine
