#pragma once

#include <array>
#include <span>

#include "lode/targets/functions.h"

// The lists of named transforms, every domain in a file functions_<domain>.cc; only targets/
// includes this.

namespace lode::targets {

// One line a domain here, in the order of the documents,
std::span<const Function> marlin_functions() noexcept;
std::span<const Function> marlin_scale_functions() noexcept;
std::span<const Function> marlin_expert_functions() noexcept;
std::span<const Function> marlin_dense_functions() noexcept;
std::span<const Function> flashinfer_part_functions() noexcept;
std::span<const Function> flashinfer_functions() noexcept;
std::span<const Function> fp8_functions() noexcept;
std::span<const Function> fp8_block_functions() noexcept;
std::span<const Function> online_functions() noexcept;
std::span<const Function> decode_functions() noexcept;

// and its name here.
inline constexpr std::array<std::span<const Function> (*)() noexcept, 10> kFunctionLists{
    marlin_functions,       marlin_scale_functions,    marlin_expert_functions,
    marlin_dense_functions, flashinfer_part_functions, flashinfer_functions,
    fp8_functions,          fp8_block_functions,       online_functions,
    decode_functions};

}  // namespace lode::targets
