#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "lode/checkpoint/tensor_index.h"
#include "lode/families/model_spec.h"
#include "lode/loader/binding.h"
#include "tests/support/synthetic_shard.h"

namespace lode::testing_support {

/// How the synthetic experts are stored; matrices outside them are BF16, row after row.
enum class ExpertStorage {
  kNvfp4,             // a tensor an expert, ModelOpt
  kNvfp4Transposed,   // stacked, transposed, gate and up interleaved, as gpt-oss from ModelOpt
  kMxfp4Interleaved,  // stacked, as gpt-oss
  kFp8Block,          // a tensor an expert, 128 x 128 with BF16 scales
  kBf16,              // a tensor an expert
  kBf16Transposed,    // stacked [E, in, out], gate rows, then up rows
  kFp8Tensor,         // a tensor an expert, each with one scale
};

struct SyntheticShape {
  ExpertStorage storage = ExpertStorage::kBf16;
  std::uint32_t layers = 2;
  std::uint32_t experts = 4;
  std::uint32_t hidden = 256;
  std::uint32_t intermediate = 192;
  std::uint32_t vocab = 512;
  bool bias = false;
  std::uint32_t attention = 0;  // rows of the query matrix and its kind; 0: as hidden
};

/// A shard of random but legal weights, and the binding that says what is where: made without
/// `bind`, so that the loader is tested by itself and in storages that no family has.
class SyntheticWeights {
 public:
  SyntheticWeights(const SyntheticShape& shape, const std::filesystem::path& path)
      : shape_(shape), path_(path) {
    lay_out();
    shard_.write(path_);
  }

  const loader::Binding& binding() const { return binding_; }
  loader::Binding& binding() { return binding_; }
  const std::filesystem::path& path() const { return path_; }
  families::ModelSpec spec() const {
    families::ModelSpec spec;
    spec.num_layers = shape_.layers;
    return spec;
  }
  Result<checkpoint::TensorIndex> index() const { return checkpoint::open_file(path_); }

 private:
  using Format = formats::Format;
  using Fill = SyntheticShard::Fill;
  using Matrix = loader::MatrixSource;
  std::uint64_t add(std::uint64_t bytes, Fill fill) { return shard_.add(bytes, fill); }

  Matrix plain(std::uint64_t rows, std::uint64_t k) {
    Matrix matrix;
    matrix.encoding = formats::kPlainBf16;
    matrix.rows = rows;
    matrix.k = k;
    matrix.codes.offset_bytes = add(rows * k * 2, Fill::kBf16);
    matrix.codes.outer_stride_bytes = k * 2;
    matrix.present = true;
    return matrix;
  }

  loader::VectorSource vector(std::uint64_t count, std::uint64_t offset, std::uint64_t step) const {
    return {Format::kBf16, count, 0, offset, step, true};
  }
  loader::VectorSource vector(std::uint64_t count) {
    return vector(count, add(count * 2, Fill::kBf16), 2);
  }

  /// One matrix of its own tensor.
  Matrix single(std::uint64_t rows, std::uint64_t k) {
    Matrix matrix = plain(0, 0);
    matrix.rows = rows;
    matrix.k = k;
    if (shape_.storage == ExpertStorage::kBf16) return plain(rows, k);
    if (shape_.storage == ExpertStorage::kNvfp4) {
      matrix.encoding = formats::kNvfp4;
      matrix.codes = {0, loader::Order::kRowsFirst, add(rows * k / 2, Fill::kAny), k / 2, 0};
      matrix.scales = {0, loader::Order::kRowsFirst, add(rows * k / 16, Fill::kE4m3), k / 16, 0};
      matrix.stored_scale_format = Format::kE4m3;
      matrix.matrix_scale_offset_bytes = add(4, Fill::kF32Scale);
      return matrix;
    }
    matrix.codes = {0, loader::Order::kRowsFirst, add(rows * k, Fill::kE4m3), k, 0};
    if (shape_.storage == ExpertStorage::kFp8Tensor) {
      matrix.encoding = formats::kFp8Tensor;
      matrix.scales = {0, loader::Order::kRowsFirst, add(4, Fill::kF32Scale), 4, 0};
      matrix.stored_scale_format = Format::kF32;
      return matrix;
    }
    const std::uint64_t columns = (k + 127) / 128;
    matrix.encoding = formats::kFp8Block128;
    matrix.scales = {0, loader::Order::kRowsFirst,
                     add((rows + 127) / 128 * columns * 2, Fill::kBf16Scale), columns * 2, 0};
    matrix.stored_scale_format = Format::kBf16;
    return matrix;
  }

  /// A stack of all experts' [rows, k] matrices, stored in the shape's way.
  struct Stack {
    std::uint64_t codes = 0;
    std::uint64_t scales = 0;
    std::uint64_t matrix_scales = 0;
    std::uint64_t rows = 0;
    std::uint64_t k = 0;
  };
  Stack stack(std::uint64_t rows, std::uint64_t k) {
    Stack made{0, 0, 0, rows, k};
    const std::uint64_t numbers = shape_.experts * rows * k;
    if (shape_.storage == ExpertStorage::kBf16Transposed) {
      made.codes = add(numbers * 2, Fill::kBf16);
      return made;
    }
    const bool nvfp4 = shape_.storage == ExpertStorage::kNvfp4Transposed;
    made.codes = add(numbers / 2, Fill::kAny);
    made.scales = nvfp4 ? add(numbers / 16, Fill::kE4m3) : add(numbers / 32, Fill::kE8m0);
    made.matrix_scales = nvfp4 ? add(shape_.experts * 4, Fill::kF32Scale) : 0;
    return made;
  }

