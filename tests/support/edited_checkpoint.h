#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "lode/checkpoint/safetensors_writer.h"
#include "lode/checkpoint/tensor_index.h"
#include "tests/support/checkpoint_files.h"

namespace lode::testing_support {

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// A copy of a small checkpoint in memory, to be changed in one place and written to a folder that
/// goes away with it. For tests.
class EditedCheckpoint {
 public:
  struct Tensor {
    std::string name;
    formats::Format format{};
    std::vector<std::uint64_t> dims;
    std::vector<std::byte> bytes;
  };

  explicit EditedCheckpoint(const std::filesystem::path& source) {
    config = read_text(source / "config.json");
    hf_quant_config = read_text(source / "hf_quant_config.json");
    auto index = checkpoint::open_index(source);
    if (!index) return;  // the test fails at the first tensor that it looks for
    for (const checkpoint::TensorRecord& record : index->tensors()) {
      tensors.push_back({std::string(record.name),
                         *record.format,
                         {record.dims.begin(), record.dims.end()},
                         *checkpoint::read_tensor(*index, record)});
    }
  }
  EditedCheckpoint(const EditedCheckpoint&) = delete;
  EditedCheckpoint& operator=(const EditedCheckpoint&) = delete;
  Tensor& at(std::string_view name) {
    const auto found = std::find_if(tensors.begin(), tensors.end(),
                                    [&](const Tensor& tensor) { return tensor.name == name; });
    if (found != tensors.end()) return *found;
    ADD_FAILURE() << "no tensor " << name;
    return tensors.front();
  }
  void rename(std::string_view from, std::string to) { at(from).name = std::move(to); }
  void erase(std::string_view name) {
    const auto* tensor = &at(name);
    tensors.erase(tensors.begin() + (tensor - tensors.data()));
  }
  /// A tensor of zeros.
  void add(std::string name, formats::Format format, std::vector<std::uint64_t> dims) {
    std::uint64_t bits = formats::info(format).bits;
    for (const std::uint64_t dim : dims) bits *= dim;
    tensors.push_back({std::move(name), format, std::move(dims), std::vector<std::byte>(bits / 8)});
  }
  /// Puts `to` for the first `from` in config.json.
  void edit_config(std::string_view from, std::string_view to) {
    const std::size_t place = config.find(from);
    ASSERT_NE(place, std::string::npos) << "config.json has no " << from;
    config.replace(place, from.size(), to);
  }

  /// Writes it, the tensors dealt out to so many files, and says where.
  const std::filesystem::path& write(std::size_t num_shards = 1) {
    folder_.write("config.json", config);
    if (!hf_quant_config.empty()) folder_.write("hf_quant_config.json", hf_quant_config);
    std::vector<std::vector<checkpoint::TensorToWrite>> shards(num_shards);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const Tensor& tensor = tensors[i];
      shards[i % num_shards].push_back({tensor.name, tensor.format, tensor.dims, tensor.bytes});
    }
    for (std::size_t i = 0; i < num_shards; ++i) {
      const std::string name = num_shards == 1 ? "model" : "part-" + std::to_string(i);
      const auto written =
          checkpoint::write_safetensors(folder_.path() / (name + ".safetensors"), shards[i]);
      EXPECT_TRUE(written) << to_string(written.error());
    }
    return folder_.path();
  }

  std::string config;
  std::string hf_quant_config;
  std::vector<Tensor> tensors;

 private:
  TempFolder folder_;
};

}  // namespace lode::testing_support
