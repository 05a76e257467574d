#pragma once

#include <filesystem>
#include <memory>

#include "lode/base/result.h"
#include "lode/checkpoint/tensor_index.h"
#include "lode/json/json.h"
#include "tools/synth/shape.h"
#include "tools/synth/source.h"

namespace lode::synth {

/// The float model of an existing BF16 (or F32, rounded to BF16) checkpoint with separate experts.
class FolderSource : public FloatSource {
 public:
  /// Errors: as checkpoint::open_index; kUnsupported for a family that lode-synth does not know;
  /// kInvalidSource for a config that is no object or lacks a size.
  static Result<FolderSource> open(const std::filesystem::path& folder);

  /// Errors: kInvalidSource where the tensor is missing, of another shape, or not BF16 nor F32;
  /// kIo and kSourceChanged.
  Status rows(const MatrixId& matrix, std::uint64_t first_row, std::span<float> out) const override;

  const ModelShape& shape() const noexcept { return shape_; }
  /// config.json without `quantization_config`.
  const json::Object& config() const noexcept { return config_; }

  /// Copies what is beside the weights: tokenizer, chat template, generation settings.
  ///
  /// Errors: kIo.
  Status copy_companions(const std::filesystem::path& to) const;

 private:
  FolderSource(std::filesystem::path folder, checkpoint::TensorIndex index,
               std::vector<checkpoint::InputFile> files, ModelShape shape, json::Object config)
      : folder_(std::move(folder)),
        index_(std::move(index)),
        files_(std::move(files)),
        shape_(std::move(shape)),
        config_(std::move(config)) {}

  std::filesystem::path folder_;
  checkpoint::TensorIndex index_;
  std::vector<checkpoint::InputFile> files_;
  ModelShape shape_;
  json::Object config_;
};

}  // namespace lode::synth
