#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "lode/formats/dequantise.h"
#include "lode/targets/function_values.h"

namespace lode::targets {

// For functions whose tensors are rows, or blocks of rows, that are made one like the other.

/// Matrices one behind the other in a tensor: the last two axes, and all before them.
struct Matrices {
  std::uint64_t count = 0;
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
};
inline Matrices matrices_of(const NamedTensor& tensor) noexcept {
  Matrices all{1, 1, 1};
  const std::size_t rank = tensor.shape.size();
  for (std::size_t axis = 0; axis < rank; ++axis) {
    std::uint64_t& extent = axis + 1 == rank   ? all.columns
                            : axis + 2 == rank ? all.rows
                                               : all.count;
    extent *= tensor.shape[axis];
  }
  return all;
}

/// The numbers of a tensor of any float format.
inline std::vector<float> numbers_of(const NamedTensor& tensor) {
  const std::uint64_t count = tensor.bytes.size() * 8 / formats::info(tensor.dtype).bits;
  std::vector<float> numbers(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    numbers[i] = formats::number_at(tensor.dtype, tensor.bytes, i);
  }
  return numbers;
}

/// An fp32 tensor of these numbers.
inline NamedTensor tensor_of(std::string_view name, std::vector<std::uint64_t> shape,
                             std::span<const float> numbers) {
  NamedTensor tensor{std::string(name), formats::Format::kF32, std::move(shape), {}};
  const auto bytes = std::as_bytes(numbers);
  tensor.bytes.assign(bytes.begin(), bytes.end());
  return tensor;
}

/// A tensor under another name, or as another dtype of the same width.
inline NamedTensor renamed(const NamedTensor& tensor, std::string_view name,
                           formats::Format dtype) {
  NamedTensor other = tensor;
  other.name = name;
  other.dtype = dtype;
  return other;
}

/// Makes `out` of `in`, both of units of unit_bytes, in the way that is asked for:
/// `make(in, out, first_unit)` gets all of it apart, all of it in one place, or a few units in
/// buffers of their own.
template <class Make>
void make_units(Way way, std::span<const std::byte> in, std::uint64_t unit_bytes,
                std::span<std::byte> out, Make make) {
  if (way == Way::kOutOfPlace) return make(in, out, std::uint64_t{0});
  if (way == Way::kInPlace) {
    std::ranges::copy(in, out.begin());
    return make(std::span<const std::byte>(out), out, std::uint64_t{0});
  }
  constexpr std::uint64_t kUnits = 3;  // odd: so that no unit counts on its neighbour
  const std::uint64_t chunk = kUnits * std::max<std::uint64_t>(unit_bytes, 1);
  for (std::uint64_t at = 0; at < in.size(); at += chunk) {
    const std::uint64_t bytes = std::min<std::uint64_t>(chunk, in.size() - at);
    const std::vector<std::byte> arrived(in.begin() + static_cast<std::ptrdiff_t>(at),
                                         in.begin() + static_cast<std::ptrdiff_t>(at + bytes));
    make(std::span<const std::byte>(arrived), out.subspan(at, bytes),
         at / std::max<std::uint64_t>(unit_bytes, 1));
  }
}

}  // namespace lode::targets
