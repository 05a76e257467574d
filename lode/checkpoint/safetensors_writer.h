#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "lode/base/result.h"
#include "lode/formats/format.h"

namespace lode::checkpoint {

/// A tensor to be written: row-major bytes that somebody else holds.
struct TensorToWrite {
  std::string name;
  formats::Format format{};
  std::vector<std::uint64_t> dims;
  std::span<const std::byte> bytes;
};

/// Writes one safetensors file, tensors in the order given, data beginning on a multiple of 8. The
/// file appears under its name when it is whole: a partial one is never left behind. A link is
/// followed.
///
/// Errors: kUsage where a tensor's bytes do not fit its dims or two have one name; kNoSpace; kIo,
/// also where `path` is a folder, a device or a pipe.
/// Source: checkpoints_models 1.1.
Status write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors);

}  // namespace lode::checkpoint
