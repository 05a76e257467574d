#include "lode/io/checksum.h"

#include <isa-l/crc.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cstring>

#include "lode/base/check.h"

namespace lode::io {
namespace {

constexpr std::size_t kMostBytesACall = 1U << 30;  // the library counts in int
constexpr std::string_view kHexDigits = "0123456789abcdef";

int hex_value(char digit) noexcept {
  const std::size_t value = kHexDigits.find(digit);
  return value == std::string_view::npos ? -1 : static_cast<int>(value);
}

}  // namespace

// The library neither inverts what it is given nor what it returns.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before) noexcept {
  std::uint32_t state = ~before;
  while (!bytes.empty()) {
    const std::size_t count = std::min(bytes.size(), kMostBytesACall);
    // Its parameter lacks a const; it only reads.
    auto* const begin =
        static_cast<unsigned char*>(const_cast<void*>(static_cast<const void*>(bytes.data())));
    state = crc32_iscsi(begin, static_cast<int>(count), state);
    bytes = bytes.subspan(count);
  }
  return ~state;
}

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  LODE_CHECK(EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1, "no SHA-256");
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::add(std::span<const std::byte> bytes) {
  LODE_CHECK(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1, "SHA-256 failed");
}

Sha256::Digest Sha256::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> raw{};
  unsigned size = 0;
  LODE_CHECK(EVP_DigestFinal_ex(state_->context, raw.data(), &size) == 1, "SHA-256 failed");
  Digest digest{};
  LODE_CHECK(size == digest.size(), "a SHA-256 of another size");
  std::memcpy(digest.data(), raw.data(), digest.size());
  return digest;
}

Sha256::Digest sha256(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.add(bytes);
  return hash.finish();
}

std::string to_hex(const Sha256::Digest& digest) {
  std::string text;
  for (const std::byte byte : digest) {
    text += kHexDigits[std::to_integer<std::size_t>(byte >> 4)];
    text += kHexDigits[std::to_integer<std::size_t>(byte & std::byte{15})];
  }
  return text;
}

std::optional<Sha256::Digest> digest_from_hex(std::string_view text) noexcept {
  Sha256::Digest digest{};
  if (text.size() != 2 * digest.size()) return std::nullopt;
  for (std::size_t i = 0; i < digest.size(); ++i) {
    const int high = hex_value(text[2 * i]);
    const int low = hex_value(text[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    digest[i] = static_cast<std::byte>(high * 16 + low);
  }
  return digest;
}

}  // namespace lode::io
