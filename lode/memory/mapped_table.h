#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lode::memory {

/// A byte of a mapped file: what a signal handler can say of an address.
struct MappedPlace {
  std::array<char, 248> path{};  // ends with NUL; of a longer path the last part
  std::uint64_t offset_bytes = 0;
};

/// The file and offset behind `address`, where it lies in a mapping that `map_file` made and that
/// still stands. Takes no lock and no memory: fit for a signal handler.
bool find_mapped(const void* address, MappedPlace& place) noexcept;

/// For map_file: remembers a mapping; -1 where the table is full, and then nothing is remembered.
int remember_mapped(const void* begin, std::uint64_t bytes, std::uint64_t offset_bytes,
                    std::string_view path) noexcept;

/// For Buffer: forgets what remember_mapped gave this number to; -1 does nothing.
void forget_mapped(int entry_id) noexcept;

}  // namespace lode::memory
