#pragma once

#include <string>
#include <string_view>

#include "lode/base/result.h"

namespace lode::families {

/// A value that no config.json of a known family may have.
/// Source: checkpoints_models 3.1.
inline Error config_fault(std::string_view key, std::string_view wanted, std::string found) {
  return {.code = Code::kInvalidSource,
          .thing = std::string(key),
          .wanted = std::string(wanted),
          .found = std::move(found),
          .where = "config.json"};
}

}  // namespace lode::families