  /// Rows origin, origin + step, ... of one expert of a stack.
  Matrix member(const Stack& stack, std::uint64_t expert, std::uint64_t origin, std::uint64_t step,
                std::uint64_t rows) const {
    Matrix matrix;
    matrix.rows = rows;
    matrix.k = stack.k;
    matrix.row_origin = origin;
    matrix.row_step = step;
    matrix.present = true;
    if (shape_.storage == ExpertStorage::kMxfp4Interleaved) {
      const std::uint64_t code_row = stack.k / 2, scale_row = stack.k / 32;
      matrix.encoding = formats::kMxfp4;
      matrix.stored_scale_format = Format::kE8m0;
      matrix.codes = {0, loader::Order::kRowsFirst,
                      stack.codes + (expert * stack.rows + origin) * code_row, step * code_row, 0};
      matrix.scales = {0, loader::Order::kRowsFirst, stack.scales + expert * stack.rows * scale_row,
                       scale_row, 0};
      return matrix;
    }
    const bool bf16 = shape_.storage == ExpertStorage::kBf16Transposed;
    const std::uint64_t unit = bf16 ? 2 : 1;
    const std::uint64_t units = bf16 ? stack.k : stack.k / 2;
    matrix.encoding = bf16 ? formats::kPlainBf16 : formats::kNvfp4;
    matrix.codes = {0, loader::Order::kKFirst,
                    stack.codes + (expert * units * stack.rows + origin) * unit, stack.rows * unit,
                    step * unit};
    if (bf16) return matrix;
    matrix.stored_scale_format = Format::kE4m3;
    matrix.scales = {0, loader::Order::kKFirst, stack.scales + expert * stack.rows * stack.k / 16,
                     stack.rows, 1};
    matrix.matrix_scale_offset_bytes = stack.matrix_scales + expert * 4;
    return matrix;
  }

  bool stacked() const {
    return shape_.storage == ExpertStorage::kNvfp4Transposed ||
           shape_.storage == ExpertStorage::kMxfp4Interleaved ||
           shape_.storage == ExpertStorage::kBf16Transposed;
  }

  std::vector<loader::ExpertSource> experts() {
    const std::uint64_t rows = shape_.intermediate, k = shape_.hidden;
    std::vector<loader::ExpertSource> experts(shape_.experts);
    Stack gate_up, down;
    if (stacked()) gate_up = stack(2 * rows, k);
    if (stacked()) down = stack(k, rows);
    const std::uint64_t biases =
        shape_.bias ? add(shape_.experts * (2 * rows + k) * 2, Fill::kBf16) : 0;
    const bool halves = shape_.storage == ExpertStorage::kBf16Transposed;
    for (std::uint64_t e = 0; e < experts.size(); ++e) {
      loader::ExpertSource& expert = experts[e];
      expert.gate = stacked() ? member(gate_up, e, 0, halves ? 1 : 2, rows) : single(rows, k);
      expert.up =
          stacked() ? member(gate_up, e, halves ? rows : 1, halves ? 1 : 2, rows) : single(rows, k);
      expert.down = stacked() ? member(down, e, 0, 1, k) : single(k, rows);
      if (!shape_.bias) continue;
      const std::uint64_t at = biases + e * (2 * rows + k) * 2;
      expert.gate_bias = vector(rows, at, 4);
      expert.up_bias = vector(rows, at + 2, 4);
      expert.down_bias = vector(k, at + 4 * rows, 2);
    }
    return experts;
  }

  void lay_out() {
    using families::Role;
    const auto index = [](Role role) { return static_cast<std::size_t>(role); };
    const std::uint64_t hidden = shape_.hidden;
    binding_.model.matrices[index(Role::kTokenEmbedding)] = plain(shape_.vocab, hidden);
    binding_.model.matrices[index(Role::kOutputHead)] = plain(shape_.vocab, hidden);
    binding_.model.vectors[index(Role::kFinalNorm)] = vector(hidden);
    for (std::uint32_t layer = 0; layer < shape_.layers; ++layer) {
      loader::RoleSources roles;
      for (const Role role : {Role::kQuery, Role::kKey, Role::kValue, Role::kAttentionOutput}) {
        roles.matrices[index(role)] =
            plain(shape_.attention == 0 ? hidden : shape_.attention, hidden);
      }
      roles.vectors[index(Role::kAttentionNorm)] = vector(hidden);
      roles.vectors[index(Role::kMlpNorm)] = vector(hidden);
      const bool dense = layer == 0 && shape_.layers > 2;
      if (dense) {
        roles.matrices[index(Role::kMlpGate)] = plain(shape_.intermediate, hidden);
        roles.matrices[index(Role::kMlpUp)] = plain(shape_.intermediate, hidden);
        roles.matrices[index(Role::kMlpDown)] = plain(hidden, shape_.intermediate);
      } else {
        roles.matrices[index(Role::kRouter)] = plain(shape_.experts, hidden);
      }
      binding_.layers.push_back(roles);
      binding_.experts.push_back(dense ? std::vector<loader::ExpertSource>() : experts());
    }
  }

  SyntheticShape shape_;
  std::filesystem::path path_;
  loader::Binding binding_;
  SyntheticShard shard_;
};

}  // namespace lode::testing_support
