#pragma once

#include "lode/families/family.h"

namespace lode::families {

/// One declaration a family; all.cc lists them.
/// Source: each family's file says its own.
const Family& qwen3_moe() noexcept;
const Family& gpt_oss() noexcept;

}  // namespace lode::families
