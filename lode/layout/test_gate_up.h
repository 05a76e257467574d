#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "lode/layout/half_swap.h"
#include "lode/layout/test_golden_case.h"

// For tests only: tensors of gate and up, random bytes.

namespace lode::layout::testing {

inline std::vector<std::byte> random_bytes(std::uint64_t size, std::mt19937& random) {
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

inline tensor::Tensor tensor_of(memory::Ledger& ledger, const tensor::Shape& shape,
                                const std::vector<std::byte>& bytes,
                                formats::Format format = formats::Format::kU8) {
  auto made = tensor::make_tensor(
      ledger, memory::Tag::kWeights,
      {formats::Encoding{.element = format}, tensor::Layout::kRowMajor, shape}, "test");
  EXPECT_TRUE(made) << to_string(made.error());
  tensor::Tensor tensor = *std::move(made);
  EXPECT_EQ(tensor.view().bytes().size(), bytes.size());
  std::memcpy(tensor.mutate().bytes().data(), bytes.data(), bytes.size());
  return tensor;
}

inline std::vector<std::byte> bytes_of(const tensor::Tensor& tensor) {
  const auto bytes = tensor.view().bytes();
  return {bytes.begin(), bytes.end()};
}

}  // namespace lode::layout::testing
