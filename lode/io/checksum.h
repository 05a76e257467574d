#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lode::io {

/// CRC-32C of `bytes`; with the sum of what lies before them, that of both together.
///
/// Shapes: bytes [n]
/// Source: RFC 3720, appendix B.4 (polynomial 0x1EDC6F41, reflected, inverted at both ends).
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0) noexcept;

/// SHA-256 of bytes that come piece by piece.
class Sha256 {
 public:
  using Digest = std::array<std::byte, 32>;

  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void add(std::span<const std::byte> bytes);
  /// The digest of all that was added; once.
  Digest finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

Sha256::Digest sha256(std::span<const std::byte> bytes);

/// 64 lower-case hex digits, as in a manifest; and back, none for any other text.
std::string to_hex(const Sha256::Digest& digest);
std::optional<Sha256::Digest> digest_from_hex(std::string_view text) noexcept;

}  // namespace lode::io
