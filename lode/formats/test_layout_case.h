#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "lode/formats/dequantise.h"
#include "lode/formats/test_golden_reader.h"

namespace lode::formats::golden {

// For tests only.

using Bytes = std::vector<std::byte>;

inline std::vector<float> as_floats(const Bytes& bytes, Format format = Format::kF32) {
  std::vector<float> out(bytes.size() / (info(format).bits / 8));
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = number_at(format, bytes, i);
  return out;
}

/// A file of tests/golden/weight_layouts.
struct LayoutCase {
  explicit LayoutCase(const std::string& name)
      : file(read_file("weight_layouts/" + name + ".safetensors")) {}
  Bytes bytes(std::string_view name) const { return tensor_bytes(file, name); }
  std::vector<float> floats(std::string_view name) const { return as_floats(bytes(name)); }

  std::string file;
};

inline std::size_t differing(const Bytes& a, const Bytes& b) {
  if (a.size() != b.size()) return a.size() + b.size();
  std::size_t count = 0;
  for (std::size_t i = 0; i < a.size(); ++i) count += a[i] != b[i] ? 1 : 0;
  return count;
}

}  // namespace lode::formats::golden
