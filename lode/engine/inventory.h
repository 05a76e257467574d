#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lode/checkpoint/tensor_index.h"
#include "lode/families/roles.h"
#include "lode/loader/binding.h"

namespace lode::engine {

/// The tensors of one dtype, as the headers spell it.
struct DtypeShare {
  std::string dtype;
  std::uint64_t num_tensors = 0;
  std::uint64_t bytes = 0;
};

/// The weights of one role in one number format: bytes in the files, scales included.
struct RoleShare {
  families::Role role{};
  std::string format;  // "nvfp4", "bf16", ...
  std::uint64_t num_weights = 0;
  std::uint64_t bytes = 0;
};

/// Largest share first.
std::vector<DtypeShare> dtype_shares(const checkpoint::TensorIndex& index);

/// In the order of the roles. A block of scales that two matrices of a fused tensor share is
/// counted for both.
std::vector<RoleShare> role_shares(const loader::Binding& binding);

}  // namespace lode::engine
