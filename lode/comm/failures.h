#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lode/base/result.h"
#include "lode/comm/exchange.h"

namespace lode::comm {

/// "all_gather between ranks": what an Error of a collective is about.
std::string subject_of(Operation operation);

/// What an Error of a message between two ranks is about.
std::string subject_of_message(std::uint32_t tag, std::size_t from, std::size_t to);

/// What a rank has found: ranks that did not come within the deadline, or without one, that left.
Error ranks_lost(std::size_t here, std::string_view subject, const std::vector<std::size_t>& ranks,
                 std::optional<std::chrono::milliseconds> deadline);

/// That another rank is in another collective, or in the same with another root. One at its end has
/// left, be it the other or this one.
Error operations_differ(std::size_t here, const Exchange& mine, std::size_t other, Operation theirs,
                        std::size_t their_root);

/// That a message has another size than its receiver wants.
Error sizes_differ(std::size_t here, std::string_view subject, std::size_t from,
                   std::size_t wanted_bytes, std::string found);

}  // namespace lode::comm
