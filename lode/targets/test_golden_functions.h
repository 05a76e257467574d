#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "lode/layout/test_golden_case.h"
#include "lode/targets/function_lists.h"

// For tests only: the golden cases that functions of ours stand for.

namespace lode::targets::testing {

inline json::Value read_manifest() {
  std::ifstream stream(LODE_GOLDEN_DIR "/weight_layouts/manifest.json");
  const std::string text(std::istreambuf_iterator<char>(stream), {});
  auto manifest = json::parse(text);
  EXPECT_TRUE(manifest);
  return manifest ? *std::move(manifest) : json::Value();
}

inline std::string text_of(const json::Value& object, std::string_view name) {
  const json::Value* const member = object.find(name);
  return member == nullptr || member->as_string() == nullptr ? "" : *member->as_string();
}

/// Tensors "inputs" or "outputs" of a case with their bytes.
inline std::vector<NamedTensor> tensors_of(const json::Value& one, std::string_view which) {
  const layout::testing::GoldenCase golden(text_of(one, "name"));
  std::vector<NamedTensor> tensors;
  for (const auto& [name, entry] : *one.find(which)->as_object()) {
    NamedTensor tensor{name, *formats::format_by_safetensors_name(text_of(entry, "dtype")), {}, {}};
    for (const json::Value& extent : *entry.find("shape")->as_array()) {
      tensor.shape.push_back(static_cast<std::uint64_t>(*extent.as_int()));
    }
    tensor.bytes = golden.bytes(text_of(entry, "tensor"));
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

/// How the tensors that a case wants differ from those that are there; of a case with a defect of
/// upstream only right_* are wanted.
inline std::string differences(const json::Value& one, std::span<const NamedTensor> found) {
  const bool defect = one.find("upstream_defect") != nullptr;
  std::string text;
  for (const NamedTensor& wanted : tensors_of(one, "outputs")) {
    if (defect && !wanted.name.starts_with("right_")) continue;
    const NamedTensor* const tensor = find(found, wanted.name);
    if (tensor == nullptr) {
      text += wanted.name + " is not there; ";
      continue;
    }
    if (tensor->dtype != wanted.dtype) text += wanted.name + " has another dtype; ";
    if (tensor->shape != wanted.shape) text += wanted.name + " has another shape; ";
    const auto [at, other] = std::ranges::mismatch(wanted.bytes, tensor->bytes);
    if (at != wanted.bytes.end() || other != tensor->bytes.end()) {
      text += wanted.name + " differs at byte " + std::to_string(at - wanted.bytes.begin()) + "; ";
    }
  }
  return text;
}

/// Runs every case that the functions stand for in all ways. Returns how many there were.
inline std::size_t check_cases(std::span<const Function> functions) {
  const json::Value manifest = read_manifest();
  std::size_t count = 0;
  for (const json::Value& one : *manifest.find("cases")->as_array()) {
    const std::string upstream = text_of(one, "function");
    const auto function = std::ranges::find_if(functions, [&](const Function& one_of) {
      return std::ranges::find(one_of.upstream, upstream) != one_of.upstream.end();
    });
    if (function == functions.end()) continue;
    ++count;
    const std::vector<NamedTensor> inputs = tensors_of(one, "inputs");
    for (const Way way : {Way::kOutOfPlace, Way::kInPlace, Way::kStreamed}) {
      const auto outputs = function->run({inputs, *one.find("params"), way});
      EXPECT_TRUE(outputs) << text_of(one, "name") << ": " << to_string(outputs.error());
      if (outputs) {
        EXPECT_EQ(differences(one, *outputs), "") << text_of(one, "name");
      }
    }
  }
  return count;
}

}  // namespace lode::targets::testing
