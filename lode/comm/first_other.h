#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "lode/base/result.h"
#include "lode/comm/group.h"

namespace lode::comm {

/// The first rank whose number is not rank 0's: of a digest, who does not work on the same. None
/// where all are alike; the same answer on all ranks. Collective.
/// Errors: those of Group.
Result<std::optional<std::size_t>> first_other(Group& group, std::uint32_t number);

}  // namespace lode::comm
