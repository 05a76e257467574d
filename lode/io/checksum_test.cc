#include "lode/io/checksum.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace lode::io {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// Source: the check value of CRC-32C ("123456789"), and RFC 3720 B.4.
TEST(Crc32c, IsWhatTheStandardSays) {
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xE3069283U);
  EXPECT_EQ(crc32c({}), 0U);
  const std::vector<std::byte> zeros(32);
  EXPECT_EQ(crc32c(zeros), 0x8A9136AAU);
  const std::vector<std::byte> ones(32, std::byte{0xFF});
  EXPECT_EQ(crc32c(ones), 0x62A8AB43U);
}

TEST(Crc32c, OfPiecesIsThatOfTheWhole) {
  const std::string_view text = "123456789";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    const std::uint32_t before = crc32c(bytes_of(text.substr(0, cut)));
    EXPECT_EQ(crc32c(bytes_of(text.substr(cut)), before), 0xE3069283U);
  }
}

// Source: FIPS 180-2, appendix B.1 and B.2; the digest of nothing is well known.
TEST(Sha256, IsWhatTheStandardSays) {
  EXPECT_EQ(to_hex(sha256(bytes_of("abc"))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(to_hex(sha256({})), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  Sha256 pieces;
  pieces.add(bytes_of("abcdbcdecdefdefgefghfghighijhi"));
  pieces.add(bytes_of("jkijkljklmklmnlmnomnopnopq"));
  EXPECT_EQ(to_hex(pieces.finish()),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST(Sha256, HexGoesThereAndBackAndNothingElseIsTaken) {
  const Sha256::Digest digest = sha256(bytes_of("abc"));
  std::string text = to_hex(digest);
  EXPECT_EQ(digest_from_hex(text), digest);
  EXPECT_EQ(digest_from_hex(text.substr(1)), std::nullopt);
  text.back() = 'G';
  EXPECT_EQ(digest_from_hex(text), std::nullopt);
  text.back() = 'D';  // lower case only: one spelling for one digest
  EXPECT_EQ(digest_from_hex(text), std::nullopt);
}

}  // namespace
}  // namespace lode::io
