#pragma once

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "lode/base/fmt.h"
#include "tools/synth/recipe.h"
#include "tools/synth/source.h"
#include "tools/synth/write.h"

// For tests only: one recipe for every way of storing a model.

namespace lode::synth {

/// A folder of the test that is running, gone with it.
class Folder {
 public:
  explicit Folder(std::string_view name)
      : path_(std::filesystem::temp_directory_path() /
              fmt::format("lode_synth_{}_{}", ::getpid(), name)) {
    std::filesystem::create_directories(path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline ModelShape tiny() { return *preset("tiny"); }
inline ModelShape tiny_gpt_oss() { return *preset("tiny-gpt-oss"); }

inline Status write(const Recipe& recipe, const Folder& folder) {
  const HashSource source(recipe.seed);
  auto written = write_checkpoint(recipe, source, folder.path(), std::nullopt, 2);
  if (!written) return std::move(written).error();
  return {};
}

inline std::string text_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

struct Case {
  std::string name;
  Recipe recipe;
};

inline Case make_case(std::string name, WeightFormat format, Storage storage) {
  Case made{std::move(name), {}};
  made.recipe.shape = storage == Storage::kInterleaved ? tiny_gpt_oss() : tiny();
  made.recipe.format = format;
  made.recipe.storage = storage;
  return made;
}

inline std::vector<Case> cases() {
  using enum WeightFormat;
  std::vector<Case> all{
      make_case("bf16_per_expert", kBf16, Storage::kPerExpert),
      make_case("bf16_fused", kBf16, Storage::kFused),
      make_case("bf16_transposed", kBf16, Storage::kTransposed),
      make_case("bf16_interleaved", kBf16, Storage::kInterleaved),
      make_case("mxfp4_per_expert", kMxfp4, Storage::kPerExpert),
      make_case("mxfp4_fused", kMxfp4, Storage::kFused),
      make_case("mxfp4_interleaved", kMxfp4, Storage::kInterleaved),
      make_case("nvfp4_per_expert", kNvfp4, Storage::kPerExpert),
      make_case("nvfp4_fused", kNvfp4, Storage::kFused),
      make_case("nvfp4_transposed", kNvfp4, Storage::kTransposed),
      make_case("nvfp4_interleaved", kNvfp4, Storage::kInterleaved),
      make_case("nvfp4_ct_per_expert", kNvfp4Ct, Storage::kPerExpert),
      make_case("nvfp4_ct_fused", kNvfp4Ct, Storage::kFused),
      make_case("fp8_per_expert", kFp8Block, Storage::kPerExpert),
      make_case("fp8_fused", kFp8Block, Storage::kFused),
      make_case("fp8_tensor_per_expert", kFp8Tensor, Storage::kPerExpert),
      make_case("fp8_tensor_fused", kFp8Tensor, Storage::kFused),
      make_case("shards", kNvfp4, Storage::kPerExpert),
      make_case("gate_from_up", kMxfp4, Storage::kPerExpert),
      make_case("prefix", kBf16, Storage::kFused),
      make_case("unaligned", kFp8Block, Storage::kPerExpert),
      make_case("dense_fp8", kBf16, Storage::kPerExpert),
      make_case("nvfp4_dense_fp8", kNvfp4, Storage::kPerExpert),
      make_case("gpt_oss_dense_fp8", kMxfp4, Storage::kInterleaved),
      make_case("tied", kNvfp4Ct, Storage::kPerExpert),
  };
  const auto find = [&all](std::string_view name) -> Recipe& {
    return std::ranges::find(all, name, &Case::name)->recipe;
  };
  find("fp8_fused").shape.intermediate = 128;
  find("fp8_fused").shape.hidden = 144;
  find("shards").shards = 3;
  find("gate_from_up").shards = 2;
  find("gate_from_up").split_gate_up = true;
  find("prefix").prefix = "model.language_model.";
  find("unaligned").unaligned = true;
  find("dense_fp8").dense_fp8 = true;
  find("gpt_oss_dense_fp8").dense_fp8 = true;
  find("nvfp4_dense_fp8").dense_fp8 = true;
  find("tied").shape.tied = true;
  return all;
}

}  // namespace lode::synth
